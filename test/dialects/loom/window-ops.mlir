// RUN: gridloom-opt %s | gridloom-opt | FileCheck %s

// CHECK-LABEL: func.func @pad
func.func @pad(%x: tensor<2x3xf32>, %n: tensor<0x3xi8>) -> (tensor<2x10xf32>, tensor<3x3xi8>) {
  // CHECK: loom.pad %{{.*}} value = 5.000000e-01 : f32 low = [0, 1] high = [0, 2] interior = [0, 2]
  %0 = loom.pad %x value = 0.5 : f32 low = [0, 1] high = [0, 2] interior = [0, 2]
      : (tensor<2x3xf32>) -> tensor<2x10xf32>
  // Zero elements have nothing between them.
  %1 = loom.pad %n value = -1 : i8 low = [1, 0] high = [2, 0] interior = [4, 0]
      : (tensor<0x3xi8>) -> tensor<3x3xi8>
  return %0, %1 : tensor<2x10xf32>, tensor<3x3xi8>
}

// CHECK-LABEL: func.func @window
func.func @window(%x: tensor<2x9x4xf32>) -> tensor<2x3x2x4x2xf32> {
  // CHECK: loom.window %{{.*}} dims = [1, 2] sizes = [4, 2] strides = [2, 2] dilations = [1, 1]
  %0 = loom.window %x dims = [1, 2] sizes = [4, 2] strides = [2, 2] dilations = [1, 1]
      : (tensor<2x9x4xf32>) -> tensor<2x3x2x4x2xf32>
  return %0 : tensor<2x3x2x4x2xf32>
}

// CHECK-LABEL: func.func @convolution
func.func @convolution(%x: tensor<1x4x8x8xf32>, %w: tensor<16x2x3x3xf32>) -> tensor<1x16x4x5xf32> {
  // CHECK: loom.convolution %{{.*}}, %{{.*}} strides = [2, 2] low = [1, 1] high = [1, 2] input_dilations = [1, 1] dilations = [1, 1] groups = 2
  %0 = loom.convolution %x, %w strides = [2, 2] low = [1, 1] high = [1, 2] input_dilations = [1, 1]
      dilations = [1, 1] groups = 2
      : (tensor<1x4x8x8xf32>, tensor<16x2x3x3xf32>) -> tensor<1x16x4x5xf32>
  return %0 : tensor<1x16x4x5xf32>
}

// CHECK-LABEL: func.func @reduce_window
func.func @reduce_window(%x: tensor<1x4x8xi32>) -> tensor<1x4x4xi32> {
  // CHECK: loom.reduce_window {{ ?}}max %{{.*}} dims = [2] sizes = [3] strides = [2] low = [1] high = [0] dilations = [1]
  %0 = loom.reduce_window max %x dims = [2] sizes = [3] strides = [2] low = [1] high = [0]
      dilations = [1] : (tensor<1x4x8xi32>) -> tensor<1x4x4xi32>
  return %0 : tensor<1x4x4xi32>
}
