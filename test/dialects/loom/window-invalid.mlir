// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // L-PD1
  // expected-error @below {{low has 1 numbers, expected 2}}
  %0 = loom.pad %x value = 0.0 : f32 low = [1] high = [0, 0] interior = [0, 0] : (tensor<2x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-PD1
  // expected-error @below {{high has -1, expected at least 0}}
  %0 = loom.pad %x value = 0.0 : f32 low = [1, 0] high = [0, -1] interior = [0, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-PD2
  // expected-error @below {{value is 0 : i32 for elements of type 'f32'}}
  %0 = loom.pad %x value = 0 : i32 low = [1, 0] high = [0, 0] interior = [0, 0] : (tensor<2x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-PD3
  // expected-error @below {{result is 'tensor<3x3xf32>', expected 'tensor<4x3xf32>'}}
  %0 = loom.pad %x value = 0.0 : f32 low = [1, 0] high = [0, 0] interior = [1, 0] : (tensor<2x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-WN1
  // expected-error @below {{dims must increase}}
  %0 = loom.window %x dims = [1, 0] sizes = [1, 1] strides = [1, 1] dilations = [1, 1] : (tensor<2x3xf32>) -> tensor<2x3x1x1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-WN1
  // expected-error @below {{strides has 0, expected at least 1}}
  %0 = loom.window %x dims = [1] sizes = [1] strides = [0] dilations = [1] : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-WN2
  // expected-error @below {{a window of 5 does not fit into a dimension of 3}}
  %0 = loom.window %x dims = [1] sizes = [3] strides = [1] dilations = [2] : (tensor<2x3xf32>) -> tensor<2x1x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-WN3
  // expected-error @below {{result is 'tensor<2x3x2xf32>', expected 'tensor<2x2x2xf32>'}}
  %0 = loom.window %x dims = [1] sizes = [2] strides = [1] dilations = [1] : (tensor<2x3xf32>) -> tensor<2x3x2xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<8x4x3x3xf32>) {
  // L-CV1
  // expected-error @below {{cannot convolve 'tensor<1x4x8xf32>' with 'tensor<8x4x3x3xf32>'}}
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1 : (tensor<1x4x8xf32>, tensor<8x4x3x3xf32>) -> tensor<1x8x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<8x4x3xf32>) {
  // L-CV2
  // expected-error @below {{input_dilations has 0, expected at least 1}}
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [0] dilations = [1] groups = 1 : (tensor<1x4x8xf32>, tensor<8x4x3xf32>) -> tensor<1x8x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<8x4x3xf32>) {
  // L-CV3
  // expected-error @below {{2 groups of 4 input channels and 8 output channels do not match 4 input channels}}
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 2 : (tensor<1x4x8xf32>, tensor<8x4x3xf32>) -> tensor<1x8x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<8x4x3xf32>) {
  // L-CV4
  // expected-error @below {{result is 'tensor<1x8x8xf32>', expected 'tensor<1x8x6xf32>'}}
  %0 = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1] groups = 1 : (tensor<1x4x8xf32>, tensor<8x4x3xf32>) -> tensor<1x8x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>) {
  // L-RW1
  // expected-error @below {{dim 3 is not a dimension of 'tensor<1x4x8xf32>'}}
  %0 = loom.reduce_window max %x dims = [3] sizes = [3] strides = [2] low = [1] high = [0] dilations = [1] : (tensor<1x4x8xf32>) -> tensor<1x4x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>) {
  // L-RW2
  // expected-error @below {{result is 'tensor<1x4x8xf32>', expected 'tensor<1x4x4xf32>'}}
  %0 = loom.reduce_window max %x dims = [2] sizes = [3] strides = [2] low = [1] high = [0] dilations = [1] : (tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}
