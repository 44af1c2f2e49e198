// RUN: gridloom-opt %s --plan-normalize-views | FileCheck %s

// CHECK-LABEL: func.func @mask
// CHECK-NEXT: %[[B:.*]] = loom.broadcast %arg0 dims = [0, 3] : (tensor<2x8xf32>) -> tensor<2x4x8x8xf32>
// CHECK-NEXT: return %[[B]]
func.func @mask(%m: tensor<2x8xf32>) -> tensor<2x4x8x8xf32> {
  %0 = loom.reshape %m : (tensor<2x8xf32>) -> tensor<2x1x1x8xf32>
  %1 = loom.broadcast %0 dims = [0, 1, 2, 3] : (tensor<2x1x1x8xf32>) -> tensor<2x4x8x8xf32>
  return %1 : tensor<2x4x8x8xf32>
}

// A dimension of one element that is not broadcast stays: its operand has one element per row.
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

// A transpose that moves elements stays one.
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

// A reshape between operations of a kernel moves up to the value in memory; rows stay rows.
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

// Splitting rows makes other rows; a value with two readers is not computed twice.
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

// A slice moves below the reshape of its operand, to its readers; one that cuts through a part stays.
// CHECK-LABEL: func.func @parts
// CHECK-NEXT: %[[R:.*]] = loom.reshape %arg0 : (tensor<2x24xf32>) -> tensor<1x2x6x4xf32>
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[R]] [0, 0, 2, 0] to [1, 2, 4, 4] by [1, 1, 1, 1]
// CHECK-NEXT: %[[U:.*]] = loom.slice %arg0 [0, 2] to [2, 10] by [1, 1]
// CHECK-NEXT: %[[V:.*]] = loom.reshape %[[U]]
// CHECK-NEXT: return %[[S]], %[[V]]
func.func @parts(%x: tensor<2x24xf32>) -> (tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>) {
  %0 = loom.slice %x [0, 8] to [2, 16] by [1, 1] : (tensor<2x24xf32>) -> tensor<2x8xf32>
  %1 = loom.reshape %0 : (tensor<2x8xf32>) -> tensor<1x2x2x4xf32>
  %2 = loom.slice %x [0, 2] to [2, 10] by [1, 1] : (tensor<2x24xf32>) -> tensor<2x8xf32>
  %3 = loom.reshape %2 : (tensor<2x8xf32>) -> tensor<1x2x2x4xf32>
  return %1, %3 : tensor<1x2x2x4xf32>, tensor<1x2x2x4xf32>
}

// Readers widen their operands: no copy in the wider type is written, except for a product's operand.
// CHECK-LABEL: func.func @widened
// CHECK-NEXT: %[[S:.*]] = loom.slice %arg0 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xbf16>) -> tensor<2x4xbf16>
// CHECK-NEXT: %[[W:.*]] = loom.convert %[[S]] : (tensor<2x4xbf16>) -> tensor<2x4xf32>
// CHECK-NEXT: %[[R:.*]] = loom.broadcast %arg2 dims = [1] : (tensor<4xbf16>) -> tensor<2x4xbf16>
// CHECK-NEXT: %[[V:.*]] = loom.convert %[[R]] : (tensor<2x4xbf16>) -> tensor<2x4xf32>
// CHECK-NEXT: loom.add %[[W]], %[[V]]
// CHECK: %[[X:.*]] = loom.convert %arg0 : (tensor<2x8xbf16>) -> tensor<2x8xf32>
// CHECK-NEXT: %[[P:.*]] = loom.slice %[[X]]
// CHECK-NEXT: loom.dot_general %[[P]], %arg1
func.func @widened(%x: tensor<2x8xbf16>, %w: tensor<4x3xf32>, %b: tensor<4xbf16>) -> (tensor<2x4xf32>, tensor<2x3xf32>) {
  %0 = loom.convert %x : (tensor<2x8xbf16>) -> tensor<2x8xf32>
  %1 = loom.slice %0 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %2 = loom.convert %b : (tensor<4xbf16>) -> tensor<4xf32>
  %3 = loom.broadcast %2 dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %4 = loom.add %1, %3 : tensor<2x4xf32>
  %5 = loom.convert %x : (tensor<2x8xbf16>) -> tensor<2x8xf32>
  %6 = loom.slice %5 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %7 = loom.dot_general %6, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %4, %7 : tensor<2x4xf32>, tensor<2x3xf32>
}

// A gather with one constant index is a slice.
// CHECK-LABEL: func.func @known_place
// CHECK-NEXT: %[[S:.*]] = loom.slice %arg0 [0, 2, 0] to [2, 3, 4] by [1, 1, 1] : (tensor<2x3x4xf32>) -> tensor<2x1x4xf32>
// CHECK-NEXT: %[[R:.*]] = loom.reshape %[[S]] : (tensor<2x1x4xf32>) -> tensor<2x4xf32>
// CHECK-NEXT: return %[[R]]
func.func @known_place(%x: tensor<2x3x4xf32>) -> tensor<2x4xf32> {
  %i = loom.constant dense<2> : tensor<i64>
  %0 = loom.gather %x, %i dim = 1 : (tensor<2x3x4xf32>, tensor<i64>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// A reshape can move past any number of operations.

// CHECK-LABEL: func.func @long_chain
// CHECK-NEXT: loom.reshape %arg0 : (tensor<4x6xf32>) -> tensor<24xf32>
// CHECK-NOT: loom.reshape
func.func @long_chain(%x: tensor<4x6xf32>) -> tensor<24xf32> {
  %0 = loom.negate %x : tensor<4x6xf32>
  %1 = loom.negate %0 : tensor<4x6xf32>
  %2 = loom.negate %1 : tensor<4x6xf32>
  %3 = loom.negate %2 : tensor<4x6xf32>
  %4 = loom.negate %3 : tensor<4x6xf32>
  %5 = loom.negate %4 : tensor<4x6xf32>
  %6 = loom.negate %5 : tensor<4x6xf32>
  %7 = loom.negate %6 : tensor<4x6xf32>
  %8 = loom.negate %7 : tensor<4x6xf32>
  %9 = loom.negate %8 : tensor<4x6xf32>
  %10 = loom.negate %9 : tensor<4x6xf32>
  %11 = loom.negate %10 : tensor<4x6xf32>
  %12 = loom.negate %11 : tensor<4x6xf32>
  %13 = loom.negate %12 : tensor<4x6xf32>
  %flat = loom.reshape %13 : (tensor<4x6xf32>) -> tensor<24xf32>
  %y = loom.exp %flat : tensor<24xf32>
  return %y : tensor<24xf32>
}
