// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // P-CV1
  // expected-error @below {{a convolution of 3 dimensions has lists of 2}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 6] by [24, 6, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // P-CV2
  // expected-error @below {{has 1 strides, dilations or paddings, or one below 0}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 6] by [24, 6, 1],
      strides = [1], low = [-1], high = [0], dilations = [1], groups = 1> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // P-CV3
  // expected-error @below {{2 groups, 4 input channels in 1 images and weights of 4 x 4 do not give 4 channels in 1}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 6] by [24, 6, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 2> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // P-CV3
  // expected-error @below {{7 positions of a window of 3 in 8 elements; expected 6}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 7] by [24, 6, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x7xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // P-CV4
  // expected-error @below {{a convolution ends with relu or no activation, not gelu}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 6] by [24, 6, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1 epilogue = <activation = gelu>> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) {
  // expected-error @below {{has other operands than its descriptor says}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 6] by [24, 6, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1 epilogue = <bias = true>> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf16>) {
  // P-AT1
  // expected-error @below {{an attention has 6 sizes and 4 strides of a mask, not 5 and 0}}
  %0 = plan.attention %q, %q, %q <sizes = [2, 4, 8, 8, 16], query = [512, 128, 16, 1], key = [512, 128, 16, 1],
      value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 0.25 : f64>
      : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf16>) {
  // P-AT2
  // expected-error @below {{an attention's operands have contiguous rows, not a last stride of 8}}
  %0 = plan.attention %q, %q, %q <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1], key = [512, 128, 1, 8],
      value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 0.25 : f64>
      : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf16>, %m: tensor<8xf16>) {
  // expected-error @below {{has other operands than its descriptor says}}
  %0 = plan.attention %q, %q, %q mask %m <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1], key = [512, 128, 16, 1],
      value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 0.25 : f64>
      : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<8xf16>) -> tensor<2x4x8x16xf16>
  return
}
