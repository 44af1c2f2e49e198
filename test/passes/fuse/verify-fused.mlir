// RUN: gridloom-opt %s --split-input-file --plan-verify-fused --verify-diagnostics

func.func @left(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error-re @+1 {{loom.exp at '{{.*}}' is in no kernel, library call or group; run plan-form-kernels}}
  %0 = loom.exp %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

loom.weight @w : tensor<8xf32> from <"", offset = 0, bytes = 32>
plan.kernel @k {
^bb0:
  // expected-error @+1 {{loom.get_weight cannot be in kernel 'k'; pass its value as an argument}}
  %0 = loom.get_weight @w : tensor<8xf32>
  loom.yield %0 : tensor<8xf32>
}

// -----

func.func @outside(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{strides of rhs reach element 240 of a tensor that has 128}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [32, 1], out = [16, 1]> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @nothing_to_fall_back_to(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{activation relu with no kernel to fall back to}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = <activation = relu>> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @types(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{multiplies 'bf16' and 'bf16' into 'f16'; operands are both f32, f16 or bf16, the result is the same or f32}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xf16>
  return %0 : tensor<4x16xf16>
}

// -----

func.func @residual(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{has no residual and an epilogue with one}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = <residual = true>> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @residual_type(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %r: tensor<16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{adds a residual of 'tensor<16xf32>' to 'tensor<4x16xf32>'}}
  %0 = plan.matmul %x, %w residual %r <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = <residual = true>> : (tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

func.func @bias(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{has no bias and an epilogue with one}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = <bias = true>> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
plan.kernel @k {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
func.func @padded() -> tensor<8x16xf32> {
  // expected-error @+1 {{weight @w has padded rows but feeds plan.call, which reads dense tensors; lay it out dense}}
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<8x16xf32>
  %0 = plan.call @k(%w) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

func.func @convolution(%x: tensor<1x4x8xf32>, %w: tensor<4x4x3xf32>) -> tensor<1x4x6xf32> {
  // expected-error @+1 {{strides of weight reach element 111 of a tensor that has 48}}
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [32, 4, 1], output = [1, 4, 6] by [24, 6, 1], strides = [1], low = [0], high = [0], dilations = [1], groups = 1> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x6xf32>
  return %0 : tensor<1x4x6xf32>
}

// -----

func.func @attention(%q: tensor<1x2x8x16xf16>, %m: tensor<8xf16>) -> tensor<1x2x8x16xf16> {
  // expected-error @+1 {{strides of mask reach element 64 of a tensor that has 8}}
  %0 = plan.attention %q, %q, %q mask %m <sizes = [1, 2, 8, 8, 16, 16], query = [256, 128, 16, 1], key = [256, 128, 16, 1], value = [256, 128, 16, 1], out = [256, 128, 16, 1], scale = 0.25 : f64 mask = [0, 0, 8, 1]> : (tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<1x2x8x16xf16>, tensor<8xf16>) -> tensor<1x2x8x16xf16>
  return %0 : tensor<1x2x8x16xf16>
}

// -----

// A slice is an address if its operand is computed and it starts at a multiple of 16 bytes.
func.func @address(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<1x16xf32> {
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = loom.slice %0 [2, 4] to [3, 12] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x8xf32>
  // expected-error-re @+1 {{loom.slice at '{{.*}}' is in no kernel, library call or group; run plan-form-kernels}}
  %2 = loom.slice %0 [2, 3] to [3, 11] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x8xf32>
  %3 = plan.matmul %1, %w <sizes = [1, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<1x8xf32>, tensor<8x16xf32>) -> tensor<1x16xf32>
  %4 = plan.matmul %2, %w <sizes = [1, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<1x8xf32>, tensor<8x16xf32>) -> tensor<1x16xf32>
  return %4 : tensor<1x16xf32>
}

// -----

func.func @bias_type(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf16>) -> tensor<4x16xf32> {
  // expected-error @+1 {{adds a bias of 'f16' to 'f32'}}
  %0 = plan.matmul %x, %w, %b <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = <bias = true>> : (tensor<4x8xf32>, tensor<8x16xf32>, tensor<16xf16>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}
