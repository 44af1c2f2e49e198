// RUN: gridloom-opt %s --plan-form-convolutions --mlir-print-local-scope | FileCheck %s
// RUN: gridloom-opt %s --plan-form-convolutions=epilogues=false --mlir-print-local-scope | FileCheck %s --check-prefix PLAIN

// Bias and relu become part of the call.
// CHECK-LABEL: func.func @bias_relu
// CHECK: %[[Y:.*]] = plan.convolution %arg0, %arg1 bias %arg2
// CHECK-SAME: <input = [1, 3, 8, 8] by [192, 64, 8, 1], weight = [4, 3, 3, 3] by [27, 9, 3, 1], output = [1, 4, 4, 4] by [64, 16, 4, 1],
// CHECK-SAME: strides = [2, 2], low = [1, 0], high = [1, 1], dilations = [1, 1], groups = 1 epilogue = <bias = true, activation = relu>>
// CHECK-SAME: (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>, tensor<4xf32>) -> tensor<1x4x4x4xf32>
// CHECK-NEXT: return %[[Y]]
func.func @bias_relu(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) -> tensor<1x4x4x4xf32> {
  %zero = loom.constant dense<0.0> : tensor<1x4x4x4xf32>
  %0 = loom.convolution %x, %w strides = [2, 2] low = [1, 0] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1]
      groups = 1 : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<1x4x4x4xf32>
  %2 = loom.add %0, %1 : tensor<1x4x4x4xf32>
  %3 = loom.maximum %2, %zero : tensor<1x4x4x4xf32>
  return %3 : tensor<1x4x4x4xf32>
}

// If two convolutions are added, one becomes the other's residual.
// CHECK-LABEL: func.func @residual
// CHECK: %[[B:.*]] = plan.convolution %arg1, %arg2 bias %arg3 {{.*}} epilogue = <bias = true>> :
// CHECK: %[[A:.*]] = plan.convolution %arg0, %arg2 bias %arg3 residual %[[B]] {{.*}} epilogue = <bias = true, residual = true, activation = relu>>
// CHECK: return %[[A]]
func.func @residual(%x: tensor<2x4x8xf32>, %y: tensor<2x4x8xf32>, %w: tensor<4x4x1xf32>, %b: tensor<4xf32>) -> tensor<2x4x8xf32> {
  %zero = loom.constant dense<0.0> : tensor<2x4x8xf32>
  %bias = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<2x4x8xf32>
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1
      : (tensor<2x4x8xf32>, tensor<4x4x1xf32>) -> tensor<2x4x8xf32>
  %1 = loom.add %0, %bias : tensor<2x4x8xf32>
  %2 = loom.convolution %y, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1
      : (tensor<2x4x8xf32>, tensor<4x4x1xf32>) -> tensor<2x4x8xf32>
  %3 = loom.add %2, %bias : tensor<2x4x8xf32>
  %4 = loom.add %1, %3 : tensor<2x4x8xf32>
  %5 = loom.maximum %4, %zero : tensor<2x4x8xf32>
  return %5 : tensor<2x4x8xf32>
}

// A following kernel adds the bias at no cost; values with other readers are not part of the call.
// CHECK-LABEL: func.func @kernel
// CHECK: %[[Y:.*]] = plan.convolution %arg0, %arg1 <{{.*}} groups = 1>
// CHECK: loom.add %[[Y]]
// CHECK: loom.logistic
func.func @kernel(%x: tensor<2x4x8xf32>, %w: tensor<4x4x1xf32>, %b: tensor<4xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %bias = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<2x4x8xf32>
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1
      : (tensor<2x4x8xf32>, tensor<4x4x1xf32>) -> tensor<2x4x8xf32>
  %1 = loom.add %0, %bias : tensor<2x4x8xf32>
  %2 = loom.logistic %1 : tensor<2x4x8xf32>
  return %2, %0 : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

// Vectors along another dimension are no bias; the library supports 16-bit floats and TF32 too.
// CHECK-LABEL: func.func @other_vector
// CHECK: plan.convolution %arg0, %arg1 <{{.*}} groups = 2>
// CHECK: loom.add
// CHECK: plan.convolution {{.*}} tf32 = true>
func.func @other_vector(%x: tensor<4x4x4xf16>, %w: tensor<4x2x1xf16>, %b: tensor<4xf16>, %z: tensor<4x4x4xf32>, %v: tensor<4x4x1xf32>) -> (tensor<4x4x4xf16>, tensor<4x4x4xf32>) {
  %bias = loom.broadcast %b dims = [2] : (tensor<4xf16>) -> tensor<4x4x4xf16>
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 2
      : (tensor<4x4x4xf16>, tensor<4x2x1xf16>) -> tensor<4x4x4xf16>
  %1 = loom.add %0, %bias : tensor<4x4x4xf16>
  %2 = loom.convolution %z, %v strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1 tf32
      : (tensor<4x4x4xf32>, tensor<4x4x1xf32>) -> tensor<4x4x4xf32>
  return %1, %2 : tensor<4x4x4xf16>, tensor<4x4x4xf32>
}

// Without epilogues in the library the bias joins if no kernel follows; a kernel for relu adds it.
// PLAIN-LABEL: func.func @bias_relu
// PLAIN: %[[P:.*]] = plan.convolution %arg0, %arg1 <
// PLAIN: loom.add %[[P]]
// PLAIN: loom.maximum
// PLAIN-LABEL: func.func @bias_only
// PLAIN: %[[Q:.*]] = plan.convolution %arg0, %arg1 bias %arg2
// PLAIN-NEXT: return %[[Q]]
func.func @bias_only(%x: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) -> tensor<1x4x4x4xf32> {
  %0 = loom.convolution %x, %w strides = [2, 2] low = [1, 0] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1]
      groups = 1 : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x4x4xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<1x4x4x4xf32>
  %2 = loom.add %0, %1 : tensor<1x4x4x4xf32>
  return %2 : tensor<1x4x4x4xf32>
}
