// RUN: gridloom-opt %s --split-input-file --plan-form-kernels --plan-verify-fused | FileCheck %s

// Elementwise operations form one kernel; the bias stays a vector.
// CHECK-LABEL: func.func @bias_gelu
// CHECK-NEXT: %[[C:.*]] = plan.call @k_bias_gelu_0(%arg1, %arg0) : (tensor<16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT: return %[[C]]
// CHECK: plan.kernel @k_bias_gelu_0 in_place = [#plan.in_place<output = 0, input = 1>] {
// CHECK-NEXT: ^bb0(%[[B:.*]]: tensor<16xf32>, %[[X:.*]]: tensor<8x16xf32>):
// CHECK-NEXT: %[[R:.*]] = loom.broadcast %[[B]]
// CHECK-NEXT: %[[S:.*]] = loom.add %[[X]], %[[R]]
// CHECK-NEXT: %[[G:.*]] = loom.gelu erf %[[S]]
// CHECK-NEXT: loom.yield %[[G]]
func.func @bias_gelu(%x: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<8x16xf32> {
  %0 = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %1 = loom.add %x, %0 : tensor<8x16xf32>
  %2 = loom.gelu erf %1 : tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}

// -----

// The elementwise operations before and after a row operation join its kernel.
// CHECK-LABEL: func.func @rows
// CHECK-NEXT: plan.call @k_bias_add_layer_norm_tanh_0
// CHECK-NEXT: return
// CHECK: plan.kernel @k_bias_add_layer_norm_tanh_0
func.func @rows(%x: tensor<8x16xf32>, %r: tensor<8x16xf32>, %b: tensor<16xf32>, %g: tensor<16xf32>) -> tensor<8x16xf32> {
  %0 = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %1 = loom.add %x, %0 : tensor<8x16xf32>
  %2 = loom.add %1, %r : tensor<8x16xf32>
  %3 = loom.layer_norm %2, %g epsilon = 1.0e-5 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %4 = loom.tanh %3 : tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// -----

// A norm of single operations: two reductions over the same rows, with one value per row in between.
// CHECK-LABEL: func.func @decomposed
// CHECK-NEXT: plan.call
// CHECK-NEXT: return
// CHECK: plan.kernel
func.func @decomposed(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %n = loom.constant dense<16.0> : tensor<8xf32>
  %0 = loom.reduce sum %x dims = [1] : (tensor<8x16xf32>) -> tensor<8xf32>
  %1 = loom.divide %0, %n : tensor<8xf32>
  %2 = loom.broadcast %1 dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %3 = loom.subtract %x, %2 : tensor<8x16xf32>
  %4 = loom.multiply %3, %3 : tensor<8x16xf32>
  %5 = loom.reduce sum %4 dims = [1] : (tensor<8x16xf32>) -> tensor<8xf32>
  %6 = loom.rsqrt %5 : tensor<8xf32>
  %7 = loom.broadcast %6 dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %8 = loom.multiply %3, %7 : tensor<8x16xf32>
  return %8 : tensor<8x16xf32>
}

// -----

// Operations on the one value per row are part of the row kernel, too.
// CHECK-LABEL: func.func @row_values
// CHECK-NEXT: plan.call @k_exp_reduce_sqrt_0
// CHECK-NEXT: return
// CHECK: plan.kernel @k_exp_reduce_sqrt_0
func.func @row_values(%x: tensor<8x16xf32>) -> tensor<8xf32> {
  %0 = loom.exp %x : tensor<8x16xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<8x16xf32>) -> tensor<8xf32>
  %2 = loom.sqrt %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// The variance of a batch and the normalisation each compute the difference; the mean is a kernel of its
// own, and values per channel are, too.
// CHECK-LABEL: func.func @batch_variance
// CHECK-NEXT: %[[M:.*]] = plan.call @k_reduce_0(%arg0)
// CHECK-NEXT: %[[V:.*]] = plan.call @k_subtract_multiply_reduce_0(%[[M]], %arg0)
// CHECK-NEXT: %[[S:.*]] = plan.call @k_rsqrt_0(%[[V]])
// CHECK-NEXT: %[[Y:.*]] = plan.call @k_subtract_multiply_0(%[[M]], %arg0, %[[S]])
// CHECK-NEXT: return %[[Y]]
func.func @batch_variance(%x: tensor<4x32x8x8xf32>) -> tensor<4x32x8x8xf32> attributes {loom.entry = "train_step"} {
  %0 = loom.reduce sum %x dims = [0, 2, 3] : (tensor<4x32x8x8xf32>) -> tensor<32xf32>
  %1 = loom.broadcast %0 dims = [1] : (tensor<32xf32>) -> tensor<4x32x8x8xf32>
  %2 = loom.subtract %x, %1 : tensor<4x32x8x8xf32>
  %3 = loom.multiply %2, %2 : tensor<4x32x8x8xf32>
  %4 = loom.reduce sum %3 dims = [0, 2, 3] : (tensor<4x32x8x8xf32>) -> tensor<32xf32>
  %5 = loom.rsqrt %4 : tensor<32xf32>
  %6 = loom.broadcast %5 dims = [1] : (tensor<32xf32>) -> tensor<4x32x8x8xf32>
  %7 = loom.multiply %2, %6 : tensor<4x32x8x8xf32>
  return %7 : tensor<4x32x8x8xf32>
}

// -----

// A reduction to few values would compute its operand with one thread per value.
// CHECK-LABEL: func.func @few_values
// CHECK-NEXT: %[[E:.*]] = plan.call @k_exp_0(%arg0)
// CHECK-NEXT: plan.call @k_reduce_0(%[[E]])
func.func @few_values(%x: tensor<64x31xf32>) -> tensor<31xf32> {
  %0 = loom.exp %x : tensor<64x31xf32>
  %1 = loom.reduce sum %0 dims = [0] : (tensor<64x31xf32>) -> tensor<31xf32>
  return %1 : tensor<31xf32>
}

// -----

// A mask is computed once and read by both kernels, each of which broadcasts it.
// CHECK-LABEL: func.func @mask
// CHECK-NEXT: %[[M:.*]] = plan.call @k_convert_0(%arg0)
// CHECK-NEXT: plan.call @k_add_softmax_0(%[[M]], %{{.*}})
// CHECK-NEXT: plan.call @k_add_softmax_0(%[[M]], %{{.*}})
// CHECK-NEXT: return
// CHECK-COUNT-2: plan.kernel
// CHECK-NOT: plan.kernel
func.func @mask(%m: tensor<2x8xi64>, %x: tensor<2x4x8xf32>, %y: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>) {
  %0 = loom.convert %m : (tensor<2x8xi64>) -> tensor<2x8xf32>
  %1 = loom.broadcast %0 dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x4x8xf32>
  %2 = loom.add %x, %1 : tensor<2x4x8xf32>
  %3 = loom.softmax %2 dim = 2 : tensor<2x4x8xf32>
  %4 = loom.add %y, %1 : tensor<2x4x8xf32>
  %5 = loom.softmax %4 dim = 2 : tensor<2x4x8xf32>
  return %3, %5 : tensor<2x4x8xf32>, tensor<2x4x8xf32>
}

// -----

// Index arithmetic with the device's index is repeated, not stored.
// CHECK-LABEL: func.func @padding
// CHECK-NEXT: %[[I:.*]] = dist.axis_index ["model"]
// CHECK-NEXT: plan.call @[[K:.*]](%[[I]], %arg0)
// CHECK-NEXT: plan.call @[[K]](%[[I]], %arg1)
// CHECK-NEXT: return
// CHECK: plan.kernel @[[K]]
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<i64>, %{{.*}}: tensor<8x16xf32>):
func.func @padding(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %i = dist.axis_index ["model"] : tensor<i64>
  %c = loom.constant dense<16> : tensor<i64>
  %0 = loom.multiply %i, %c : tensor<i64>
  %1 = loom.broadcast %0 dims = [] : (tensor<i64>) -> tensor<16xi64>
  %2 = loom.iota dim = 0 : tensor<16xi64>
  %3 = loom.add %1, %2 : tensor<16xi64>
  %n = loom.constant dense<30> : tensor<16xi64>
  %4 = loom.compare lt %3, %n : (tensor<16xi64>, tensor<16xi64>) -> tensor<16xi1>
  %5 = loom.broadcast %4 dims = [1] : (tensor<16xi1>) -> tensor<8x16xi1>
  %z = loom.constant dense<0.0> : tensor<8x16xf32>
  %6 = loom.select %5, %x, %z : tensor<8x16xi1>, tensor<8x16xf32>
  %7 = loom.select %5, %y, %z : tensor<8x16xi1>, tensor<8x16xf32>
  return %6, %7 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// Gathered rows go directly into the sum; a transpose that keeps rows whole is only indexing.
// CHECK-LABEL: func.func @gather
// CHECK-NEXT: plan.call @k_gather_add_0
// CHECK-NEXT: plan.call @k_transpose_exp_0
// CHECK-NEXT: return
// CHECK-DAG: plan.kernel @k_gather_add_0
// CHECK-DAG: plan.kernel @k_transpose_exp_0
func.func @gather(%t: tensor<10x4x16xf32>, %i: tensor<8xi64>, %x: tensor<8x4x16xf32>) -> (tensor<8x4x16xf32>, tensor<4x8x16xf32>) {
  %0 = loom.gather %t, %i dim = 0 : (tensor<10x4x16xf32>, tensor<8xi64>) -> tensor<8x4x16xf32>
  %1 = loom.add %0, %x : tensor<8x4x16xf32>
  %2 = loom.transpose %x [1, 0, 2] : (tensor<8x4x16xf32>) -> tensor<4x8x16xf32>
  %3 = loom.exp %2 : tensor<4x8x16xf32>
  return %1, %3 : tensor<8x4x16xf32>, tensor<4x8x16xf32>
}

// -----

// A table is split along its rows: the kernel that looks them up also finds out which are its own, from indices that may be negative.
// CHECK-LABEL: func.func @own_rows
// CHECK-NEXT: %[[P:.*]] = dist.axis_index
// CHECK-NEXT: %[[R:.*]] = plan.call @k_{{.*}}(%arg1, %[[P]], %arg0)
// CHECK-NEXT: return %[[R]]
// CHECK: plan.kernel
// CHECK: loom.gather
// CHECK-NOT: plan.kernel
dist.mesh @mesh <["y" = 4]>
func.func @own_rows(%t: tensor<10x16xf32>, %i: tensor<8xi64>) -> tensor<8x16xf32> {
  %none = loom.constant dense<0.0> : tensor<8x16xf32>
  %all = loom.constant dense<40> : tensor<8xi64>
  %rows = loom.constant dense<10> : tensor<i64>
  %first = loom.constant dense<0> : tensor<8xi64>
  %last = loom.constant dense<9> : tensor<8xi64>
  %from_end = loom.add %i, %all : tensor<8xi64>
  %is_negative = loom.compare lt %i, %first : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %index = loom.select %is_negative, %from_end, %i : tensor<8xi1>, tensor<8xi64>
  %place = dist.axis_index ["y"] : tensor<i64>
  %start = loom.multiply %place, %rows : tensor<i64>
  %starts = loom.broadcast %start dims = [] : (tensor<i64>) -> tensor<8xi64>
  %local = loom.subtract %index, %starts : tensor<8xi64>
  %low = loom.maximum %local, %first : tensor<8xi64>
  %inside = loom.minimum %low, %last : tensor<8xi64>
  %found = loom.gather %t, %inside dim = 0 : (tensor<10x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  %mine = loom.compare eq %local, %inside : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %mask = loom.broadcast %mine dims = [0] : (tensor<8xi1>) -> tensor<8x16xi1>
  %own = loom.select %mask, %found, %none : tensor<8x16xi1>, tensor<8x16xf32>
  return %own : tensor<8x16xf32>
}

// -----

// These get their own kernels: a transpose of rows, a reduction of columns, a concatenation.
// CHECK-LABEL: func.func @alone
// CHECK-NEXT: plan.call @k_exp_0
// CHECK-NEXT: plan.call @k_transpose_0
// CHECK-NEXT: plan.call @k_reduce_0
// CHECK-NEXT: plan.call @k_concatenate_0
// CHECK-DAG: plan.kernel @k_transpose_0
// CHECK-DAG: plan.kernel @k_reduce_0
// CHECK-DAG: plan.kernel @k_concatenate_0
func.func @alone(%x: tensor<8x16xf32>) -> (tensor<16x8xf32>, tensor<16xf32>, tensor<16x16xf32>) {
  %0 = loom.exp %x : tensor<8x16xf32>
  %1 = loom.transpose %0 [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
  %2 = loom.reduce sum %0 dims = [0] : (tensor<8x16xf32>) -> tensor<16xf32>
  %3 = loom.concatenate %0, %x dim = 0 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32>
  return %1, %2, %3 : tensor<16x8xf32>, tensor<16xf32>, tensor<16x16xf32>
}

// -----

// A costly value that is read through a broadcast is stored once, not computed for each copy.
// CHECK-LABEL: func.func @costly
// CHECK-NEXT: plan.call @k_exp_0(%arg0)
// CHECK-NEXT: plan.call @k_multiply_bias_0
func.func @costly(%x: tensor<16xf32>, %y: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = loom.exp %x : tensor<16xf32>
  %1 = loom.broadcast %0 dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %2 = loom.multiply %y, %1 : tensor<8x16xf32>
  %3 = loom.add %2, %1 : tensor<8x16xf32>
  return %3 : tensor<8x16xf32>
}

// -----

// Communication splits kernels: a group's operand is computed as early as possible, its result starts a kernel.
// CHECK-LABEL: func.func @communication
// CHECK-NEXT: %[[A:.*]] = plan.call @k_exp_0(%arg0)
// CHECK-NEXT: dist.start
// CHECK-NEXT: dist.all_reduce %[[A]]
// CHECK: %[[D:.*]] = dist.done
// CHECK-NEXT: plan.call @k_exp_add_0(%[[D]], %[[A]])
func.func @communication(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = loom.exp %x : tensor<8x16xf32>
  %f = dist.start {
    %1 = dist.all_reduce %0 over ["model"] sum : tensor<8x16xf32>
    dist.yield %1 : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %2 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %3 = loom.exp %2 : tensor<8x16xf32>
  %4 = loom.add %3, %0 : tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// -----

// Specialisations and the prologue share kernels, even if the operations' origins differ.
// CHECK-LABEL: loom.derived @d
// CHECK: plan.call @k_exp_0
// CHECK-LABEL: func.func @small
// CHECK: plan.call @k_exp_0
// CHECK-LABEL: func.func @large
// CHECK: plan.call @k_exp_1
// CHECK-COUNT-2: plan.kernel
// CHECK-NOT: plan.kernel
loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
loom.derived @d : tensor<4xf32> {
  %0 = loom.get_weight @w : tensor<4xf32>
  %1 = loom.exp %0 : tensor<4xf32>
  loom.yield %1 : tensor<4xf32>
}
func.func @small(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = loom.exp %x {dist.stage = 1 : i64} : tensor<4xf32> loc("a/exp")
  return %0 : tensor<4xf32>
}
func.func @large(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = loom.exp %x : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A rotary embedding is one kernel, which reads the halves and the heads in place.
// CHECK-LABEL: func.func @rotary
// CHECK-NEXT: plan.call @k_{{.*}}(%arg0, %arg1, %arg2)
// CHECK-NEXT: return
// CHECK: plan.kernel
// CHECK-COUNT-2: loom.slice
// CHECK: loom.concatenate
func.func @rotary(%x: tensor<2x3x4x8xf32>, %cos: tensor<4x8xf32>, %sin: tensor<4x8xf32>) -> tensor<2x4x3x8xf32> {
  %0 = loom.transpose %x [0, 2, 1, 3] : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %1 = loom.slice %0 [0, 0, 0, 0] to [2, 4, 3, 4] by [1, 1, 1, 1] : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %2 = loom.slice %0 [0, 0, 0, 4] to [2, 4, 3, 8] by [1, 1, 1, 1] : (tensor<2x4x3x8xf32>) -> tensor<2x4x3x4xf32>
  %3 = loom.negate %2 : tensor<2x4x3x4xf32>
  %4 = loom.concatenate %3, %1 dim = 3 : (tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>) -> tensor<2x4x3x8xf32>
  %5 = loom.broadcast %cos dims = [1, 3] : (tensor<4x8xf32>) -> tensor<2x4x3x8xf32>
  %6 = loom.broadcast %sin dims = [1, 3] : (tensor<4x8xf32>) -> tensor<2x4x3x8xf32>
  %7 = loom.multiply %0, %5 : tensor<2x4x3x8xf32>
  %8 = loom.multiply %4, %6 : tensor<2x4x3x8xf32>
  %9 = loom.add %7, %8 : tensor<2x4x3x8xf32>
  return %9 : tensor<2x4x3x8xf32>
}

// -----

// Each kernel reads its part of a tensor in memory. If only a part is read, the rest is not computed.
// CHECK-LABEL: func.func @parts
// CHECK-NEXT: %[[P:.*]] = plan.call @k_slice_exp_0(%arg0)
// CHECK-NEXT: %[[Q:.*]] = plan.call @k_slice_tanh_0(%arg0)
// CHECK-NEXT: %[[R:.*]] = plan.call @k_slice_layer_norm_0(%arg0, %arg1)
// CHECK-NEXT: %[[S:.*]] = plan.call @k_exp_slice_negate_0(%arg0)
// CHECK-NEXT: return %[[P]], %[[Q]], %[[R]], %[[S]]
func.func @parts(%x: tensor<4x16xf32>, %g: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<1x16xf32>) {
  %0 = loom.slice %x [0, 8] to [4, 16] by [1, 1] : (tensor<4x16xf32>) -> tensor<4x8xf32>
  %1 = loom.exp %0 : tensor<4x8xf32>
  %2 = loom.tanh %0 : tensor<4x8xf32>
  %3 = loom.layer_norm %0, %g epsilon = 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %4 = loom.exp %x : tensor<4x16xf32>
  %5 = loom.slice %4 [3, 0] to [4, 16] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x16xf32>
  %6 = loom.negate %5 : tensor<1x16xf32>
  return %1, %2, %3, %6 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<1x16xf32>
}

// -----

// For operations that no kernel can read through, a contiguous slice of a computed value is an
// address if it starts at a multiple of 16 bytes; other slices are copies.
// CHECK-LABEL: func.func @address
// CHECK-NEXT: %[[E:.*]] = plan.call @k_softmax_0(%arg0)
// CHECK-NEXT: %[[V:.*]] = loom.slice %[[E]] [2, 4] to [3, 12]
// CHECK-NEXT: plan.call @k_argsort_0(%[[V]])
// CHECK-NEXT: %[[C:.*]] = plan.call @k_slice_0(%[[E]])
// CHECK-NEXT: plan.call @k_argsort_0(%[[C]])
func.func @address(%x: tensor<4x16xf32>) -> (tensor<1x8xi64>, tensor<1x8xi64>) {
  %0 = loom.softmax %x dim = 1 : tensor<4x16xf32>
  %1 = loom.slice %0 [2, 4] to [3, 12] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x8xf32>
  %2 = loom.argsort %1 dim = 1 : (tensor<1x8xf32>) -> tensor<1x8xi64>
  %3 = loom.slice %0 [2, 3] to [3, 11] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x8xf32>
  %4 = loom.argsort %3 dim = 1 : (tensor<1x8xf32>) -> tensor<1x8xi64>
  return %2, %4 : tensor<1x8xi64>, tensor<1x8xi64>
}

// -----

// The threads of a row must do the same work, so a norm of a concatenation reads it from memory.
// CHECK-LABEL: func.func @joined_rows
// CHECK-NEXT: %[[J:.*]] = plan.call @k_tanh_concatenate_0(%arg0, %arg1)
// CHECK-NEXT: plan.call @k_layer_norm_0(%[[J]], %arg2)
// CHECK-NEXT: return
func.func @joined_rows(%x: tensor<1x16xf32>, %y: tensor<3x16xf32>, %g: tensor<16xf32>) -> tensor<4x16xf32> {
  %0 = loom.tanh %x : tensor<1x16xf32>
  %1 = loom.concatenate %0, %y dim = 0 : (tensor<1x16xf32>, tensor<3x16xf32>) -> tensor<4x16xf32>
  %2 = loom.layer_norm %1, %g epsilon = 1.0e-5 : (tensor<4x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
  return %2 : tensor<4x16xf32>
}

// -----

// Indices are computed where they are used.
// CHECK-LABEL: func.func @lookup
// CHECK-NEXT: plan.call @k_{{.*}}add_0(%{{.*}}, %{{.*}}, %arg2)
// CHECK-NEXT: return
// CHECK: plan.kernel
func.func @lookup(%table: tensor<32x16xf32>, %ids: tensor<4xi64>, %y: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %zero = loom.constant dense<0> : tensor<4xi64>
  %size = loom.constant dense<32> : tensor<4xi64>
  %0 = loom.compare lt %ids, %zero : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %1 = loom.add %ids, %size : tensor<4xi64>
  %2 = loom.select %0, %1, %ids : tensor<4xi1>, tensor<4xi64>
  %3 = loom.gather %table, %2 dim = 0 : (tensor<32x16xf32>, tensor<4xi64>) -> tensor<4x16xf32>
  %4 = loom.add %3, %y : tensor<4x16xf32>
  return %4 : tensor<4x16xf32>
}

// -----

// A sum of eleven rows' results: one kernel keeps eight at a time, a second sums the others.
// CHECK-LABEL: func.func @many_reductions
// CHECK-NEXT: %[[S:.*]] = plan.call @k_{{.*}}(%arg0, %arg1, %arg2)
// CHECK-NEXT: %[[T:.*]] = plan.call @k_{{.*}}%[[S]]
// CHECK-NEXT: return %[[T]]
// CHECK-COUNT-11: loom.reduce sum
func.func @many_reductions(%x0: tensor<64xf32>, %x1: tensor<64xf32>, %x2: tensor<64xf32>, %x3: tensor<64xf32>, %x4: tensor<64xf32>, %x5: tensor<64xf32>, %x6: tensor<64xf32>, %x7: tensor<64xf32>, %x8: tensor<64xf32>, %x9: tensor<64xf32>, %x10: tensor<64xf32>) -> tensor<f32> {
  %r0 = loom.reduce sum %x0 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %r1 = loom.reduce sum %x1 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s1 = loom.add %r0, %r1 : tensor<f32>
  %r2 = loom.reduce sum %x2 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s2 = loom.add %s1, %r2 : tensor<f32>
  %r3 = loom.reduce sum %x3 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s3 = loom.add %s2, %r3 : tensor<f32>
  %r4 = loom.reduce sum %x4 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s4 = loom.add %s3, %r4 : tensor<f32>
  %r5 = loom.reduce sum %x5 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s5 = loom.add %s4, %r5 : tensor<f32>
  %r6 = loom.reduce sum %x6 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s6 = loom.add %s5, %r6 : tensor<f32>
  %r7 = loom.reduce sum %x7 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s7 = loom.add %s6, %r7 : tensor<f32>
  %r8 = loom.reduce sum %x8 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s8 = loom.add %s7, %r8 : tensor<f32>
  %r9 = loom.reduce sum %x9 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s9 = loom.add %s8, %r9 : tensor<f32>
  %r10 = loom.reduce sum %x10 dims = [0] : (tensor<64xf32>) -> tensor<f32>
  %s10 = loom.add %s9, %r10 : tensor<f32>
  return %s10 : tensor<f32>
}

// -----

// Partial sums of gradients over parts of a batch are written to memory, each in the previous one's place.
// CHECK-LABEL: func.func @parts
// CHECK-NEXT: %[[A:.*]] = plan.call @k_add_0(%arg0, %arg1)
// CHECK-NEXT: %[[B:.*]] = plan.call @k_add_0(%[[A]], %arg2)
// CHECK-NEXT: %[[C:.*]] = plan.call @k_exp_0(%[[B]])
// CHECK-NEXT: return %[[C]]
func.func @parts(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: tensor<64xf32>) -> tensor<64xf32> {
  %0 = loom.add %a, %b {loom.accumulates = "w"} : tensor<64xf32>
  %1 = loom.add %0, %c {loom.accumulates = "w"} : tensor<64xf32>
  %2 = loom.exp %1 : tensor<64xf32>
  return %2 : tensor<64xf32>
}

// -----

// Kernels that compute the same 16-bit floats round them alike, so that none is above its maximum.
// CHECK-LABEL: func.func @repeated_halves
// CHECK: plan.kernel @k_multiply_subtract_0
// CHECK: %[[P:.*]] = loom.multiply
// CHECK-NEXT: %[[W:.*]] = loom.convert %[[P]] : (tensor<64x48xf16>) -> tensor<64x48xf32>
// CHECK-NEXT: loom.convert %[[W]] : (tensor<64x48xf32>) -> tensor<64x48xf16>
// CHECK: plan.kernel @k_multiply_reduce_0
// CHECK: %[[P:.*]] = loom.multiply
// CHECK-NEXT: loom.convert %[[P]]
func.func @repeated_halves(%x: tensor<64x48xf16>) -> tensor<64x48xf16> {
  %c = loom.constant dense<0.1> : tensor<64x48xf16>
  %0 = loom.multiply %x, %c : tensor<64x48xf16>
  %1 = loom.reduce max %0 dims = [0] : (tensor<64x48xf16>) -> tensor<48xf16>
  %2 = loom.broadcast %1 dims = [1] : (tensor<48xf16>) -> tensor<64x48xf16>
  %3 = loom.subtract %0, %2 : tensor<64x48xf16>
  return %3 : tensor<64x48xf16>
}
