// RUN: gridloom-opt %s --split-input-file --dist-choose-splits -verify-diagnostics

// A bias is no partial sum: added to a partial sum over two devices it would count twice.
dist.mesh @mesh <["model" = 2]>
func.func @bias(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>},
                %b: tensor<4x4xf32> {loom.name = "b", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  // expected-error @below {{needs all of loom.dot_general, which is declared unreduced over 'model': it also reads an input, which is no partial sum; declare the former without {unreduced: ...}}}
  %1 = loom.add %0, %b {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
