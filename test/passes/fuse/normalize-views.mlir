// RUN: gridloom-opt %s --plan-normalize-views | FileCheck %s

// CHECK-LABEL: func.func @mask
// CHECK-NEXT: %[[B:.*]] = loom.broadcast %arg0 dims = [0, 3] : (tensor<2x8xf32>) -> tensor<2x4x8x8xf32>
// CHECK-NEXT: return %[[B]]
func.func @mask(%m: tensor<2x8xf32>) -> tensor<2x4x8x8xf32> {
  %0 = loom.reshape %m : (tensor<2x8xf32>) -> tensor<2x1x1x8xf32>
  %1 = loom.broadcast %0 dims = [0, 1, 2, 3] : (tensor<2x1x1x8xf32>) -> tensor<2x4x8x8xf32>
  return %1 : tensor<2x4x8x8xf32>
}

// A dimension of one element that is not repeated stays: its value has one element per row.
// CHECK-LABEL: func.func @batch_of_one
// CHECK-NEXT: loom.broadcast %arg0 dims = [0, 1] : (tensor<1x8xf32>) -> tensor<1x8x16xf32>
func.func @batch_of_one(%m: tensor<1x8xf32>) -> tensor<1x8x16xf32> {
  %0 = loom.reshape %m : (tensor<1x8xf32>) -> tensor<1x8x1xf32>
  %1 = loom.broadcast %0 dims = [0, 1, 2] : (tensor<1x8x1xf32>) -> tensor<1x8x16xf32>
  return %1 : tensor<1x8x16xf32>
}

// CHECK-LABEL: func.func @splat
// CHECK-NEXT: %[[C:.*]] = loom.constant dense<2.000000e+00> : tensor<8x4xf32>
// CHECK-NEXT: return %[[C]]
func.func @splat() -> tensor<8x4xf32> {
  %0 = loom.constant dense<2.0> : tensor<f32>
  %1 = loom.reshape %0 : (tensor<f32>) -> tensor<1xf32>
  %2 = loom.broadcast %1 dims = [0] : (tensor<1xf32>) -> tensor<4x8xf32>
  %3 = loom.transpose %2 [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @broadcasts
// CHECK-NEXT: loom.broadcast %arg0 dims = [2] : (tensor<8xf32>) -> tensor<2x4x8xf32>
func.func @broadcasts(%x: tensor<8xf32>) -> tensor<2x4x8xf32> {
  %0 = loom.broadcast %x dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = loom.broadcast %0 dims = [1, 2] : (tensor<4x8xf32>) -> tensor<2x4x8xf32>
  return %1 : tensor<2x4x8xf32>
}

// CHECK-LABEL: func.func @units
// CHECK-NEXT: loom.reshape %arg0 : (tensor<2x1x8xf32>) -> tensor<2x8x1xf32>
func.func @units(%x: tensor<2x1x8xf32>) -> tensor<2x8x1xf32> {
  %0 = loom.transpose %x [0, 2, 1] : (tensor<2x1x8xf32>) -> tensor<2x8x1xf32>
  return %0 : tensor<2x8x1xf32>
}

// A transpose that moves elements is one.
// CHECK-LABEL: func.func @moves
// CHECK-NEXT: loom.transpose %arg0
func.func @moves(%x: tensor<2x3x8xf32>) -> tensor<2x8x3xf32> {
  %0 = loom.transpose %x [0, 2, 1] : (tensor<2x3x8xf32>) -> tensor<2x8x3xf32>
  return %0 : tensor<2x8x3xf32>
}

// CHECK-LABEL: func.func @iota
// CHECK-NEXT: loom.iota dim = 1 : tensor<1x8x1xi64>
func.func @iota() -> tensor<1x8x1xi64> {
  %0 = loom.iota dim = 0 : tensor<8xi64>
  %1 = loom.reshape %0 : (tensor<8xi64>) -> tensor<1x8x1xi64>
  return %1 : tensor<1x8x1xi64>
}

// A reshape between operations of a kernel moves up to what is in memory; rows stay rows.
// CHECK-LABEL: func.func @between
// CHECK-NEXT: %[[R:.*]] = loom.reshape %arg0 : (tensor<2x4x8xf32>) -> tensor<8x8xf32>
// CHECK-NEXT: %[[E:.*]] = loom.exp %[[R]] : tensor<8x8xf32>
// CHECK-NEXT: %[[S:.*]] = loom.softmax %[[E]] dim = 1 : tensor<8x8xf32>
// CHECK-NEXT: loom.negate %[[S]]
func.func @between(%x: tensor<2x4x8xf32>) -> tensor<8x8xf32> {
  %0 = loom.exp %x : tensor<2x4x8xf32>
  %1 = loom.softmax %0 dim = 2 : tensor<2x4x8xf32>
  %2 = loom.reshape %1 : (tensor<2x4x8xf32>) -> tensor<8x8xf32>
  %3 = loom.negate %2 : tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}

// Rows cut in two are other rows; a value read twice is not computed twice.
// CHECK-LABEL: func.func @stays
// CHECK: loom.softmax
// CHECK-NEXT: loom.reshape
// CHECK: loom.exp
// CHECK-NEXT: loom.reshape
func.func @stays(%x: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>) {
  %0 = loom.softmax %x dim = 1 : tensor<4x8xf32>
  %1 = loom.reshape %0 : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %2 = loom.negate %1 : tensor<8x4xf32>
  %3 = loom.exp %x : tensor<4x8xf32>
  %4 = loom.reshape %3 : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %5 = loom.negate %4 : tensor<8x4xf32>
  return %2, %5, %3 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x8xf32>
}
