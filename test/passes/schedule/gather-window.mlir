// RUN: gridloom-opt %s --plan-schedule --plan-verify-scheduled --plan-allocate --plan-verify-allocated | FileCheck %s

plan.kernel @sum {
^bb0(%x: tensor<8x64xf32>):
  %0 = loom.reduce sum %x dims = [0, 1] : (tensor<8x64xf32>) -> tensor<f32>
  loom.yield %0 : tensor<f32>
}
plan.kernel @add {
^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>):
  %0 = loom.add %a, %b : tensor<f32>
  %1 = loom.add %0, %c : tensor<f32>
  loom.yield %1 : tensor<f32>
}
dist.mesh @mesh <["data" = 2]>

// There is room for two of 2048 bytes: the third starts when the first has been used, in its place. Each is used as the program has it.
// CHECK-LABEL: plan.program @window
// CHECK: plan.group all_gather {{.*}} sequence 0 ins(%{{.*}}) outs(%[[A:.*]] : {{.*}})
// CHECK: plan.group all_gather {{.*}} sequence 1 ins(%{{.*}}) outs(%[[B:.*]] : {{.*}})
// CHECK: plan.launch @sum ins(%[[A]]
// CHECK-NEXT: plan.record [[USED:.*]] on compute
// CHECK-NEXT: plan.wait [[USED]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 2 ins(%{{.*}}) outs(%[[C:.*]] : {{.*}})
// CHECK: plan.launch @sum ins(%[[B]]
// CHECK: plan.launch @sum ins(%[[C]]
// CHECK: } {{{.*}}dist.gather_window = 4096 : i64{{.*}}registered_bytes = 4096 : i64
func.func @window(%u: tensor<4x64xf32> {loom.name = "u", loom.state = "u", loom.role = "parameter"}, %v: tensor<4x64xf32> {loom.name = "v", loom.state = "v", loom.role = "parameter"},
    %w: tensor<4x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"}) -> (tensor<f32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.gather_window = 4096 : i64, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r = dist.all_gather %u over ["data"] dim = 0 {dist.gathered = 0 : i64} : (tensor<4x64xf32>) -> tensor<8x64xf32>
    dist.yield %r : tensor<8x64xf32>
  } : !dist.future<tensor<8x64xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x64xf32>> -> tensor<8x64xf32>
  %g = dist.start {
    %r = dist.all_gather %v over ["data"] dim = 0 {dist.gathered = 1 : i64} : (tensor<4x64xf32>) -> tensor<8x64xf32>
    dist.yield %r : tensor<8x64xf32>
  } : !dist.future<tensor<8x64xf32>>
  %1 = dist.done %g : !dist.future<tensor<8x64xf32>> -> tensor<8x64xf32>
  %h = dist.start {
    %r = dist.all_gather %w over ["data"] dim = 0 {dist.gathered = 2 : i64} : (tensor<4x64xf32>) -> tensor<8x64xf32>
    dist.yield %r : tensor<8x64xf32>
  } : !dist.future<tensor<8x64xf32>>
  %2 = dist.done %h : !dist.future<tensor<8x64xf32>> -> tensor<8x64xf32>
  %3 = plan.call @sum(%0) : (tensor<8x64xf32>) -> tensor<f32>
  %4 = plan.call @sum(%1) : (tensor<8x64xf32>) -> tensor<f32>
  %5 = plan.call @sum(%2) : (tensor<8x64xf32>) -> tensor<f32>
  %6 = plan.call @add(%3, %4, %5) : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return %6 : tensor<f32>
}

plan.kernel @sum_half {
^bb0(%x: tensor<4x64xf32>):
  %0 = loom.reduce sum %x dims = [0, 1] : (tensor<4x64xf32>) -> tensor<f32>
  loom.yield %0 : tensor<f32>
}

// What is used together comes in one message, into buffers of its own. There is room for one such unit in use and the next: the third one
// starts when both of the first have been used, in their place.
// CHECK-LABEL: plan.program @units
// CHECK: plan.group all_gather {{.*}} sequence 0 ins(%{{[^ ,]*}}, %{{[^ ,]*}} : {{.*}}) outs(%[[A:[^ ,]*]], %[[B:[^ ,]*]] : {{.*}}) on collective over ["data"] {dist.because = "a bucket of 2"}
// CHECK: plan.group all_gather {{.*}} sequence 1 ins(%{{[^ ,]*}} : {{.*}}) outs(%[[C:[^ ,]*]] : {{.*}})
// CHECK: plan.launch @sum_half ins(%[[A]]
// CHECK: plan.launch @sum_half ins(%[[B]]
// CHECK-NEXT: plan.record [[USED:.*]] on compute
// CHECK-NEXT: plan.wait [[USED]] on collective
// CHECK-NEXT: plan.group all_gather {{.*}} sequence 2
// CHECK: plan.launch @sum ins(%[[C]]
// CHECK-NOT: plan.group
// CHECK: } {{{.*}}dist.gather_window = 4096 : i64{{.*}}registered_bytes = 4096 : i64
func.func @units(%u: tensor<2x64xf32> {loom.name = "u", loom.state = "u", loom.role = "parameter"}, %v: tensor<2x64xf32> {loom.name = "v", loom.state = "v", loom.role = "parameter"},
    %w: tensor<4x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"}, %t: tensor<4x64xf32> {loom.name = "t", loom.state = "t", loom.role = "parameter"}) -> (tensor<f32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.gather_window = 4096 : i64, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r = dist.all_gather %u over ["data"] dim = 0 {dist.gathered = 0 : i64} : (tensor<2x64xf32>) -> tensor<4x64xf32>
    %s = dist.all_gather %v over ["data"] dim = 0 {dist.gathered = 0 : i64} : (tensor<2x64xf32>) -> tensor<4x64xf32>
    dist.yield %r, %s : tensor<4x64xf32>, tensor<4x64xf32>
  } {dist.because = "a bucket of 2"} : !dist.future<tensor<4x64xf32>, tensor<4x64xf32>>
  %0:2 = dist.done %f : !dist.future<tensor<4x64xf32>, tensor<4x64xf32>> -> tensor<4x64xf32>, tensor<4x64xf32>
  %g = dist.start {
    %r = dist.all_gather %w over ["data"] dim = 0 {dist.gathered = 1 : i64} : (tensor<4x64xf32>) -> tensor<8x64xf32>
    dist.yield %r : tensor<8x64xf32>
  } : !dist.future<tensor<8x64xf32>>
  %1 = dist.done %g : !dist.future<tensor<8x64xf32>> -> tensor<8x64xf32>
  %h = dist.start {
    %r = dist.all_gather %t over ["data"] dim = 0 {dist.gathered = 2 : i64} : (tensor<4x64xf32>) -> tensor<8x64xf32>
    dist.yield %r : tensor<8x64xf32>
  } : !dist.future<tensor<8x64xf32>>
  %2 = dist.done %h : !dist.future<tensor<8x64xf32>> -> tensor<8x64xf32>
  %3 = plan.call @sum_half(%0#0) : (tensor<4x64xf32>) -> tensor<f32>
  %4 = plan.call @sum_half(%0#1) : (tensor<4x64xf32>) -> tensor<f32>
  %5 = plan.call @sum(%1) : (tensor<8x64xf32>) -> tensor<f32>
  %6 = plan.call @sum(%2) : (tensor<8x64xf32>) -> tensor<f32>
  %7 = plan.call @add(%3, %4, %5) : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %8 = plan.call @add(%5, %6, %7) : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return %8 : tensor<f32>
}
