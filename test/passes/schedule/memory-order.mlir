// RUN: gridloom-opt %s --plan-schedule --plan-verify-scheduled | FileCheck %s

plan.kernel @sum {
^bb0(%x: tensor<64x64xf32>):
  %0 = loom.reduce sum %x dims = [0, 1] : (tensor<64x64xf32>) -> tensor<f32>
  loom.yield %0 : tensor<f32>
}
plan.kernel @exp {
^bb0(%x: tensor<64x64xf32>):
  %0 = loom.exp %x : tensor<64x64xf32>
  loom.yield %0 : tensor<64x64xf32>
}
plan.kernel @scale {
^bb0(%x: tensor<64x64xf32>, %s: tensor<f32>):
  %0 = loom.broadcast %s dims = [] : (tensor<f32>) -> tensor<64x64xf32>
  %1 = loom.multiply %x, %0 : tensor<64x64xf32>
  loom.yield %1 : tensor<64x64xf32>
}

// The sum has least work behind it, but ends what it reads: with it in front, the second exponential takes the place of the first.
// CHECK-LABEL: plan.program @chain
// CHECK: plan.launch @exp
// CHECK-NEXT: plan.launch @sum
// CHECK-NEXT: plan.launch @exp
// CHECK-NEXT: plan.launch @exp
// CHECK-NEXT: plan.launch @scale
func.func @chain(%x: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {loom.dims = {}, loom.entry = "train_step"} {
  %0 = plan.call @exp(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = plan.call @exp(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = plan.call @exp(%1) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = plan.call @sum(%0) : (tensor<64x64xf32>) -> tensor<f32>
  %4 = plan.call @scale(%2, %3) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  return %4 : tensor<64x64xf32>
}
