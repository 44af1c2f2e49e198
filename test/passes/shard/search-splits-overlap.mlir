// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data" 2>&1 | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data hidden-share=1" 2>&1 | FileCheck %s --check-prefix=HIDDEN
// RUN: gridloom-opt %s --split-input-file --dist-search-splits="axes=data hidden-share=0.5" 2>&1 | FileCheck %s --check-prefix=HALF

// The gather of a weight can run beside the product before: hidden, it costs nothing.
dist.mesh @mesh <["data" = 4]>
loom.weight @v : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
loom.weight @w : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
// CHECK: remark: search: the program takes 1988.{{[0-9]+}} ms on a device, one operation after another; no choice
// HIDDEN: remark: search: the program takes 1963.{{[0-9]+}} ms on a device, one operation after another, with 100 % less for messages beside work; no choice
func.func @beside(%x: tensor<4096x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4096x4096xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %v = loom.get_weight @v {dist.sharding = #dist.sharding<@mesh, [{}, {}]>} : tensor<4096x4096xf32>
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<4096x4096xf32>
  %0 = loom.dot_general %x, %v batch = [] x [] contract = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [1] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %1 : tensor<4096x4096xf32>
}

// -----

// The first product waits for its weight, and the second one for the first: nothing runs beside the gather.
dist.mesh @mesh <["data" = 4]>
loom.weight @v : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
loom.weight @w : tensor<4096x4096xf32> from <"", offset = 0, bytes = 67108864>
// CHECK: remark: search: the program takes [[MS:1988.[0-9]+]] ms on a device
// HIDDEN: remark: search: the program takes [[MS:1988.[0-9]+]] ms on a device
func.func @before(%x: tensor<4096x4096xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4096x4096xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %v = loom.get_weight @v {dist.sharding = #dist.sharding<@mesh, [{}, {}]>} : tensor<4096x4096xf32>
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<4096x4096xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  %1 = loom.dot_general %0, %v batch = [] x [] contract = [1] x [1] : (tensor<4096x4096xf32>, tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %1 : tensor<4096x4096xf32>
}

// -----

// Rows are no partial sums, whatever they can run beside: the sums become rows.
dist.mesh @mesh <["data" = 4]>
loom.weight @v : tensor<65536x64xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
loom.weight @z : tensor<512x512xf32> from <"", offset = 0, bytes = 1048576>
// HALF-LABEL: func.func @no_sums
// HALF: loom.dot_general {{.*}} dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>], dist.splits = #dist.splits<[{}, {}, {"data"}]>
// HALF: loom.dot_general {{.*}} dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>], dist.splits = #dist.splits<[{"data"}, {}, {}]>
// HALF: loom.add {{.*}} dist.splits = #dist.splits<[{"data"}, {}]>}
func.func @no_sums(%x: tensor<64x65536xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>, dist.origin = #dist.origin<"user">}, %u: tensor<64x64xf32> {loom.name = "u", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}, %q: tensor<512x512xf32> {loom.name = "q", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<64x64xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}, tensor<512x512xf32> {loom.name = "s", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %v = loom.get_weight @v : tensor<65536x64xf32>
  %w = loom.get_weight @w : tensor<64x64xf32>
  %z = loom.get_weight @z : tensor<512x512xf32>
  %0 = loom.dot_general %x, %v batch = [] x [] contract = [1] x [0] : (tensor<64x65536xf32>, tensor<65536x64xf32>) -> tensor<64x64xf32>
  %1 = loom.dot_general %u, %w batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = loom.add %0, %1 : tensor<64x64xf32>
  %3 = loom.dot_general %q, %z batch = [] x [] contract = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
  %4 = loom.gelu erf %2 : tensor<64x64xf32>
  return %4, %3 : tensor<64x64xf32>, tensor<512x512xf32>
}
