// RUN: gridloom-opt %s --mlir-print-local-scope | gridloom-opt --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: func.func @convolution
func.func @convolution(%x: tensor<1x3x8x8xf32>, %w: tensor<16x3x3x3xf32>, %b: tensor<16xf32>, %r: tensor<1x16x4x4xf32>) -> tensor<1x16x4x4xf32> {
  // CHECK: plan.convolution %arg0, %arg1 bias %arg2 residual %arg3 <input = [1, 3, 8, 8] by [192, 64, 8, 1], weight = [16, 3, 3, 3] by [27, 9, 3, 1], output = [1, 16, 4, 4] by [256, 16, 4, 1], strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1 epilogue = <bias = true, residual = true, activation = relu> tf32 = true>
  %0 = plan.convolution %x, %w bias %b residual %r <input = [1, 3, 8, 8] by [192, 64, 8, 1],
      weight = [16, 3, 3, 3] by [27, 9, 3, 1], output = [1, 16, 4, 4] by [256, 16, 4, 1], strides = [2, 2],
      low = [1, 1], high = [1, 1], dilations = [1, 1], groups = 1 epilogue = <bias = true, residual = true, activation = relu> tf32 = true>
      : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>, tensor<16xf32>, tensor<1x16x4x4xf32>) -> tensor<1x16x4x4xf32>
  return %0 : tensor<1x16x4x4xf32>
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x4x8x16xf16>, %m: tensor<2x8xf16>) -> tensor<2x4x8x16xf16> {
  // CHECK: plan.attention %arg0, %arg0, %arg0 mask %arg1 <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1], key = [512, 128, 16, 1], value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 2.500000e-01 : f64 mask = [8, 0, 0, 1] causal = true>
  %0 = plan.attention %q, %q, %q mask %m <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1],
      key = [512, 128, 16, 1], value = [512, 128, 16, 1], out = [512, 128, 16, 1],
      scale = 0.25 : f64 mask = [8, 0, 0, 1] causal = true>
      : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x8xf16>) -> tensor<2x4x8x16xf16>
  return %0 : tensor<2x4x8x16xf16>
}
