// RUN: gridloom-opt %s --split-input-file --plan-expand-contractions | FileCheck %s

// Contractions that the library supports stay.
// CHECK-LABEL: func.func @f32
// CHECK-NEXT: loom.dot_general
// CHECK-NEXT: return
func.func @f32(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// The library has contractions of halves, and sums them in f32, which the result may be.
// CHECK-LABEL: func.func @f16
// CHECK-NEXT: %[[Y:.*]] = loom.dot_general {{.*}} -> tensor<2x4xf16>
// CHECK-NEXT: %[[Z:.*]] = loom.dot_general {{.*}} -> tensor<2x4xf32>
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @f16(%a: tensor<2x3xf16>, %b: tensor<3x4xf16>) -> (tensor<2x4xf16>, tensor<2x4xf32>) {
  %0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<2x3xf16>, tensor<3x4xf16>) -> tensor<2x4xf16>
  %1 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<2x3xf16>, tensor<3x4xf16>) -> tensor<2x4xf32>
  return %0, %1 : tensor<2x4xf16>, tensor<2x4xf32>
}

// -----

// The prologue has only kernels: halves are multiplied and summed in f32, and rounded once.
loom.weight @h : tensor<2x3xf16> from <"", offset = 0, bytes = 12>
// CHECK-LABEL: loom.derived @square
// CHECK: %[[P:.*]] = loom.multiply %{{.*}} : tensor<2x2x3xf32>
// CHECK: %[[S:.*]] = loom.reduce {{ *}}sum %[[P]] dims = [2] : (tensor<2x2x3xf32>) -> tensor<2x2xf32>
// CHECK: loom.convert %[[S]] : (tensor<2x2xf32>) -> tensor<2x2xf16>
loom.derived @square : tensor<2x2xf16> {
  %h = loom.get_weight @h : tensor<2x3xf16>
  %0 = loom.dot_general %h, %h batch = [] x [] contract = [1] x [1] : (tensor<2x3xf16>, tensor<2x3xf16>) -> tensor<2x2xf16>
  loom.yield %0 : tensor<2x2xf16>
}

// -----

// The loops' order is batch, rows, columns, contracted.
// CHECK-LABEL: func.func @f64
// CHECK: %[[A:.*]] = loom.transpose %{{.*}} [1, 0, 2] : (tensor<3x5x7xf64>) -> tensor<5x3x7xf64>
// CHECK: %[[L:.*]] = loom.broadcast %[[A]] dims = [0, 1, 3] : (tensor<5x3x7xf64>) -> tensor<5x3x4x7xf64>
// CHECK: %[[R:.*]] = loom.broadcast %{{.*}} dims = [0, 2, 3] : (tensor<5x4x7xf64>) -> tensor<5x3x4x7xf64>
// CHECK: %[[P:.*]] = loom.multiply %[[L]], %[[R]]
// CHECK: loom.reduce {{ *}}sum %[[P]] dims = [3] : (tensor<5x3x4x7xf64>) -> tensor<5x3x4xf64>
func.func @f64(%a: tensor<3x5x7xf64>, %b: tensor<5x4x7xf64>) -> tensor<5x3x4xf64> {
  %0 = loom.dot_general %a, %b batch = [1] x [0] contract = [2] x [2] : (tensor<3x5x7xf64>, tensor<5x4x7xf64>) -> tensor<5x3x4xf64>
  return %0 : tensor<5x3x4xf64>
}

// -----

// An outer product has no sum.
// CHECK-LABEL: func.func @outer
// CHECK: loom.multiply
// CHECK-NOT: loom.reduce
func.func @outer(%a: tensor<2xi32>, %b: tensor<3xi32>) -> tensor<2x3xi32> {
  %0 = loom.dot_general %a, %b batch = [] x [] contract = [] x [] : (tensor<2xi32>, tensor<3xi32>) -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}
