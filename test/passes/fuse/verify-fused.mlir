// RUN: gridloom-opt %s --split-input-file --plan-verify-fused --verify-diagnostics

func.func @left(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error-re @+1 {{loom.exp at '{{.*}}' is in no kernel, library call or group; run plan-form-kernels}}
  %0 = loom.exp %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

loom.weight @w : tensor<8xf32> from <"", offset = 0, bytes = 32>
plan.kernel @k elementwise {
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

func.func @bias(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>) -> tensor<4x16xf32> {
  // expected-error @+1 {{epilogue bias with no bias}}
  %0 = plan.matmul %x, %w <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1] epilogue = bias> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
plan.kernel @k elementwise {
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
