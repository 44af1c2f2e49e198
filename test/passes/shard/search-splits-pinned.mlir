// RUN: not gridloom-opt %s --dist-search-splits="axes=data memory=90000000" 2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: gridloom-opt %s --dist-search-splits="axes=data" 2>/dev/null | FileCheck %s

// A weight that is pinned whole is whole on each device, however its readers split it: 64 MiB of
// it, and 48 MiB of a product with its operand.
// SHORT: error: no way to split the program over data was found that keeps what has been given within 85.8 MiB a device: the least usage at time 2 is 117440512
// CHECK: loom.get_weight @w {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]}
dist.mesh @mesh <["data" = 4]>
loom.weight @w : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
func.func @tied(%x: tensor<4096x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4096x4096xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w = loom.get_weight @w {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.origins = [#dist.origin<"user">]} : tensor<4096x4096xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [1] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %1 : tensor<4096x4096xf32>
}
