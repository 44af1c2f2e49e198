// RUN: gridloom-opt %s --split-input-file --plan-form-matmuls="keep-row-products=true" --plan-form-kernels | FileCheck %s

// The product of a row and a weight is a kernel, together with the following elementwise operations.
// CHECK-LABEL: func.func @decode
// CHECK-NEXT: %[[Y:.*]] = plan.call @k_dot_general_bias_gelu_0(%arg0, %arg1, %arg2)
// CHECK-NEXT: plan.call @k_dot_general_add_0(%[[Y]], %arg3, %arg0)
// CHECK-NEXT: return
// CHECK: plan.kernel @k_dot_general_bias_gelu_0
// CHECK-NEXT: ^bb0
// CHECK-NEXT: loom.dot_general
// CHECK-NEXT: loom.broadcast
// CHECK-NEXT: loom.add
// CHECK-NEXT: loom.gelu
// CHECK-NEXT: loom.yield
func.func @decode(%x: tensor<1x1x16xf32>, %w: tensor<16x64xf32>, %b: tensor<64xf32>,
                  %v: tensor<16x64xf32>) -> tensor<1x1x16xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0]
      : (tensor<1x1x16xf32>, tensor<16x64xf32>) -> tensor<1x1x64xf32>
  %1 = loom.broadcast %b dims = [2] : (tensor<64xf32>) -> tensor<1x1x64xf32>
  %2 = loom.add %0, %1 : tensor<1x1x64xf32>
  %3 = loom.gelu tanh %2 : tensor<1x1x64xf32>
  %4 = loom.dot_general %3, %v batch = [] x [] contract = [2] x [1]
      : (tensor<1x1x64xf32>, tensor<16x64xf32>) -> tensor<1x1x16xf32>
  %5 = loom.add %4, %x : tensor<1x1x16xf32>
  return %5 : tensor<1x1x16xf32>
}

// -----

// Five rows go to the library.
// CHECK-LABEL: func.func @prefill
// CHECK-NEXT: plan.matmul
// CHECK-NEXT: return
func.func @prefill(%x: tensor<5x16xbf16>, %w: tensor<16x64xbf16>) -> tensor<5x64xbf16> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<5x16xbf16>, tensor<16x64xbf16>) -> tensor<5x64xbf16>
  return %0 : tensor<5x64xbf16>
}

// -----

// Heads that are repeated for a group of queries are read once: the queries become rows.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT: %[[Q:.*]] = loom.reshape %arg0 : (tensor<4x1x16xf32>) -> tensor<2x2x16xf32>
// CHECK-NEXT: %[[S:.*]] = plan.call @k_dot_general_0(%[[Q]], %arg1) {{.*}} -> tensor<2x2x8xf32>
// CHECK-NEXT: %[[Y:.*]] = loom.reshape %[[S]] : (tensor<2x2x8xf32>) -> tensor<4x1x8xf32>
// CHECK-NEXT: return %[[Y]]
func.func @repeated(%q: tensor<4x1x16xf32>, %k: tensor<2x8x16xf32>) -> tensor<4x1x8xf32> {
  %0 = loom.broadcast %k dims = [0, 2, 3] : (tensor<2x8x16xf32>) -> tensor<2x2x8x16xf32>
  %1 = loom.reshape %0 : (tensor<2x2x8x16xf32>) -> tensor<4x8x16xf32>
  %2 = loom.dot_general %q, %1 batch = [0] x [0] contract = [2] x [2]
      : (tensor<4x1x16xf32>, tensor<4x8x16xf32>) -> tensor<4x1x8xf32>
  return %2 : tensor<4x1x8xf32>
}

// -----

// All heads of a device share one key head.
// CHECK-LABEL: func.func @only_head
// CHECK: plan.call @k_dot_general_0(%{{.*}}, %{{.*}}) {{.*}} -> tensor<1x1x4x8xf32>
func.func @only_head(%q: tensor<1x4x1x16xf32>, %k: tensor<8x16xf32>) -> tensor<1x4x1x8xf32> {
  %0 = loom.broadcast %k dims = [2, 3] : (tensor<8x16xf32>) -> tensor<1x4x8x16xf32>
  %1 = loom.dot_general %q, %0 batch = [0, 1] x [0, 1] contract = [3] x [3]
      : (tensor<1x4x1x16xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x1x8xf32>
  return %1 : tensor<1x4x1x8xf32>
}

// -----

// CHECK-LABEL: func.func @shared
// CHECK-NEXT: %[[Q:.*]] = loom.reshape %arg0 : (tensor<4x1x16xf32>) -> tensor<1x4x16xf32>
// CHECK-NEXT: %[[S:.*]] = plan.call @k_dot_general_0(%[[Q]], %arg1) {{.*}} -> tensor<1x4x8xf32>
// CHECK-NEXT: %[[Y:.*]] = loom.reshape %[[S]] : (tensor<1x4x8xf32>) -> tensor<4x1x8xf32>
// CHECK-NEXT: return %[[Y]]
func.func @shared(%q: tensor<4x1x16xf32>, %k: tensor<1x8x16xf32>) -> tensor<4x1x8xf32> {
  %0 = loom.broadcast %k dims = [0, 1, 2] : (tensor<1x8x16xf32>) -> tensor<4x8x16xf32>
  %1 = loom.dot_general %q, %0 batch = [0] x [0] contract = [2] x [2]
      : (tensor<4x1x16xf32>, tensor<4x8x16xf32>) -> tensor<4x1x8xf32>
  return %1 : tensor<4x1x8xf32>
}

// -----

// Too many rows go to the library.
// CHECK-LABEL: func.func @often
// CHECK: plan.matmul {{.*}}sizes = [16, 1, 8, 16]
// CHECK-NEXT: return
func.func @often(%q: tensor<16x1x16xf32>, %k: tensor<2x8x16xf32>) -> tensor<16x1x8xf32> {
  %0 = loom.broadcast %k dims = [0, 2, 3] : (tensor<2x8x16xf32>) -> tensor<2x8x8x16xf32>
  %1 = loom.reshape %0 : (tensor<2x8x8x16xf32>) -> tensor<16x8x16xf32>
  %2 = loom.dot_general %q, %1 batch = [0] x [0] contract = [2] x [2]
      : (tensor<16x1x16xf32>, tensor<16x8x16xf32>) -> tensor<16x1x8xf32>
  return %2 : tensor<16x1x8xf32>
}

// -----

// So does a padded weight, which kernels do not read.
loom.weight @w : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
// CHECK-LABEL: func.func @padded
// CHECK: plan.matmul
// CHECK-NOT: plan.kernel
func.func @padded(%x: tensor<1x16xf32>) -> tensor<1x64xf32> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<16x64xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x64xf32>) -> tensor<1x64xf32>
  return %0 : tensor<1x64xf32>
}

// -----

// A kernel has one product: the other one of a gate is read from memory.
// CHECK-LABEL: func.func @gate
// CHECK-NEXT: %[[U:.*]] = plan.call @k_dot_general_0(%arg0, %arg2)
// CHECK-NEXT: plan.call @k_dot_general_logistic_multiply_0(%arg0, %arg1, %[[U]])
// CHECK-NEXT: return
func.func @gate(%x: tensor<1x16xf32>, %g: tensor<16x64xf32>, %u: tensor<16x64xf32>) -> tensor<1x64xf32> {
  %0 = loom.dot_general %x, %u batch = [] x [] contract = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x64xf32>) -> tensor<1x64xf32>
  %1 = loom.dot_general %x, %g batch = [] x [] contract = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x64xf32>) -> tensor<1x64xf32>
  %2 = loom.logistic %1 : tensor<1x64xf32>
  %3 = loom.multiply %2, %0 : tensor<1x64xf32>
  return %3 : tensor<1x64xf32>
}

// -----

// The computation of the row, and the normalisation of the result, have their own kernels.
// CHECK-LABEL: func.func @apart
// CHECK-NEXT: %[[X:.*]] = plan.call @k_exp_0(%arg0)
// CHECK-NEXT: %[[Y:.*]] = plan.call @k_dot_general_0(%[[X]], %arg1)
// CHECK-NEXT: plan.call @k_add_softmax_0(
// CHECK-NEXT: return
func.func @apart(%x: tensor<1x16xf32>, %w: tensor<16x64xf32>, %b: tensor<1x64xf32>) -> tensor<1x64xf32> {
  %0 = loom.exp %x : tensor<1x16xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x16xf32>, tensor<16x64xf32>) -> tensor<1x64xf32>
  %2 = loom.add %1, %b : tensor<1x64xf32>
  %3 = loom.softmax %2 dim = 1 : tensor<1x64xf32>
  return %3 : tensor<1x64xf32>
}

// -----

// A row's sum is not part of the kernel that multiplies by it.
// CHECK-LABEL: func.func @norm
// CHECK-NEXT: %[[S:.*]] = plan.call @k_multiply_reduce_0(%arg0)
// CHECK-NEXT: plan.call @k_dot_general_multiply_0(%arg0, %arg1, %[[S]])
// CHECK-NEXT: return
func.func @norm(%x: tensor<4x64xf32>, %w: tensor<64x64xf32>) -> tensor<4x64xf32> {
  %0 = loom.multiply %x, %x : tensor<4x64xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<4x64xf32>) -> tensor<4xf32>
  %2 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
  %3 = loom.broadcast %1 dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
  %4 = loom.multiply %2, %3 : tensor<4x64xf32>
  return %4 : tensor<4x64xf32>
}

// -----

// Nor is a value that is made in pieces.
// CHECK-LABEL: func.func @pieces
// CHECK-NEXT: %[[P:.*]] = plan.call @k_pad_0(%arg2)
// CHECK-NEXT: plan.call @k_dot_general_add_0(%arg0, %arg1, %[[P]])
// CHECK-NEXT: return
func.func @pieces(%x: tensor<1x64xf32>, %w: tensor<64x64xf32>, %z: tensor<1x62xf32>) -> tensor<1x64xf32> {
  %0 = loom.pad %z value = 0.0 : f32 low = [0, 2] high = [0, 0] interior = [0, 0]
      : (tensor<1x62xf32>) -> tensor<1x64xf32>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64xf32>
  %2 = loom.add %1, %0 : tensor<1x64xf32>
  return %2 : tensor<1x64xf32>
}

// -----

// Vectors of the matrix are also vectors of the other operands: a slice of whole vectors can be part of the kernel.
// CHECK-LABEL: func.func @even
// CHECK-NEXT: plan.call @k_dot_general_slice_add_0(
// CHECK-NEXT: return
func.func @even(%x: tensor<2x64xf16>, %w: tensor<64x64xf16>, %z: tensor<2x96xf16>) -> tensor<2x64xf16> {
  %0 = loom.slice %z [0, 16] to [2, 80] by [1, 1] : (tensor<2x96xf16>) -> tensor<2x64xf16>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<2x64xf16>, tensor<64x64xf16>) -> tensor<2x64xf16>
  %2 = loom.add %1, %0 : tensor<2x64xf16>
  return %2 : tensor<2x64xf16>
}

// -----

// CHECK-LABEL: func.func @odd_start
// CHECK-NEXT: %[[S:.*]] = plan.call @k_slice_0(%arg2)
// CHECK-NEXT: plan.call @k_dot_general_add_0(%arg0, %arg1, %[[S]])
// CHECK-NEXT: return
func.func @odd_start(%x: tensor<1x64xf16>, %w: tensor<64x64xf16>, %z: tensor<1x65xf16>) -> tensor<1x64xf16> {
  %0 = loom.slice %z [0, 1] to [1, 65] by [1, 1] : (tensor<1x65xf16>) -> tensor<1x64xf16>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x64xf16>, tensor<64x64xf16>) -> tensor<1x64xf16>
  %2 = loom.add %1, %0 : tensor<1x64xf16>
  return %2 : tensor<1x64xf16>
}

// -----

// The rows after the first are not aligned.
// CHECK-LABEL: func.func @odd_rows
// CHECK-NEXT: %[[Y:.*]] = plan.call @k_dot_general_0(%arg0, %arg1)
// CHECK-NEXT: plan.call @k_slice_add_0(%arg2, %[[Y]])
// CHECK-NEXT: return
func.func @odd_rows(%x: tensor<2x64xf16>, %w: tensor<64x64xf16>, %z: tensor<2x65xf16>) -> tensor<2x64xf16> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<2x64xf16>, tensor<64x64xf16>) -> tensor<2x64xf16>
  %1 = loom.slice %z [0, 0] to [2, 64] by [1, 1] : (tensor<2x65xf16>) -> tensor<2x64xf16>
  %2 = loom.add %0, %1 : tensor<2x64xf16>
  return %2 : tensor<2x64xf16>
}

// -----

// A part of each matrix of a batch, which a library indexes and a kernel would need a copy of.
// CHECK-LABEL: func.func @part
// CHECK-NEXT: %[[W:.*]] = plan.call @k_concatenate_0(%arg1, %arg2)
// CHECK-NOT: plan.call
// CHECK: plan.matmul {{.*}}sizes = [8, 1, 8, 16]
// CHECK-NEXT: return
func.func @part(%x: tensor<8x1x16xf32>, %p: tensor<8x31x16xf32>, %q: tensor<8x1x16xf32>)
    -> (tensor<8x1x8xf32>, tensor<8x32x16xf32>) {
  %0 = loom.concatenate %p, %q dim = 1
      : (tensor<8x31x16xf32>, tensor<8x1x16xf32>) -> tensor<8x32x16xf32>
  %1 = loom.slice %0 [0, 24, 0] to [8, 32, 16] by [1, 1, 1]
      : (tensor<8x32x16xf32>) -> tensor<8x8x16xf32>
  %2 = loom.dot_general %x, %1 batch = [0] x [0] contract = [2] x [2]
      : (tensor<8x1x16xf32>, tensor<8x8x16xf32>) -> tensor<8x1x8xf32>
  return %2, %0 : tensor<8x1x8xf32>, tensor<8x32x16xf32>
}
