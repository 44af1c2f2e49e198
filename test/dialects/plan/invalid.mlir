// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{names no kernel: @missing}}
  %0 = plan.call @missing(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

plan.kernel @k {
^bb0(%a: tensor<4xf32>):
  %0 = loom.abs %a : tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}
func.func @f(%x: tensor<5xf32>) {
  // expected-error @below {{operands differ in type from the arguments of @k}}
  %0 = plan.call @k(%x) : (tensor<5xf32>) -> tensor<4xf32>
  return
}

// -----

plan.kernel @k {
^bb0(%a: tensor<4xf32>):
  %0 = loom.abs %a : tensor<4xf32>
  loom.yield %0 : tensor<4xf32>
}
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{results differ in type from what @k yields}}
  %0 = plan.call @k(%x) : (tensor<4xf32>) -> tensor<4xf64>
  return
}

// -----

func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{a matmul has at least M, N and K, not 2 sizes}}
  %0 = plan.matmul %x, %y <sizes = [4, 4], lhs = [1], rhs = [1], out = [1]> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // P-MM1
  // expected-error @below {{1 strides for 3 sizes; expected 2}}
  %0 = plan.matmul %x, %y <sizes = [2, 4, 3], lhs = [3], rhs = [4, 1], out = [4, 1]> : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // P-MM2
  // expected-error @below {{neither of the strides 6 and 2 is 1}}
  %0 = plan.matmul %x, %y <sizes = [2, 4, 3], lhs = [6, 2], rhs = [4, 1], out = [4, 1]> : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf16>) {
  // P-AT1
  // expected-error @below {{an attention has operands of 4 strides, not 3}}
  %0 = plan.attention %q, %q, %q <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 1], key = [512, 128, 16, 1],
      value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 0.25 : f64>
      : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  return
}

// -----

plan.program @p {
  plan.block {
    // P-ST1
    // expected-error @+1 {{a send stream has other axes or another stage than its kind needs}}
    plan.wait 0 on send over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @p {
  plan.block {
    // expected-error @+2 {{expected one of [compute, collective, send, recv] for what a stream's steps do, got: elsewhere}}
    // expected-error @+2 {{failed to parse Plan_StreamAttr parameter 'kind'}}
    plan.wait 0 on elsewhere
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @p {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // P-GR1
    // expected-error @+1 {{needs a reduction; its kind is reduce_scatter}}
    plan.group reduce_scatter over ["model"] sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @p {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // expected-error @+1 {{has a reduction; its kind is all_gather}}
    plan.group all_gather over ["model"] by sum sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @p {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // P-GR2
    // expected-error @+1 {{needs a stage and a channel; its kind is recv}}
    plan.group recv over [] sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on recv stage 0 {stage = 0 : i64}
  }
} {entry = "main", dims = {}, stage = 1 : i64}

// -----

plan.program @p {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // P-GR3
    // expected-error @+1 {{needs a permutation; its kind is permute}}
    plan.group permute over ["model"] sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.program @p {
  %0 = plan.buffer registered : !plan.buffer<tensor<8xf32>>
  plan.block {
    // P-GR4
    // expected-error @+1 {{is on stream 'comm.data'; its ranks meet on 'comm.model'}}
    plan.group all_reduce over ["model"] by sum sequence 0 ins() outs(%0 : !plan.buffer<tensor<8xf32>>) on collective over ["data"]
  }
} {entry = "main", dims = {}, stage = 0 : i64}
