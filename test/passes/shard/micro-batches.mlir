// RUN: gridloom-opt %s --split-input-file --verify-diagnostics --dist-apply-strategy="dp=data microbatches=4" | FileCheck %s

// Axes of devices come before micro-batches, even if a user names the axes: the three rows of each
// of two devices are three micro-batches.
dist.mesh @mesh <["a" = 2, "data" = 2]>
// CHECK: dist.mesh @mesh <["a" = 2, "data" = 2, "micro" = 3]>
// CHECK-LABEL: func.func @order
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{"a", "micro"}, {}]>
// CHECK: loom.exp {{.*}}[{"a", "micro", ?}, {?}]
func.func @order(%x: tensor<6x4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<6x4xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}

// -----

// A user's sharding of a result says on which devices its parts are, not when they are computed.
dist.mesh @mesh <["a" = 2, "data" = 2]>
// CHECK-LABEL: func.func @pinned
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{"data", "micro"}, {"a"}]>
func.func @pinned(%x: tensor<8x4xf32> {loom.name = "x"}) -> (tensor<8x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {"a"}]>}) {
  %0 = loom.exp %x : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// The result's first micro-batch would be the first rows of all, that of the computed value the
// first rows of each device.
dist.mesh @mesh <["data" = 2]>
// CHECK: dist.mesh @mesh <["data" = 2]>
func.func @pinned_otherwise(%x: tensor<8x4xf32> {loom.name = "x"}) -> (tensor<8x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  // expected-remark @below {{the batch is not cut into micro-batches: output 'y' is asked for with another split of the batch than it is computed with}}
  %0 = loom.exp %x : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// The first device's half of the elements is the first row: its micro-batches are columns of it.
dist.mesh @mesh <["a" = 2, "data" = 1]>
// CHECK: dist.mesh @mesh <["a" = 2, "data" = 1]>
func.func @flat(%x: tensor<2x6xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) -> (tensor<12xf32> {loom.name = "y"}) {
  // expected-remark @below {{the batch is not cut into micro-batches: '' needs all of it}}
  %0 = loom.reshape %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : (tensor<2x6xf32>) -> tensor<12xf32>
  return %0 : tensor<12xf32>
}

// -----

// The condition's micro-batches are columns of the values to select.
dist.mesh @mesh <["data" = 1]>
// CHECK: dist.mesh @mesh <["data" = 1]>
func.func @where(%x: tensor<4x4xf32> {loom.name = "x"}, %z: tensor<4x4xf32> {loom.name = "z"}) -> (tensor<4x4xf32> {loom.name = "y"}) {
  %0 = loom.compare gt %x, %z : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xi1>
  %1 = loom.transpose %0 [1, 0] : (tensor<4x4xi1>) -> tensor<4x4xi1>
  // expected-remark @below {{the batch is not cut into micro-batches: '' reads or makes values whose batch is split differently}}
  %2 = loom.select %1, %x, %z : tensor<4x4xi1>, tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// Blocks of two rows must stay together: three rows would be a block and a half.
dist.mesh @mesh <["data" = 2]>
// CHECK: dist.mesh @mesh <["data" = 2, "micro" = 3]>
// CHECK-LABEL: func.func @blocks
// CHECK-SAME: [{"data", "micro"} * 2, {}]
func.func @blocks(%x: tensor<12x4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"} * 2, {}]>}) -> (tensor<12x4xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<12x4xf32>
  return %0 : tensor<12x4xf32>
}

// -----

// Rows of the input are columns of an output, which is split by rows.
dist.mesh @mesh <["data" = 1]>
// CHECK: dist.mesh @mesh <["data" = 1]>
func.func @whole(%x: tensor<8x4xf32> {loom.name = "x"}) -> (tensor<8x4xf32> {loom.name = "y"}, tensor<4x8xf32> {loom.name = "z"}) {
  // expected-remark @below {{the batch is not cut into micro-batches: '' needs all of it}}
  %0 = loom.transpose %x [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  return %x, %0 : tensor<8x4xf32>, tensor<4x8xf32>
}
