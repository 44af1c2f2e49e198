// RUN: gridloom-opt %s --split-input-file --plan-form-kernels | FileCheck %s

// A reduction of windows does not store them, and joins the following operations; the operand that
// it reads repeatedly is computed once, with its padding.
// CHECK-LABEL: func.func @pool
// CHECK-NEXT: %[[PADDED:.*]] = plan.call @k_exp_pad_0(%arg0)
// CHECK-NEXT: plan.call @k_window_reduce_add_0(%[[PADDED]], %arg1)
// CHECK-NEXT: return
func.func @pool(%x: tensor<2x4x8xf32>, %y: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
  %0 = loom.exp %x : tensor<2x4x8xf32>
  %1 = loom.pad %0 value = 0.0 : f32 low = [0, 0, 1] high = [0, 0, 1] interior = [0, 0, 0]
      : (tensor<2x4x8xf32>) -> tensor<2x4x10xf32>
  %2 = loom.window %1 dims = [2] sizes = [3] strides = [1] dilations = [1]
      : (tensor<2x4x10xf32>) -> tensor<2x4x8x3xf32>
  %3 = loom.reduce max %2 dims = [3] : (tensor<2x4x8x3xf32>) -> tensor<2x4x8xf32>
  %4 = loom.add %3, %y : tensor<2x4x8xf32>
  return %4 : tensor<2x4x8xf32>
}

// -----

// The same holds for a sum of windows' products with weights.
// CHECK-LABEL: func.func @channels
// CHECK-NEXT: plan.call @k_window_multiply_reduce_0(%arg0, %arg1)
// CHECK-NEXT: return
func.func @channels(%x: tensor<2x4x10xf32>, %w: tensor<4x3xf32>) -> tensor<2x4x8xf32> {
  %0 = loom.window %x dims = [2] sizes = [3] strides = [1] dilations = [1]
      : (tensor<2x4x10xf32>) -> tensor<2x4x8x3xf32>
  %1 = loom.broadcast %w dims = [1, 3] : (tensor<4x3xf32>) -> tensor<2x4x8x3xf32>
  %2 = loom.multiply %0, %1 : tensor<2x4x8x3xf32>
  %3 = loom.reduce sum %2 dims = [3] : (tensor<2x4x8x3xf32>) -> tensor<2x4x8xf32>
  return %3 : tensor<2x4x8xf32>
}

// -----

// Columns are computed as they are read, but the input is not computed again for each of them.
// CHECK-LABEL: func.func @columns
// CHECK-NEXT: %[[X:.*]] = plan.call @k_exp_0(%arg0)
// CHECK-NEXT: plan.call @k_window_transpose_0(%[[X]])
// CHECK-NEXT: return
func.func @columns(%x: tensor<2x4x10xf32>) -> tensor<2x4x3x8xf32> {
  %0 = loom.exp %x : tensor<2x4x10xf32>
  %1 = loom.window %0 dims = [2] sizes = [3] strides = [1] dilations = [1]
      : (tensor<2x4x10xf32>) -> tensor<2x4x8x3xf32>
  %2 = loom.transpose %1 [0, 1, 3, 2] : (tensor<2x4x8x3xf32>) -> tensor<2x4x3x8xf32>
  return %2 : tensor<2x4x3x8xf32>
}
