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
plan.kernel @add {
^bb0(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>):
  %0 = loom.add %x, %y : tensor<64x64xf32>
  loom.yield %0 : tensor<64x64xf32>
}
plan.kernel @scale {
^bb0(%x: tensor<64x64xf32>, %s: tensor<f32>):
  %0 = loom.broadcast %s dims = [] : (tensor<f32>) -> tensor<64x64xf32>
  %1 = loom.multiply %x, %0 : tensor<64x64xf32>
  loom.yield %1 : tensor<64x64xf32>
}

dist.mesh @mesh <["data" = 2]>

// The sum has the least work behind it, but ends its operand's life: placed first, it frees memory for the second exponential.
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

// In a step of two parts the second part does not begin before the first has ended, though more work is behind it.
// CHECK-LABEL: plan.program @parts
// CHECK: plan.launch @exp ins(%0
// CHECK: plan.launch @sum
// CHECK: plan.launch @exp ins(%1
func.func @parts(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32>
    attributes {loom.dims = {}, loom.entry = "train_step", loom.parts = 2 : i64} {
  %0 = plan.call @exp(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = plan.call @sum(%0) : (tensor<64x64xf32>) -> tensor<f32>
  %2 = plan.call @exp(%y) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = plan.call @scale(%2, %1) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %f = dist.start {
    %r = dist.all_reduce %2 over ["data"] sum : tensor<64x64xf32>
    dist.yield %r : tensor<64x64xf32>
  } : !dist.future<tensor<64x64xf32>>
  %4 = dist.done %f : !dist.future<tensor<64x64xf32>> -> tensor<64x64xf32>
  %5 = plan.call @add(%3, %4) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %5 : tensor<64x64xf32>
}

// CHECK-LABEL: plan.program @whole
// CHECK: plan.launch @exp ins(%1
// CHECK: plan.launch @exp ins(%0
func.func @whole(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32>
    attributes {loom.dims = {}, loom.entry = "train_step"} {
  %0 = plan.call @exp(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = plan.call @sum(%0) : (tensor<64x64xf32>) -> tensor<f32>
  %2 = plan.call @exp(%y) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = plan.call @scale(%2, %1) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %f = dist.start {
    %r = dist.all_reduce %2 over ["data"] sum : tensor<64x64xf32>
    dist.yield %r : tensor<64x64xf32>
  } : !dist.future<tensor<64x64xf32>>
  %4 = dist.done %f : !dist.future<tensor<64x64xf32>> -> tensor<64x64xf32>
  %5 = plan.call @add(%3, %4) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %5 : tensor<64x64xf32>
}

// Beside a message, too: the sum is computed while its operand is at hand, since the step takes no longer by that.
// CHECK-LABEL: plan.program @besides
// CHECK: plan.launch @exp
// CHECK-NEXT: plan.launch @sum
// CHECK-NEXT: plan.launch @exp
// CHECK-NEXT: plan.launch @exp
// CHECK: plan.launch @scale
func.func @besides(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> attributes {loom.dims = {}, loom.entry = "train_step"} {
  %f = dist.start {
    %r = dist.all_reduce %y over ["data"] sum : tensor<64x64xf32>
    dist.yield %r : tensor<64x64xf32>
  } : !dist.future<tensor<64x64xf32>>
  %0 = plan.call @exp(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = plan.call @exp(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = plan.call @exp(%1) : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = plan.call @sum(%0) : (tensor<64x64xf32>) -> tensor<f32>
  %4 = plan.call @scale(%2, %3) : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf32>
  %5 = dist.done %f : !dist.future<tensor<64x64xf32>> -> tensor<64x64xf32>
  %6 = plan.call @add(%4, %5) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %6 : tensor<64x64xf32>
}
