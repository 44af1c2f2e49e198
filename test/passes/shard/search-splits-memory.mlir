// RUN: gridloom-opt %s --dist-search-splits="axes=data" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-insert-reshards --dist-lower-reshards --dist-localize --canonicalize | FileCheck %s --check-prefix=ROOM
// RUN: gridloom-opt %s --dist-search-splits="axes=data memory=80000000" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-insert-reshards --dist-lower-reshards --dist-localize --canonicalize | FileCheck %s --check-prefix=SHORT
// RUN: not gridloom-opt %s --dist-search-splits="axes=data memory=1000000" 2>&1 | FileCheck %s --check-prefix=NONE

// The rows are split. If the weights do not fit on a device, one is stored in parts and gathered for its product.
// ROOM-NOT: = dist.
// SHORT: %[[W:.*]] = loom.get_weight @w2 {{.*}} : tensor<{{4096x256|1024x1024}}xf32>
// SHORT: %[[ALL:.*]] = dist.all_gather %[[W]] over ["data"] dim = {{[01]}}
// SHORT: loom.dot_general %{{.*}}, %[[ALL]]
// NONE: error: no way to split the program over data was found that keeps what has been given within 976.6 KiB a device
dist.mesh @mesh <["data" = 4]>
loom.weight @w1 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w2 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
func.func @rows(%x: tensor<8192x1024xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8192x1024xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w1 = loom.get_weight @w1 : tensor<1024x4096xf32>
  %w2 = loom.get_weight @w2 : tensor<4096x1024xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8192x1024xf32>, tensor<1024x4096xf32>) -> tensor<8192x4096xf32>
  %1 = loom.gelu erf %0 : tensor<8192x4096xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8192x4096xf32>, tensor<4096x1024xf32>) -> tensor<8192x1024xf32>
  return %2 : tensor<8192x1024xf32>
}
