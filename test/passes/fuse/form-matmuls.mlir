// RUN: gridloom-opt %s --plan-form-matmuls --mlir-print-local-scope | FileCheck %s
// RUN: gridloom-opt %s --plan-form-matmuls=activations=true --mlir-print-local-scope | FileCheck %s --check-prefix=ACTIVE
// RUN: gridloom-opt %s --plan-form-matmuls=residuals=true --mlir-print-local-scope | FileCheck %s --check-prefix=RESIDUAL

// Rows of all batches are one multiplication, with padded weights and the bias.
loom.weight @w : tensor<16x32xf32> from <"", offset = 0, bytes = 2048>
// CHECK-LABEL: func.func @rows
// CHECK: %[[W:.*]] = loom.get_weight
// CHECK-NEXT: plan.matmul %arg0, %[[W]], %arg1 <sizes = [12, 32, 16], lhs = [16, 1], rhs = [48, 1], out = [32, 1] epilogue = <bias = true>>
// CHECK-NEXT: return
func.func @rows(%x: tensor<3x4x16xf32>, %b: tensor<32xf32>) -> tensor<3x4x32xf32> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<16x32xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0] : (tensor<3x4x16xf32>, tensor<16x32xf32>) -> tensor<3x4x32xf32>
  %1 = loom.broadcast %b dims = [2] : (tensor<32xf32>) -> tensor<3x4x32xf32>
  %2 = loom.add %1, %0 : tensor<3x4x32xf32>
  return %2 : tensor<3x4x32xf32>
}

// A following kernel adds the bias at no cost.
// CHECK-LABEL: func.func @bias_for_kernel
// CHECK: plan.matmul %arg0, %arg1 <sizes = [4, 32, 16], lhs = [16, 1], rhs = [32, 1], out = [32, 1]>
// CHECK: loom.add
// CHECK-NEXT: loom.gelu
func.func @bias_for_kernel(%x: tensor<4x16xf32>, %w: tensor<16x32xf32>, %b: tensor<32xf32>) -> tensor<4x32xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<32xf32>) -> tensor<4x32xf32>
  %2 = loom.add %0, %1 : tensor<4x32xf32>
  %3 = loom.gelu erf %2 : tensor<4x32xf32>
  return %3 : tensor<4x32xf32>
}

// Attention: no transpose remains, and the scale becomes alpha.
// CHECK-LABEL: func.func @attention
// CHECK-NEXT: %[[S:.*]] = plan.matmul %arg0, %arg1
// CHECK-SAME: sizes = [2, 4, 8, 8, 16], lhs = [512, 16, 64, 1], rhs = [512, 16, 1, 64], out = [256, 64, 8, 1] alpha = 2.500000e-01
// CHECK-NEXT: %[[P:.*]] = loom.softmax %[[S]]
// CHECK-NEXT: %[[O:.*]] = plan.matmul %[[P]], %arg2
// CHECK-SAME: sizes = [2, 4, 8, 16, 8], lhs = [256, 64, 8, 1], rhs = [512, 16, 64, 1], out = [512, 16, 64, 1]
// CHECK-NEXT: %[[R:.*]] = loom.reshape %[[O]] : (tensor<2x8x4x16xf32>) -> tensor<2x8x64xf32>
// CHECK-NEXT: return %[[R]]
func.func @attention(%q: tensor<2x8x64xf32>, %k: tensor<2x8x64xf32>, %v: tensor<2x8x64xf32>) -> tensor<2x8x64xf32> {
  %0 = loom.reshape %q : (tensor<2x8x64xf32>) -> tensor<2x8x4x16xf32>
  %1 = loom.transpose %0 [0, 2, 1, 3] : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %2 = loom.reshape %k : (tensor<2x8x64xf32>) -> tensor<2x8x4x16xf32>
  %3 = loom.transpose %2 [0, 2, 3, 1] : (tensor<2x8x4x16xf32>) -> tensor<2x4x16x8xf32>
  %4 = loom.reshape %v : (tensor<2x8x64xf32>) -> tensor<2x8x4x16xf32>
  %5 = loom.transpose %4 [0, 2, 1, 3] : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %6 = loom.dot_general %1, %3 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x16xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x8x8xf32>
  %c = loom.constant dense<4.0> : tensor<f32>
  %7 = loom.broadcast %c dims = [] : (tensor<f32>) -> tensor<2x4x8x8xf32>
  %8 = loom.divide %6, %7 : tensor<2x4x8x8xf32>
  %9 = loom.softmax %8 dim = 3 : tensor<2x4x8x8xf32>
  %10 = loom.dot_general %9, %5 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x8xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  %11 = loom.transpose %10 [0, 2, 1, 3] : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
  %12 = loom.reshape %11 : (tensor<2x8x4x16xf32>) -> tensor<2x8x64xf32>
  return %12 : tensor<2x8x64xf32>
}

// Scales of both operands, in the form of scaled-dot-product attention exporters.
// CHECK-LABEL: func.func @operand_scales
// CHECK-NEXT: plan.matmul %arg0, %arg1 <sizes = [4, 8, 16], lhs = [16, 1], rhs = [1, 16], out = [8, 1] alpha = 2.500000e-01
func.func @operand_scales(%q: tensor<4x16xf32>, %k: tensor<8x16xf32>) -> tensor<4x8xf32> {
  %c = loom.constant dense<0.5> : tensor<4x16xf32>
  %d = loom.constant dense<0.5> : tensor<16x8xf32>
  %0 = loom.multiply %q, %c : tensor<4x16xf32>
  %1 = loom.transpose %k [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %2 = loom.multiply %d, %1 : tensor<16x8xf32>
  %3 = loom.dot_general %0, %2 batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}

// Factors that f32 may not hold at another place stay where they are, as does 0, which does not hide a NaN.
// CHECK-LABEL: func.func @factors_that_stay
// CHECK: plan.matmul {{.*}} out = [8, 1]>
// CHECK: plan.matmul {{.*}} out = [8, 1]>
func.func @factors_that_stay(%q: tensor<4x16xf32>, %k: tensor<16x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %large = loom.constant dense<1.0e+20> : tensor<4x16xf32>
  %small = loom.constant dense<1.0e-20> : tensor<4x8xf32>
  %zero = loom.constant dense<0.0> : tensor<4x8xf32>
  %0 = loom.multiply %q, %large : tensor<4x16xf32>
  %1 = loom.dot_general %0, %k batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %2 = loom.multiply %1, %small : tensor<4x8xf32>
  %3 = loom.dot_general %q, %k batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %4 = loom.multiply %3, %zero : tensor<4x8xf32>
  return %2, %4 : tensor<4x8xf32>, tensor<4x8xf32>
}

// Heads that several queries share are read repeatedly, not copied.
// CHECK-LABEL: func.func @grouped_queries
// CHECK-NEXT: plan.matmul %arg0, %arg1 <sizes = [2, 4, 8, 8, 16], lhs = [512, 128, 16, 1], rhs = [128, 0, 1, 16], out = [256, 64, 8, 1]>
func.func @grouped_queries(%q: tensor<2x4x8x16xf32>, %k: tensor<2x8x16xf32>) -> tensor<2x4x8x8xf32> {
  %0 = loom.broadcast %k dims = [0, 2, 3] : (tensor<2x8x16xf32>) -> tensor<2x4x8x16xf32>
  %1 = loom.dot_general %q, %0 batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x8xf32>
  return %1 : tensor<2x4x8x8xf32>
}

// A transposed result becomes the transposed product.
// CHECK-LABEL: func.func @transposed_result
// CHECK-NEXT: plan.matmul %arg1, %arg0 <sizes = [32, 4, 16], lhs = [1, 32], rhs = [1, 16], out = [4, 1]> : (tensor<16x32xf32>, tensor<4x16xf32>) -> tensor<32x4xf32>
func.func @transposed_result(%x: tensor<4x16xf32>, %w: tensor<16x32xf32>) -> tensor<32x4xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  %1 = loom.transpose %0 [1, 0] : (tensor<4x32xf32>) -> tensor<32x4xf32>
  return %1 : tensor<32x4xf32>
}

// Splitting one product into one per head does not pay to avoid a transpose that its reader can index.
// CHECK-LABEL: func.func @heads_apart
// CHECK-NEXT: %[[M:.*]] = plan.matmul %arg0, %arg1 <sizes = [16, 64, 16]
// CHECK-NEXT: %[[R:.*]] = loom.reshape %[[M]]
// CHECK-NEXT: loom.transpose %[[R]]
func.func @heads_apart(%x: tensor<2x8x16xf32>, %w: tensor<16x64xf32>) -> tensor<2x4x8x16xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0] : (tensor<2x8x16xf32>, tensor<16x64xf32>) -> tensor<2x8x64xf32>
  %1 = loom.reshape %0 : (tensor<2x8x64xf32>) -> tensor<2x8x4x16xf32>
  %2 = loom.transpose %1 [0, 2, 1, 3] : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  return %2 : tensor<2x4x8x16xf32>
}

// Contracted dimensions that are not adjacent need a copy.
// CHECK-LABEL: func.func @apart
// CHECK-NEXT: %[[T:.*]] = loom.transpose %arg0 [1, 0, 2] : (tensor<4x3x8xf32>) -> tensor<3x4x8xf32>
// CHECK-NEXT: plan.matmul %[[T]], %arg1 <sizes = [3, 16, 32], lhs = [32, 1], rhs = [16, 1], out = [16, 1]>
func.func @apart(%x: tensor<4x3x8xf32>, %w: tensor<4x8x16xf32>) -> tensor<3x16xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [0, 2] x [0, 1] : (tensor<4x3x8xf32>, tensor<4x8x16xf32>) -> tensor<3x16xf32>
  return %0 : tensor<3x16xf32>
}

// One row; one column; an outer product.
// CHECK-LABEL: func.func @vectors
// CHECK-NEXT: plan.matmul %arg0, %arg1 <sizes = [1, 32, 16], lhs = [16, 1], rhs = [32, 1], out = [32, 1]>
// CHECK-NEXT: plan.matmul {{.*}} <sizes = [1, 16, 32], lhs = [32, 1], rhs = [1, 32], out = [16, 1]>
// CHECK-NEXT: plan.matmul %arg0, %arg2 <sizes = [16, 32, 1], lhs = [1, 16], rhs = [32, 1], out = [32, 1]>
func.func @vectors(%x: tensor<16xf32>, %w: tensor<16x32xf32>, %y: tensor<32xf32>) -> (tensor<32xf32>, tensor<16xf32>, tensor<16x32xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [0] x [0] : (tensor<16xf32>, tensor<16x32xf32>) -> tensor<32xf32>
  %1 = loom.dot_general %w, %y batch = [] x [] contract = [1] x [0] : (tensor<16x32xf32>, tensor<32xf32>) -> tensor<16xf32>
  %2 = loom.dot_general %x, %y batch = [] x [] contract = [] x [] : (tensor<16xf32>, tensor<32xf32>) -> tensor<16x32xf32>
  return %0, %1, %2 : tensor<32xf32>, tensor<16xf32>, tensor<16x32xf32>
}

// Libraries do not multiply integers.
// CHECK-LABEL: func.func @integers
// CHECK-NEXT: loom.dot_general
func.func @integers(%x: tensor<4x16xi32>, %w: tensor<16x32xi32>) -> tensor<4x32xi32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xi32>, tensor<16x32xi32>) -> tensor<4x32xi32>
  return %0 : tensor<4x32xi32>
}

// Libraries multiply f16 and bf16, too, to their own type or to f32; TF32 is an attribute of the call.
// CHECK-LABEL: func.func @narrow
// CHECK-NEXT: plan.matmul {{.*}} : (tensor<4x16xbf16>, tensor<16x32xbf16>) -> tensor<4x32xbf16>
// CHECK-NEXT: plan.matmul {{.*}} : (tensor<4x16xbf16>, tensor<16x32xbf16>) -> tensor<4x32xf32>
// CHECK-NEXT: plan.matmul {{.*}} tf32 = true>
func.func @narrow(%x: tensor<4x16xbf16>, %w: tensor<16x32xbf16>, %z: tensor<4x16xf32>, %v: tensor<16x32xf32>)
    -> (tensor<4x32xbf16>, tensor<4x32xf32>, tensor<4x32xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xbf16>, tensor<16x32xbf16>) -> tensor<4x32xbf16>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xbf16>, tensor<16x32xbf16>) -> tensor<4x32xf32>
  %2 = loom.dot_general %z, %v batch = [] x [] contract = [1] x [0] tf32 : (tensor<4x16xf32>, tensor<16x32xf32>) -> tensor<4x32xf32>
  return %0, %1, %2 : tensor<4x32xbf16>, tensor<4x32xf32>, tensor<4x32xf32>
}

// Activations that libraries support join the call, with a fallback kernel: one per type.
// CHECK-LABEL: func.func @mlp
// CHECK: loom.gelu
// ACTIVE-LABEL: func.func @mlp
// ACTIVE: %[[H:.*]] = plan.matmul %arg0, %arg1, %arg3 <{{.*}} epilogue = <bias = true, activation = gelu>> else @k_else_bias_gelu
// ACTIVE-NEXT: %[[G:.*]] = plan.matmul %[[H]], %arg1, %arg3 <{{.*}} epilogue = <bias = true, activation = gelu>> else @k_else_bias_gelu
// ACTIVE-NEXT: %[[R:.*]] = plan.matmul %[[G]], %arg1 <{{.*}} epilogue = <activation = relu>> else @k_else_relu
// ACTIVE-NEXT: plan.matmul %[[R]], %arg2
// ACTIVE-NOT: epilogue
// ACTIVE: return
func.func @mlp(%x: tensor<4x16xf32>, %w: tensor<16x16xf32>, %v: tensor<16x8xf32>, %b: tensor<16xf32>) -> tensor<4x8xf32> {
  %bb = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %1 = loom.add %0, %bb : tensor<4x16xf32>
  %2 = loom.gelu tanh %1 : tensor<4x16xf32>
  %bc = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %4 = loom.add %3, %bc : tensor<4x16xf32>
  %5 = loom.gelu tanh %4 : tensor<4x16xf32>
  %6 = loom.dot_general %5, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %zero = loom.constant dense<0.0> : tensor<4x16xf32>
  %7 = loom.maximum %6, %zero : tensor<4x16xf32>
  %8 = loom.dot_general %7, %v batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %8 : tensor<4x8xf32>
}

// Libraries lack the other form of gelu; an activation that continues in a kernel stays there.
// ACTIVE-LABEL: func.func @left
// ACTIVE-NOT: epilogue = {{.*}}elu
// ACTIVE: return
func.func @left(%x: tensor<4x16xf32>, %w: tensor<16x16xf32>) -> (tensor<4x16xf32>, tensor<4xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %1 = loom.gelu erf %0 : tensor<4x16xf32>
  %2 = loom.dot_general %1, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %3 = loom.gelu tanh %2 : tensor<4x16xf32>
  %4 = loom.reduce sum %3 dims = [1] : (tensor<4x16xf32>) -> tensor<4xf32>
  return %1, %4 : tensor<4x16xf32>, tensor<4xf32>
}

// ACTIVE: plan.kernel @k_else_bias_gelu in_place = [#plan.in_place<output = 0, input = 0>] {
// ACTIVE: ^bb0(%[[P:.*]]: tensor<4x16xf32>, %[[B:.*]]: tensor<16xf32>):
// ACTIVE: %[[C:.*]] = loom.broadcast %[[B]] dims = [1]
// ACTIVE: %[[S:.*]] = loom.add %[[P]], %[[C]]
// ACTIVE: %[[T:.*]] = loom.gelu {{ *}}tanh %[[S]]
// ACTIVE: loom.yield %[[T]]
// ACTIVE: plan.kernel @k_else_relu
// ACTIVE: loom.maximum
// ACTIVE-NOT: plan.kernel

// A bias stays in an existing kernel; it joins the call if the sum has several readers and so is in
// memory. The same holds for an added tensor, if libraries add one. With one row, a vector is a bias.
loom.weight @b : tensor<16xf32> from <"", offset = 2048, bytes = 64>
// CHECK-LABEL: func.func @residual
// CHECK: plan.matmul %arg0, %arg2 <sizes = [4, 16, 16], lhs = [16, 1], rhs = [16, 1], out = [16, 1]>
// CHECK: plan.matmul {{.*}} epilogue = <bias = true>>
// RESIDUAL-LABEL: func.func @residual
// RESIDUAL: %[[S:.*]] = plan.matmul %arg0, %arg2, %arg3 residual %arg1 <{{.*}} epilogue = <bias = true, residual = true>>
// RESIDUAL-NEXT: %[[N:.*]] = loom.softmax %[[S]]
// RESIDUAL-NEXT: %[[T:.*]] = plan.matmul %[[N]], %arg2 residual %[[S]] <{{.*}} epilogue = <residual = true>>
// RESIDUAL: %[[L:.*]] = plan.matmul %arg0, %arg2 <{{.*}}out = [16, 1]>
// RESIDUAL: loom.add %[[L]], %{{.*}}
// RESIDUAL: loom.softmax
// RESIDUAL: %[[W:.*]] = loom.get_weight @b
// RESIDUAL: plan.matmul %{{.*}}, %arg2, %{{.*}} <{{.*}} epilogue = <bias = true>>
func.func @residual(%x: tensor<4x16xf32>, %r: tensor<4x16xf32>, %w: tensor<16x16xf32>, %b: tensor<16xf32>)
    -> (tensor<4x16xf32>, tensor<4x16xf32>, tensor<1x16xf32>) {
  %bb = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %1 = loom.add %0, %bb : tensor<4x16xf32>
  %2 = loom.add %r, %1 : tensor<4x16xf32>
  %3 = loom.softmax %2 dim = 1 : tensor<4x16xf32>
  %4 = loom.dot_general %3, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %5 = loom.add %4, %2 : tensor<4x16xf32>
  %6 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x16xf32>) -> tensor<4x16xf32>
  %7 = loom.add %6, %r : tensor<4x16xf32>
  %8 = loom.softmax %7 dim = 1 : tensor<4x16xf32>
  %9 = loom.slice %5 [0, 0] to [1, 16] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x16xf32>
  %v = loom.get_weight @b : tensor<16xf32>
  %10 = loom.reshape %v : (tensor<16xf32>) -> tensor<1x16xf32>
  %11 = loom.dot_general %9, %w batch = [] x [] contract = [1] x [0] : (tensor<1x16xf32>, tensor<16x16xf32>) -> tensor<1x16xf32>
  %12 = loom.add %11, %10 : tensor<1x16xf32>
  return %5, %8, %12 : tensor<4x16xf32>, tensor<4x16xf32>, tensor<1x16xf32>
}

// Parts of a tensor are operands in place, unless they start at no multiple of 16 bytes.
// CHECK-LABEL: func.func @parts
// CHECK: %[[X:.*]] = loom.softmax %arg0
// CHECK-NEXT: %[[U:.*]] = loom.slice %[[X]] [0, 17] to [4, 24] by [1, 1]
// CHECK: %[[F:.*]] = loom.reshape %[[X]] : (tensor<4x24xf32>) -> tensor<96xf32>
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[F]] [8] to [96] by [1] : (tensor<96xf32>) -> tensor<88xf32>
// CHECK-NEXT: plan.matmul %[[X]], %[[S]] <sizes = [4, 4, 8], lhs = [24, 1], rhs = [1, 24], out = [4, 1]>
// CHECK-NEXT: plan.matmul %[[U]], %[[U]] <sizes = [4, 4, 7], lhs = [7, 1], rhs = [1, 7], out = [4, 1]>
func.func @parts(%x: tensor<4x24xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %0 = loom.softmax %x dim = 1 : tensor<4x24xf32>
  %1 = loom.slice %0 [0, 0] to [4, 8] by [1, 1] : (tensor<4x24xf32>) -> tensor<4x8xf32>
  %2 = loom.slice %0 [0, 8] to [4, 16] by [1, 1] : (tensor<4x24xf32>) -> tensor<4x8xf32>
  %3 = loom.slice %0 [0, 17] to [4, 24] by [1, 1] : (tensor<4x24xf32>) -> tensor<4x7xf32>
  %4 = loom.dot_general %1, %2 batch = [] x [] contract = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %5 = loom.dot_general %3, %3 batch = [] x [] contract = [1] x [1] : (tensor<4x7xf32>, tensor<4x7xf32>) -> tensor<4x4xf32>
  return %4, %5 : tensor<4x4xf32>, tensor<4x4xf32>
}

// If only a part is read, a kernel may compute just this part: then that is the operand.
// CHECK-LABEL: func.func @computed_part
// CHECK-NEXT: loom.exp
// CHECK-NEXT: %[[S:.*]] = loom.slice
// CHECK-NEXT: plan.matmul %[[S]], %arg1
func.func @computed_part(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> tensor<1x4xf32> {
  %0 = loom.exp %x : tensor<4x8xf32>
  %1 = loom.slice %0 [3, 0] to [4, 8] by [1, 1] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = loom.dot_general %1, %w batch = [] x [] contract = [1] x [0] : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  return %2 : tensor<1x4xf32>
}

// A bias joins the call if another product needs parts of the sum in memory, even if a kernel reads a part, too.
// CHECK-LABEL: func.func @bias_of_parts
// CHECK-NEXT: plan.matmul %arg0, %arg1, %arg2 <{{.*}} epilogue = <bias = true>>
func.func @bias_of_parts(%x: tensor<4x8xf32>, %w: tensor<8x16xf32>, %b: tensor<16xf32>) -> (tensor<4x4xf32>, tensor<4x8xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<4x16xf32>
  %2 = loom.add %0, %1 : tensor<4x16xf32>
  %3 = loom.slice %2 [0, 0] to [4, 8] by [1, 1] : (tensor<4x16xf32>) -> tensor<4x8xf32>
  %4 = loom.slice %2 [0, 8] to [4, 16] by [1, 1] : (tensor<4x16xf32>) -> tensor<4x8xf32>
  %5 = loom.dot_general %3, %3 batch = [] x [] contract = [1] x [1] : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32>
  %6 = loom.exp %4 : tensor<4x8xf32>
  return %5, %6 : tensor<4x4xf32>, tensor<4x8xf32>
}
