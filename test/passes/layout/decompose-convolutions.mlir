// RUN: gridloom-opt --loom-decompose-convolutions %s | FileCheck %s
// RUN: gridloom-opt --loom-decompose-convolutions=keep-library=true %s | FileCheck %s --check-prefix KEEP

// Columns, multiplied by the weights; the result lies as it should.
// CHECK-LABEL: func.func @general
func.func @general(%x: tensor<2x8x12x12xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<2x16x6x6xf32> {
  // CHECK: %[[PAD:.*]] = loom.pad %arg0 value = 0.000000e+00 : f32 low = [0, 0, 1, 1] high = [0, 0, 1, 1] interior = [0, 0, 0, 0] {{.*}} -> tensor<2x8x14x14xf32>
  // CHECK: %[[WINDOW:.*]] = loom.window %[[PAD]] dims = [2, 3] sizes = [3, 3] strides = [2, 2] dilations = [1, 1] {{.*}} -> tensor<2x8x6x6x3x3xf32>
  // CHECK: %[[MOVED:.*]] = loom.transpose %[[WINDOW]] [0, 1, 4, 5, 2, 3]
  // CHECK: %[[COLUMNS:.*]] = loom.reshape %[[MOVED]] {{.*}} -> tensor<2x72x36xf32>
  // CHECK: %[[WEIGHTS:.*]] = loom.reshape %arg1 {{.*}} -> tensor<16x72xf32>
  // CHECK: %[[DOT:.*]] = loom.dot_general %[[WEIGHTS]], %[[COLUMNS]] batch = [] x [] contract = [1] x [1] {{.*}} -> tensor<16x2x36xf32>
  // CHECK: loom.transpose %[[DOT]] [1, 0, 2]
  // CHECK: loom.reshape {{.*}} -> tensor<2x16x6x6xf32>
  %0 = loom.convolution %x, %w strides = [2, 2] low = [1, 1] high = [1, 1] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x12x12xf32>, tensor<16x8x3x3xf32>) -> tensor<2x16x6x6xf32>
  return %0 : tensor<2x16x6x6xf32>
}

// A window of one element has no columns.
// CHECK-LABEL: func.func @pointwise
// CHECK-NOT: loom.window
// CHECK: loom.dot_general {{.*}} : (tensor<16x8xf32>, tensor<2x8x144xf32>) -> tensor<16x2x144xf32>
func.func @pointwise(%x: tensor<2x8x12x12xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x12x12xf32>, tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32>
  return %0 : tensor<2x16x12x12xf32>
}

// Groups are a batch of products.
// CHECK-LABEL: func.func @grouped
// CHECK: loom.dot_general {{.*}} batch = [0] x [1] contract = [2] x [2] : (tensor<4x4x18xf32>, tensor<2x4x18x100xf32>) -> tensor<4x4x2x100xf32>
func.func @grouped(%x: tensor<2x8x12x12xf32>, %w: tensor<16x2x3x3xf32>) -> tensor<2x16x10x10xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 4
      : (tensor<2x8x12x12xf32>, tensor<16x2x3x3xf32>) -> tensor<2x16x10x10xf32>
  return %0 : tensor<2x16x10x10xf32>
}

// A filter per channel is a sum of products, without columns in memory.
// CHECK-LABEL: func.func @channels
// CHECK: %[[WINDOW:.*]] = loom.window %arg0
// CHECK: %[[WEIGHTS:.*]] = loom.broadcast {{.*}} dims = [1, 4, 5] : (tensor<8x3x3xf32>) -> tensor<2x8x10x10x3x3xf32>
// CHECK: %[[PRODUCTS:.*]] = loom.multiply %[[WINDOW]], %[[WEIGHTS]]
// CHECK: loom.reduce sum %[[PRODUCTS]] dims = [4, 5]
func.func @channels(%x: tensor<2x8x12x12xf32>, %w: tensor<8x1x3x3xf32>) -> tensor<2x8x10x10xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 8
      : (tensor<2x8x12x12xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x10x10xf32>
  return %0 : tensor<2x8x10x10xf32>
}

// The zeros of a transposed convolution are put in.
// CHECK-LABEL: func.func @transposed
// CHECK: loom.pad {{.*}} low = [0, 0, 2] high = [0, 0, 2] interior = [0, 0, 1] : (tensor<2x8x12xf32>) -> tensor<2x8x27xf32>
func.func @transposed(%x: tensor<2x8x12xf32>, %w: tensor<16x8x3xf32>) -> tensor<2x16x25xf32> {
  %0 = loom.convolution %x, %w strides = [1] low = [2] high = [2] input_dilations = [2]
      dilations = [1] groups = 1 : (tensor<2x8x12xf32>, tensor<16x8x3xf32>) -> tensor<2x16x25xf32>
  return %0 : tensor<2x16x25xf32>
}

// CHECK-LABEL: func.func @pool
// CHECK: %[[PAD:.*]] = loom.pad %arg0 value = 0xFF800000 : f32 low = [0, 0, 1] high = [0, 0, 0]
// CHECK: %[[WINDOW:.*]] = loom.window %[[PAD]] dims = [2] sizes = [3] strides = [2] dilations = [1] {{.*}} -> tensor<1x4x4x3xf32>
// CHECK: loom.reduce max %[[WINDOW]] dims = [3]
func.func @pool(%x: tensor<1x4x8xf32>) -> tensor<1x4x4xf32> {
  %0 = loom.reduce_window max %x dims = [2] sizes = [3] strides = [2] low = [1] high = [0]
      dilations = [1] : (tensor<1x4x8xf32>) -> tensor<1x4x4xf32>
  return %0 : tensor<1x4x4xf32>
}

// What the library has stays; f64, and zeros between the input's elements, it has not.
// KEEP-LABEL: func.func @kept
// KEEP: loom.convolution {{.*}} -> tensor<1x4x6xbf16>
// KEEP: loom.window {{.*}} -> tensor<1x4x6x3xf64>
// KEEP: loom.pad {{.*}} interior = [0, 0, 1]
// KEEP-NOT: loom.convolution
func.func @kept(%x: tensor<1x4x8xbf16>, %w: tensor<4x4x3xbf16>, %y: tensor<1x4x8xf64>, %v: tensor<4x4x3xf64>, %z: tensor<1x4x8xf32>, %u: tensor<4x4x3xf32>)
    -> (tensor<1x4x6xbf16>, tensor<1x4x6xf64>, tensor<1x4x13xf32>) {
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1
      : (tensor<1x4x8xbf16>, tensor<4x4x3xbf16>) -> tensor<1x4x6xbf16>
  %1 = loom.convolution %y, %v strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1
      : (tensor<1x4x8xf64>, tensor<4x4x3xf64>) -> tensor<1x4x6xf64>
  %2 = loom.convolution %z, %u strides = [1] low = [0] high = [0] input_dilations = [2] dilations = [1] groups = 1
      : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x13xf32>
  return %0, %1, %2 : tensor<1x4x6xbf16>, tensor<1x4x6xf64>, tensor<1x4x13xf32>
}
