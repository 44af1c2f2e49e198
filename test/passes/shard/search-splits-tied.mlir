// RUN: gridloom-opt %s --dist-search-splits="axes=data memory=90000000" | FileCheck %s

// A weight of two products is stored in parts if it does not fit on a device: it is gathered for both readers.
dist.mesh @mesh <["data" = 4]>
loom.weight @w : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
// CHECK: loom.get_weight @w {{.*}}dist.shardings = [#dist.sharding<@mesh, [{{.*}}"data"{{.*}}]>]
func.func @tied(%x: tensor<4096x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4096x4096xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w = loom.get_weight @w : tensor<4096x4096xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [1] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %1 : tensor<4096x4096xf32>
}
