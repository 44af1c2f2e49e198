// RUN: gridloom-opt --loom-decompose-convolutions %s | FileCheck %s
// RUN: gridloom-opt --loom-decompose-convolutions=keep-library=true %s | FileCheck %s --check-prefix KEEP
// RUN: gridloom-opt --loom-decompose-convolutions=keep-forward=true %s | FileCheck %s --check-prefix FORWARD

// Columns multiplied by the weights; the result is transposed into place.
// CHECK-LABEL: func.func @general
func.func @general(%x: tensor<2x8x16x16xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<2x16x8x8xf32> {
  // CHECK: %[[PAD:.*]] = loom.pad %arg0 value = 0.000000e+00 : f32 low = [0, 0, 1, 1] high = [0, 0, 1, 1] interior = [0, 0, 0, 0] {{.*}} -> tensor<2x8x18x18xf32>
  // CHECK: %[[WINDOW:.*]] = loom.window %[[PAD]] dims = [2, 3] sizes = [3, 3] strides = [2, 2] dilations = [1, 1] {{.*}} -> tensor<2x8x8x8x3x3xf32>
  // CHECK: %[[MOVED:.*]] = loom.transpose %[[WINDOW]] [0, 1, 4, 5, 2, 3]
  // CHECK: %[[COLUMNS:.*]] = loom.reshape %[[MOVED]] {{.*}} -> tensor<2x72x64xf32>
  // CHECK: %[[WEIGHTS:.*]] = loom.reshape %arg1 {{.*}} -> tensor<16x72xf32>
  // CHECK: %[[DOT:.*]] = loom.dot_general %[[WEIGHTS]], %[[COLUMNS]] batch = [] x [] contract = [1] x [1] {{.*}} -> tensor<16x2x64xf32>
  // CHECK: loom.transpose %[[DOT]] [1, 0, 2]
  // CHECK: loom.reshape {{.*}} -> tensor<2x16x8x8xf32>
  %0 = loom.convolution %x, %w strides = [2, 2] low = [1, 1] high = [1, 1] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x16x16xf32>, tensor<16x8x3x3xf32>) -> tensor<2x16x8x8xf32>
  return %0 : tensor<2x16x8x8xf32>
}

// A window of one element needs no columns.
// CHECK-LABEL: func.func @pointwise
// CHECK-NOT: loom.window
// CHECK: loom.dot_general {{.*}} : (tensor<16x8xf32>, tensor<2x8x144xf32>) -> tensor<16x2x144xf32>
func.func @pointwise(%x: tensor<2x8x12x12xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x12x12xf32>, tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32>
  return %0 : tensor<2x16x12x12xf32>
}

// Groups become a batch of products.
// CHECK-LABEL: func.func @grouped
// CHECK: loom.dot_general {{.*}} batch = [0] x [1] contract = [2] x [2] : (tensor<4x4x18xf32>, tensor<2x4x18x100xf32>) -> tensor<4x4x2x100xf32>
func.func @grouped(%x: tensor<2x8x12x12xf32>, %w: tensor<16x2x3x3xf32>) -> tensor<2x16x10x10xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 4
      : (tensor<2x8x12x12xf32>, tensor<16x2x3x3xf32>) -> tensor<2x16x10x10xf32>
  return %0 : tensor<2x16x10x10xf32>
}

// One filter per channel becomes a sum of products, without columns in memory.
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

// A window larger than the result is one product for the whole batch.
// CHECK-LABEL: func.func @large_window
// CHECK: %[[WINDOW:.*]] = loom.window {{.*}} -> tensor<5x4x3x3x7x6xf32>
// CHECK: %[[MOVED:.*]] = loom.transpose %[[WINDOW]] [0, 2, 3, 1, 4, 5]
// CHECK: %[[ROWS:.*]] = loom.reshape %[[MOVED]] {{.*}} -> tensor<45x168xf32>
// CHECK: %[[DOT:.*]] = loom.dot_general {{.*}}, %[[ROWS]] batch = [] x [] contract = [1] x [1] : (tensor<8x168xf32>, tensor<45x168xf32>) -> tensor<8x45xf32>
// CHECK: %[[RESULT:.*]] = loom.reshape %[[DOT]] : (tensor<8x45xf32>) -> tensor<8x5x3x3xf32>
// CHECK: loom.transpose %[[RESULT]] [1, 0, 2, 3]
func.func @large_window(%x: tensor<5x4x7x6xf32>, %w: tensor<8x4x7x6xf32>) -> tensor<5x8x3x3xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<5x4x7x6xf32>, tensor<8x4x7x6xf32>) -> tensor<5x8x3x3xf32>
  return %0 : tensor<5x8x3x3xf32>
}

// A window of one element is the input, or every second element of it.
// CHECK-LABEL: func.func @whole_window
// CHECK-NOT: loom.window
// CHECK: %[[ROWS:.*]] = loom.reshape %arg0 : (tensor<5x4x7x6xf32>) -> tensor<5x168xf32>
// CHECK: loom.dot_general {{.*}}, %[[ROWS]]
// CHECK: %[[PART:.*]] = loom.slice %arg2 [0, 0, 0, 0] to [5, 4, 5, 7] by [1, 1, 2, 2] : (tensor<5x4x5x7xf32>) -> tensor<5x4x3x4xf32>
// CHECK: %[[FEWER:.*]] = loom.reshape %[[PART]] {{.*}} -> tensor<5x48xf32>
// CHECK: loom.dot_general {{.*}}, %[[FEWER]]
func.func @whole_window(%x: tensor<5x4x7x6xf32>, %w: tensor<8x4x7x6xf32>, %y: tensor<5x4x5x7xf32>, %v: tensor<8x4x3x4xf32>) -> (tensor<5x8x1x1xf32>, tensor<5x8x1x1xf32>) {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<5x4x7x6xf32>, tensor<8x4x7x6xf32>) -> tensor<5x8x1x1xf32>
  %1 = loom.convolution %y, %v strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [2, 2] groups = 1
      : (tensor<5x4x5x7xf32>, tensor<8x4x3x4xf32>) -> tensor<5x8x1x1xf32>
  return %0, %1 : tensor<5x8x1x1xf32>, tensor<5x8x1x1xf32>
}

// With few positions, rows of one image do not fill vectors: those of all images become one row.
// CHECK-LABEL: func.func @few_positions
// CHECK: %[[WINDOW:.*]] = loom.window {{.*}} -> tensor<4x8x7x7x3x3xf32>
// CHECK: %[[COLUMNS:.*]] = loom.reshape {{.*}} : (tensor<8x3x3x4x7x7xf32>) -> tensor<72x196xf32>
// CHECK: %[[DOT:.*]] = loom.dot_general {{.*}}, %[[COLUMNS]] batch = [] x [] contract = [1] x [0] : (tensor<16x72xf32>, tensor<72x196xf32>) -> tensor<16x196xf32>
// CHECK: %[[RESULT:.*]] = loom.reshape %[[DOT]] : (tensor<16x196xf32>) -> tensor<16x4x7x7xf32>
// CHECK: loom.transpose %[[RESULT]] [1, 0, 2, 3]
func.func @few_positions(%x: tensor<4x8x7x7xf32>, %w: tensor<16x8x3x3xf32>) -> tensor<4x16x7x7xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<4x8x7x7xf32>, tensor<16x8x3x3xf32>) -> tensor<4x16x7x7xf32>
  return %0 : tensor<4x16x7x7xf32>
}

// Zeros between elements are not multiplied: every second position reads every second element of the
// window.
// CHECK-LABEL: func.func @transposed
// CHECK: loom.slice %arg1 [0, 0, 0] to [16, 8, 3] by [1, 1, 2] : (tensor<16x8x3xf32>) -> tensor<16x8x2xf32>
// CHECK: loom.pad {{.*}} low = [0, 0, 0] high = [0, 0, 0] interior = [0, 0, 1] : (tensor<2x16x13xf32>) -> tensor<2x16x25xf32>
// CHECK: loom.slice %arg1 [0, 0, 1] to [16, 8, 3] by [1, 1, 2] : (tensor<16x8x3xf32>) -> tensor<16x8x1xf32>
// CHECK: loom.pad {{.*}} low = [0, 0, 1] high = [0, 0, 1] interior = [0, 0, 1] : (tensor<2x16x12xf32>) -> tensor<2x16x25xf32>
// CHECK: loom.add
func.func @transposed(%x: tensor<2x8x12xf32>, %w: tensor<16x8x3xf32>) -> tensor<2x16x25xf32> {
  %0 = loom.convolution %x, %w strides = [1] low = [2] high = [2] input_dilations = [2]
      dilations = [1] groups = 1 : (tensor<2x8x12xf32>, tensor<16x8x3xf32>) -> tensor<2x16x25xf32>
  return %0 : tensor<2x16x25xf32>
}

// A window of one element reads only one phase; the others are zero.
// CHECK-LABEL: func.func @pointwise_transposed
// CHECK: loom.dot_general {{.*}} -> tensor<16x98xf32>
// CHECK-NOT: loom.dot_general
// CHECK: loom.pad {{.*}} low = [0, 0, 0, 0] high = [0, 0, 1, 1] interior = [0, 0, 1, 1] : (tensor<2x16x7x7xf32>) -> tensor<2x16x14x14xf32>
// CHECK-NOT: loom.add
func.func @pointwise_transposed(%x: tensor<2x8x7x7xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<2x16x14x14xf32> {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [1, 1] input_dilations = [2, 2]
      dilations = [1, 1] groups = 1 : (tensor<2x8x7x7xf32>, tensor<16x8x1x1xf32>) -> tensor<2x16x14x14xf32>
  return %0 : tensor<2x16x14x14xf32>
}

// With a stride as well, the zeros are inserted.
// CHECK-LABEL: func.func @transposed_strided
// CHECK: loom.pad {{.*}} low = [0, 0, 2] high = [0, 0, 2] interior = [0, 0, 1] : (tensor<2x8x12xf32>) -> tensor<2x8x27xf32>
func.func @transposed_strided(%x: tensor<2x8x12xf32>, %w: tensor<16x8x3xf32>) -> tensor<2x16x13xf32> {
  %0 = loom.convolution %x, %w strides = [2] low = [2] high = [2] input_dilations = [2]
      dilations = [1] groups = 1 : (tensor<2x8x12xf32>, tensor<16x8x3xf32>) -> tensor<2x16x13xf32>
  return %0 : tensor<2x16x13xf32>
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

// Convolutions that the library supports stay; it does not support f64, or zeros between the input's elements.
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

// oneDNN computes f32 only, no gradients, and nothing in training steps.
// FORWARD-LABEL: func.func @large_window
// FORWARD-NOT: loom.convolution
// FORWARD-LABEL: func.func @whole_window
// FORWARD-LABEL: func.func @kept
// FORWARD: loom.window {{.*}}bf16
// FORWARD: loom.window {{.*}}f64
// FORWARD: loom.convolution {{.*}} -> tensor<1x4x7xf32>
// KEEP-LABEL: func.func @step
// FORWARD-LABEL: func.func @step
// FORWARD-NOT: loom.convolution
// FORWARD-LABEL: func.func @evaluation
// FORWARD: loom.convolution
func.func @step(%x: tensor<2x8x12x12xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32> attributes {loom.entry = "train_step"} {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x12x12xf32>, tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32>
  return %0 : tensor<2x16x12x12xf32>
}
func.func @evaluation(%x: tensor<2x8x12x12xf32>, %w: tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32> attributes {loom.entry = "eval"} {
  %0 = loom.convolution %x, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1]
      dilations = [1, 1] groups = 1
      : (tensor<2x8x12x12xf32>, tensor<16x8x1x1xf32>) -> tensor<2x16x12x12xf32>
  return %0 : tensor<2x16x12x12xf32>
}
