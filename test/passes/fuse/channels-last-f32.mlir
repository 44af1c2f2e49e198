// RUN: gridloom-opt %s --plan-channels-last=f32=true --mlir-print-local-scope | FileCheck %s

// Weights stay as they are: the library packs them. Between the first call and the last reduction
// nothing is transposed: not for padding, nor a pool's windows, nor the mean over all positions.
// CHECK-LABEL: func.func @network
// CHECK: %[[X:.*]] = loom.transpose %arg0 [0, 2, 3, 1] : (tensor<2x3x6x8xf32>) -> tensor<2x6x8x3xf32>
// CHECK: %[[A:.*]] = plan.convolution %[[X]], %arg1 <input = [2, 3, 6, 8] by [144, 1, 24, 3], weight = [4, 3, 1, 1] by [3, 1, 1, 1], output = [2, 4, 6, 8] by [192, 1, 32, 4]
// CHECK-NOT: loom.transpose
// CHECK: %[[P:.*]] = loom.pad %[[A]] value = 0xFF800000 : f32 low = [0, 1, 0, 0] high = [0, 0, 1, 0] interior = [0, 0, 0, 0] : (tensor<2x6x8x4xf32>) -> tensor<2x7x9x4xf32>
// CHECK: %[[W:.*]] = loom.window %[[P]] dims = [1, 2] sizes = [3, 2] strides = [2, 1] dilations = [1, 1] : (tensor<2x7x9x4xf32>) -> tensor<2x3x8x4x3x2xf32>
// CHECK: %[[M:.*]] = loom.reduce max %[[W]] dims = [4, 5] : (tensor<2x3x8x4x3x2xf32>) -> tensor<2x3x8x4xf32>
// CHECK: %[[B:.*]] = plan.convolution %[[M]], %arg2
// CHECK: %[[S:.*]] = loom.reduce sum %[[B]] dims = [1, 2] : (tensor<2x3x8x5xf32>) -> tensor<2x5xf32>
// CHECK-NOT: loom.transpose
// CHECK: return %[[S]]
func.func @network(%x: tensor<2x3x6x8xf32>, %v: tensor<4x3x1x1xf32>, %w: tensor<5x4x1x1xf32>) -> tensor<2x5xf32> {
  %0 = plan.convolution %x, %v <input = [2, 3, 6, 8] by [144, 48, 8, 1], weight = [4, 3, 1, 1] by [3, 1, 1, 1], output = [2, 4, 6, 8] by [192, 48, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<2x3x6x8xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x6x8xf32>
  %1 = loom.pad %0 value = 0xFF800000 : f32 low = [0, 0, 1, 0] high = [0, 0, 0, 1] interior = [0, 0, 0, 0] : (tensor<2x4x6x8xf32>) -> tensor<2x4x7x9xf32>
  %2 = loom.window %1 dims = [2, 3] sizes = [3, 2] strides = [2, 1] dilations = [1, 1] : (tensor<2x4x7x9xf32>) -> tensor<2x4x3x8x3x2xf32>
  %3 = loom.reduce max %2 dims = [4, 5] : (tensor<2x4x3x8x3x2xf32>) -> tensor<2x4x3x8xf32>
  %4 = plan.convolution %3, %w <input = [2, 4, 3, 8] by [96, 24, 8, 1], weight = [5, 4, 1, 1] by [4, 1, 1, 1], output = [2, 5, 3, 8] by [120, 24, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<2x4x3x8xf32>, tensor<5x4x1x1xf32>) -> tensor<2x5x3x8xf32>
  %5 = loom.reduce sum %4 dims = [2, 3] : (tensor<2x5x3x8xf32>) -> tensor<2x5xf32>
  return %5 : tensor<2x5xf32>
}

// Reductions of channels, of one spatial dimension or of fewer dimensions than a convolution stay.
// CHECK-LABEL: func.func @others
// CHECK: %[[Y:.*]] = loom.transpose %{{.*}} [0, 3, 1, 2]
// CHECK: loom.reduce sum %[[Y]] dims = [1]
// CHECK: loom.reduce sum %[[Y]] dims = [3]
// CHECK: loom.reduce sum %arg2 dims = [0]
func.func @others(%x: tensor<2x3x6x8xf32>, %v: tensor<4x3x1x1xf32>, %z: tensor<3xf32>) -> (tensor<2x6x8xf32>, tensor<2x4x6xf32>, tensor<f32>) {
  %0 = plan.convolution %x, %v <input = [2, 3, 6, 8] by [144, 48, 8, 1], weight = [4, 3, 1, 1] by [3, 1, 1, 1], output = [2, 4, 6, 8] by [192, 48, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<2x3x6x8xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x6x8xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<2x4x6x8xf32>) -> tensor<2x6x8xf32>
  %2 = loom.reduce sum %0 dims = [3] : (tensor<2x4x6x8xf32>) -> tensor<2x4x6xf32>
  %3 = loom.reduce sum %z dims = [0] : (tensor<3xf32>) -> tensor<f32>
  return %1, %2, %3 : tensor<2x6x8xf32>, tensor<2x4x6xf32>, tensor<f32>
}

// Results that are joined or cut stay as well; what is joined with a tensor that has its channels first does not.
// CHECK-LABEL: func.func @joined
// CHECK: %[[A:.*]] = plan.convolution
// CHECK: %[[B:.*]] = plan.convolution
// CHECK-NOT: loom.transpose
// CHECK: %[[S:.*]] = loom.slice %[[B]] [0, 1, 2, 0] to [2, 6, 8, 3] by [1, 1, 2, 1] : (tensor<2x6x8x4xf32>) -> tensor<2x5x3x3xf32>
// CHECK: %[[T:.*]] = loom.slice %[[A]] [0, 0, 0, 0] to [2, 5, 3, 4] by [1, 1, 1, 1] : (tensor<2x6x8x4xf32>) -> tensor<2x5x3x4xf32>
// CHECK: %[[J:.*]] = loom.concatenate %[[S]], %[[T]] dim = 3 : (tensor<2x5x3x3xf32>, tensor<2x5x3x4xf32>) -> tensor<2x5x3x7xf32>
// CHECK: loom.reduce max %[[J]] dims = [1, 2]
// CHECK: loom.concatenate %{{.*}}, %arg0 dim = 1 : (tensor<2x4x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x7x6x8xf32>
func.func @joined(%x: tensor<2x3x6x8xf32>, %v: tensor<4x3x1x1xf32>, %w: tensor<4x3x1x1xf32>) -> (tensor<2x7xf32>, tensor<2x7x6x8xf32>) {
  %0 = plan.convolution %x, %v <input = [2, 3, 6, 8] by [144, 48, 8, 1], weight = [4, 3, 1, 1] by [3, 1, 1, 1], output = [2, 4, 6, 8] by [192, 48, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<2x3x6x8xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x6x8xf32>
  %1 = plan.convolution %x, %w <input = [2, 3, 6, 8] by [144, 48, 8, 1], weight = [4, 3, 1, 1] by [3, 1, 1, 1], output = [2, 4, 6, 8] by [192, 48, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<2x3x6x8xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x6x8xf32>
  %2 = loom.slice %1 [0, 0, 1, 2] to [2, 3, 6, 8] by [1, 1, 1, 2] : (tensor<2x4x6x8xf32>) -> tensor<2x3x5x3xf32>
  %3 = loom.slice %0 [0, 0, 0, 0] to [2, 4, 5, 3] by [1, 1, 1, 1] : (tensor<2x4x6x8xf32>) -> tensor<2x4x5x3xf32>
  %4 = loom.concatenate %2, %3 dim = 1 : (tensor<2x3x5x3xf32>, tensor<2x4x5x3xf32>) -> tensor<2x7x5x3xf32>
  %5 = loom.reduce max %4 dims = [2, 3] : (tensor<2x7x5x3xf32>) -> tensor<2x7xf32>
  %6 = loom.concatenate %0, %x dim = 1 : (tensor<2x4x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x7x6x8xf32>
  return %5, %6 : tensor<2x7xf32>, tensor<2x7x6x8xf32>
}
