// RUN: gridloom-opt %s --split-input-file --plan-form-kernels --plan-verify-fused | FileCheck %s

// Inputs that are read element by element may be overwritten, but no broadcast vectors and no tensors of wider elements.
// CHECK: plan.kernel @k_bias_convert_add_add_0 in_place = [#plan.in_place<output = 0, input = 1>, #plan.in_place<output = 0, input = 2>] {
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<16xf32>, %{{.*}}: tensor<8x16xf32>, %{{.*}}: tensor<8x16xi32>, %{{.*}}: tensor<8x16xf64>):
func.func @sum(%x: tensor<8x16xf32>, %y: tensor<8x16xi32>, %z: tensor<8x16xf64>, %b: tensor<16xf32>) -> tensor<8x16xf32> {
  %0 = loom.broadcast %b dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %1 = loom.add %x, %0 : tensor<8x16xf32>
  %2 = loom.convert %y : (tensor<8x16xi32>) -> tensor<8x16xf32>
  %3 = loom.add %1, %2 : tensor<8x16xf32>
  %4 = loom.convert %z : (tensor<8x16xf64>) -> tensor<8x16xf32>
  %5 = loom.add %3, %4 : tensor<8x16xf32>
  return %5 : tensor<8x16xf32>
}

// -----

// Not a broadcast column, nor an operand that is also read at other indices.
// CHECK-DAG: plan.kernel @k_multiply_0 in_place = [#plan.in_place<output = 0, input = 1>] {
// CHECK-DAG: plan.kernel @k_transpose_add_0 {
func.func @rows(%x: tensor<4x4xf32>, %s: tensor<4x1xf32>, %y: tensor<4x4x8xf32>) -> (tensor<4x4xf32>, tensor<4x4x8xf32>) {
  %0 = loom.broadcast %s dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x4xf32>
  %1 = loom.multiply %x, %0 : tensor<4x4xf32>
  %2 = loom.transpose %y [1, 0, 2] : (tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %3 = loom.add %y, %2 : tensor<4x4x8xf32>
  return %1, %3 : tensor<4x4xf32>, tensor<4x4x8xf32>
}

// -----

// A transpose reads other indices, and a kernel that moves or combines elements reads ahead.
// CHECK-DAG: plan.kernel @k_transpose_exp_0 {
// CHECK-DAG: plan.kernel @k_softmax_add_0 {
// CHECK-DAG: plan.kernel @k_argsort_0 {
func.func @none(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>, %z: tensor<4x4x8xf32>) -> (tensor<8x8xi64>, tensor<8x8xf32>, tensor<4x4x8xf32>) {
  %0 = loom.argsort %x dim = 1 : (tensor<8x8xf32>) -> tensor<8x8xi64>
  %1 = loom.softmax %x dim = 1 : tensor<8x8xf32>
  %2 = loom.add %1, %y : tensor<8x8xf32>
  %3 = loom.transpose %z [1, 0, 2] : (tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %4 = loom.exp %3 : tensor<4x4x8xf32>
  return %0, %2, %4 : tensor<8x8xi64>, tensor<8x8xf32>, tensor<4x4x8xf32>
}

// -----

// A scatter's copy may be in its input's memory, running values in that of their elements.
// CHECK-DAG: plan.kernel @k_cumulative_0 in_place = [#plan.in_place<output = 0, input = 0>] {
// CHECK-DAG: plan.kernel @k_scatter_0 in_place = [#plan.in_place<output = 0, input = 0>] {
func.func @lanes(%x: tensor<8x4xf32>, %i: tensor<8x4xi64>, %u: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = loom.scatter %x, %i, %u dim = 0 : (tensor<8x4xf32>, tensor<8x4xi64>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %1 = loom.cumulative sum %0 dim = 0 : tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
