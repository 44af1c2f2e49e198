// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data" 2>&1 | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data memory=90000000" 2>/dev/null | FileCheck %s --check-prefix=SHORT

// Memory counts a weight as it is stored, and the time includes its gather: without it, both products
// take at least 1963.418 ms. The whole weight would not fit.
dist.mesh @mesh <["data" = 4]>
loom.weight @w : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
// CHECK: remark: search: the program takes [[MS:1988.[0-9]+]] ms on a device, one operation after another; no choice of splits takes less than [[MS]] ms
// CHECK: func.func @stored
// CHECK: loom.get_weight @w {{.*}}dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>
// SHORT: func.func @stored
// SHORT: loom.get_weight @w {{.*}}dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>
func.func @stored(%x: tensor<4096x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4096x4096xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<4096x4096xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [1] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %1 : tensor<4096x4096xf32>
}

// -----

// Memory counts a state as it is stored, too, before a call and after it; both do not fit on one device.
dist.mesh @mesh <["data" = 4]>
// CHECK: func.func @state(%arg0: tensor<4096x4096xf32> {{{.*}}dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>
// SHORT: func.func @state(%arg0: tensor<4096x4096xf32> {{{.*}}dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>
func.func @state(%past: tensor<4096x4096xf32> {loom.name = "past", loom.state = "past", dist.storage = #dist.sharding<@mesh, [{}, {"data"}]>}) -> (tensor<4096x4096xf32> {loom.name = "present", loom.state = "past"}) {
  %0 = loom.softmax %past dim = 1 : tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}
