// RUN: gridloom-opt %s --split-input-file --plan-form-kernels --plan-verify-fused | FileCheck %s

// Operations that step along a dimension in order, scatter or sort get kernels of their own.
// CHECK-LABEL: func.func @top_k
// CHECK-NEXT: %[[E:.*]] = plan.call @k_exp_0(%arg0)
// CHECK-NEXT: %[[P:.*]] = plan.call @k_argsort_0(%[[E]])
// CHECK-NEXT: %[[V:.*]] = plan.call @k_gather_elements_0(%[[E]], %[[P]])
// CHECK-NEXT: plan.call @k_cumulative_0(%[[V]])
// CHECK: plan.kernel @k_argsort_0 {
// CHECK-NEXT: ^bb0
// CHECK-NEXT: loom.argsort
// CHECK-NEXT: loom.yield
func.func @top_k(%x: tensor<4x50xf32>) -> tensor<4x5xf32> {
  %0 = loom.exp %x : tensor<4x50xf32>
  %1 = loom.argsort %0 dim = 1 descending : (tensor<4x50xf32>) -> tensor<4x5xi64>
  %2 = loom.gather_elements %0, %1 dim = 1 : (tensor<4x50xf32>, tensor<4x5xi64>) -> tensor<4x5xf32>
  %3 = loom.cumulative sum %2 dim = 1 : tensor<4x5xf32>
  return %3 : tensor<4x5xf32>
}

// -----

// Splats and iotas are passed as values in memory, too.
// CHECK-LABEL: func.func @scatter_into_zeros
// CHECK: %[[Z:.*]] = loom.constant dense<0.000000e+00> : tensor<9x4xf32>
// CHECK: %[[I:.*]] = plan.call @k_iota_0() : () -> tensor<3xi64>
// CHECK: plan.call @k_scatter_0(%[[Z]], %[[I]], %arg0)
func.func @scatter_into_zeros(%u: tensor<3x4xf32>) -> tensor<9x4xf32> {
  %0 = loom.constant dense<0.0> : tensor<9x4xf32>
  %1 = loom.iota dim = 0 : tensor<3xi64>
  %2 = loom.scatter %0, %1, %u dim = 0 : (tensor<9x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<9x4xf32>
  return %2 : tensor<9x4xf32>
}

// -----

// The index of the largest element is found in the kernel that computes the elements.
// CHECK-LABEL: func.func @arg_max
// CHECK-NEXT: plan.call @k_exp_arg_reduce_0
// CHECK-NEXT: return
// CHECK: plan.kernel @k_exp_arg_reduce_0
func.func @arg_max(%x: tensor<4x50xf32>) -> tensor<4xi64> {
  %0 = loom.exp %x : tensor<4x50xf32>
  %1 = loom.arg_reduce max %0 dim = 1 : (tensor<4x50xf32>) -> tensor<4xi64>
  return %1 : tensor<4xi64>
}

// -----

// A lane kernel takes each operand separately, even twice the same.
// CHECK-LABEL: func.func @into_itself
// CHECK-NEXT: plan.call @k_scatter_0(%arg0, %arg1, %arg0)
// CHECK: ^bb0(%[[X:.*]]: tensor<4x3xf32>, %[[I:.*]]: tensor<4x3xi64>, %[[U:.*]]: tensor<4x3xf32>):
// CHECK-NEXT: loom.scatter %[[X]], %[[I]], %[[U]]
func.func @into_itself(%x: tensor<4x3xf32>, %i: tensor<4x3xi64>) -> tensor<4x3xf32> {
  %0 = loom.scatter %x, %i, %x dim = 0 : (tensor<4x3xf32>, tensor<4x3xi64>, tensor<4x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
