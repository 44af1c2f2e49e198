// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=model" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s

// The search writes the operations' splits, and that the sum of two products is reduced once, after
// the addition, the transpose and the slices that tanh reads.
dist.mesh @mesh <["model" = 8]>
loom.weight @w1 : tensor<4096x64xf32> from <"", offset = 0, bytes = 1048576>
loom.weight @w2 : tensor<4096x64xf32> from <"", offset = 0, bytes = 1048576>
// CHECK-LABEL: func.func @sums
// CHECK-COUNT-2: loom.dot_general {{.*}}unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}, {"model"}]>
// CHECK: loom.add {{.*}}unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}], unreduced = {"model"}>
// CHECK: loom.transpose {{.*}}dist.splits = #dist.splits<[{}, {}], unreduced = {"model"}>
// CHECK: loom.tanh {{.*}}dist.splits = #dist.splits<[{}, {}]>
func.func @sums(%x: tensor<4x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">}) -> (tensor<64x4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w1 = loom.get_weight @w1 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<4096x64xf32>
  %w2 = loom.get_weight @w2 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<4096x64xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<4x4096xf32>, tensor<4096x64xf32>) -> tensor<4x64xf32>
  %1 = loom.dot_general %x, %w2 batch = [] x [] contract = [1] x [0] : (tensor<4x4096xf32>, tensor<4096x64xf32>) -> tensor<4x64xf32>
  %2 = loom.add %0, %1 : tensor<4x64xf32>
  %3 = loom.transpose %2 [1, 0] : (tensor<4x64xf32>) -> tensor<64x4xf32>
  %4 = loom.tanh %3 : tensor<64x4xf32>
  return %4 : tensor<64x4xf32>
}

// -----

// Existing splits are kept, whatever they cost.
dist.mesh @mesh <["model" = 8]>
// CHECK-LABEL: func.func @given
// CHECK: loom.exp {{.*}}dist.splits = #dist.splits<[{}, {"model"}]>
func.func @given(%x: tensor<8x8xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8x8xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.exp %x {dist.splits = #dist.splits<[{}, {"model"}]>} : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
