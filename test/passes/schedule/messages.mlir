// RUN: gridloom-opt %s --split-input-file --plan-schedule --plan-verify-scheduled --plan-allocate --plan-verify-allocated --mlir-print-local-scope | FileCheck %s

plan.kernel @exp {
^bb0(%x: tensor<8x2xf32>):
  %0 = loom.exp %x : tensor<8x2xf32>
  loom.yield %0 : tensor<8x2xf32>
}
plan.kernel @add {
^bb0(%x: tensor<16xf32>, %y: tensor<16xf32>):
  %0 = loom.add %x, %y : tensor<16xf32>
  loom.yield %0 : tensor<16xf32>
}
dist.mesh @mesh <["data" = 2]>

// An all_reduce of two values is one message: a buffer in which each value begins at a cache line. A value computed only for it is
// computed there, under any shape; an argument is copied there. The sums are in the same places.
// CHECK-LABEL: plan.program @message
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x"
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y"
// CHECK-DAG: %[[M:.*]] = plan.buffer registered {bytes = 128 : i64, offset = 0 : i64} : <tensor<32xf32>>
// CHECK-DAG: plan.alias %[[M]] : (!plan.buffer<tensor<32xf32>>) -> !plan.buffer<tensor<16xf32>>
// CHECK-DAG: plan.alias %[[M]] {offset = 16 : i64} : (!plan.buffer<tensor<32xf32>>) -> !plan.buffer<tensor<16xf32>>
// CHECK: plan.block {
// CHECK-DAG: plan.launch @exp ins(%[[X]] : {{.*}})
// CHECK-DAG: plan.copy ins(%{{.*}} : !plan.buffer<tensor<16xf32>>)
// CHECK: plan.group all_reduce over ["data"] by sum sequence 0 ins(%[[M]] : {{.*}}) outs(%[[M]] : {{.*}})
// CHECK: plan.launch @add {{.*}} outs(%[[Y]] : {{.*}})
// CHECK: } {{{.*}}registered_bytes = 128 : i64
func.func @message(%x: tensor<8x2xf32> {loom.name = "x"}) -> (tensor<16xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @exp(%x) : (tensor<8x2xf32>) -> tensor<8x2xf32>
  %1 = loom.reshape %0 : (tensor<8x2xf32>) -> tensor<16xf32>
  %2 = loom.reshape %x : (tensor<8x2xf32>) -> tensor<16xf32>
  %f = dist.start {
    %r:2 = dist.all_reduce %1, %2 over ["data"] sum : tensor<16xf32>, tensor<16xf32>
    dist.yield %r#0, %r#1 : tensor<16xf32>, tensor<16xf32>
  } : !dist.future<tensor<16xf32>, tensor<16xf32>>
  %3:2 = dist.done %f : !dist.future<tensor<16xf32>, tensor<16xf32>> -> tensor<16xf32>, tensor<16xf32>
  %4 = plan.call @add(%3#0, %3#1) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %4 : tensor<16xf32>
}

// -----

plan.kernel @exp {
^bb0(%x: tensor<16xf32>):
  %0 = loom.exp %x : tensor<16xf32>
  loom.yield %0 : tensor<16xf32>
}
plan.kernel @add {
^bb0(%x: tensor<16xf32>, %y: tensor<16xf32>):
  %0 = loom.add %x, %y : tensor<16xf32>
  loom.yield %0 : tensor<16xf32>
}
dist.mesh @mesh <["data" = 2]>

// A value that is also read elsewhere, or is in the message twice, has its own memory.
// CHECK-LABEL: plan.program @beside
// CHECK: plan.launch @exp ins(%{{.*}}) outs(%[[E:.*]] : {{.*}})
// CHECK-COUNT-2: plan.copy ins(%[[E]] : {{.*}})
// CHECK: plan.group all_reduce {{.*}} ins(%[[M:.*]] : {{.*}}) outs(%[[M]] : {{.*}})
func.func @beside(%x: tensor<16xf32> {loom.name = "x"}) -> (tensor<16xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @exp(%x) : (tensor<16xf32>) -> tensor<16xf32>
  %f = dist.start {
    %r:2 = dist.all_reduce %0, %0 over ["data"] sum : tensor<16xf32>, tensor<16xf32>
    dist.yield %r#0, %r#1 : tensor<16xf32>, tensor<16xf32>
  } : !dist.future<tensor<16xf32>, tensor<16xf32>>
  %1:2 = dist.done %f : !dist.future<tensor<16xf32>, tensor<16xf32>> -> tensor<16xf32>, tensor<16xf32>
  %2 = plan.call @add(%1#0, %0) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %3 = plan.call @add(%1#1, %2) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %3 : tensor<16xf32>
}

// -----

plan.kernel @add {
^bb0(%x: tensor<5xf32>, %y: tensor<5xf32>):
  %0 = loom.add %x, %y : tensor<5xf32>
  loom.yield %0 : tensor<5xf32>
}
plan.kernel @first {
^bb0(%x: tensor<16xf32>):
  %0 = loom.slice %x [0] to [5] by [1] : (tensor<16xf32>) -> tensor<5xf32>
  loom.yield %0 : tensor<5xf32>
}
dist.mesh @mesh <["data" = 2]>

// The value that does not fill its lines comes last, so no gap follows it.
// CHECK-LABEL: plan.program @last
// CHECK-DAG: %[[M:.*]] = plan.buffer registered {bytes = 84 : i64, offset = 0 : i64} : <tensor<21xf32>>
// CHECK-DAG: plan.alias %[[M]] {offset = 16 : i64} : (!plan.buffer<tensor<21xf32>>) -> !plan.buffer<tensor<5xf32>>
// CHECK-COUNT-2: plan.copy
// CHECK-NOT: plan.copy
// CHECK: plan.group all_reduce {{.*}} ins(%[[M]] : {{.*}}) outs(%[[M]] : {{.*}})
func.func @last(%x: tensor<5xf32> {loom.name = "x"}, %y: tensor<16xf32> {loom.name = "y"}) -> (tensor<5xf32> {loom.name = "z"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r:2 = dist.all_reduce %x, %y over ["data"] sum : tensor<5xf32>, tensor<16xf32>
    dist.yield %r#0, %r#1 : tensor<5xf32>, tensor<16xf32>
  } : !dist.future<tensor<5xf32>, tensor<16xf32>>
  %0:2 = dist.done %f : !dist.future<tensor<5xf32>, tensor<16xf32>> -> tensor<5xf32>, tensor<16xf32>
  %1 = plan.call @first(%0#1) : (tensor<16xf32>) -> tensor<5xf32>
  %2 = plan.call @add(%0#0, %1) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %2 : tensor<5xf32>
}

// -----

plan.kernel @add {
^bb0(%x: tensor<5xf32>, %y: tensor<5xf32>):
  %0 = loom.add %x, %y : tensor<5xf32>
  loom.yield %0 : tensor<5xf32>
}
dist.mesh @mesh <["data" = 2]>

// The gap between two such values has zeros: no uninitialised bytes are sent.
// CHECK-LABEL: plan.program @gaps
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x"
// CHECK-DAG: %[[Y:.*]] = plan.buffer input "y"
// CHECK-DAG: %[[M:.*]] = plan.buffer registered {bytes = 84 : i64, offset = 0 : i64} : <tensor<21xf32>>
// CHECK-DAG: %[[A:.*]] = plan.alias %[[M]] : (!plan.buffer<tensor<21xf32>>) -> !plan.buffer<tensor<5xf32>>
// CHECK-DAG: %[[B:.*]] = plan.alias %[[M]] {offset = 16 : i64} : (!plan.buffer<tensor<21xf32>>) -> !plan.buffer<tensor<5xf32>>
// CHECK-DAG: %[[ZEROS:.*]] = plan.buffer constant {{.*}}value = dense<0.000000e+00> : tensor<11xf32>
// CHECK-DAG: %[[GAP:.*]] = plan.alias %[[M]] {offset = 5 : i64} : (!plan.buffer<tensor<21xf32>>) -> !plan.buffer<tensor<11xf32>>
// CHECK: plan.copy ins(%[[X]] : {{.*}}) outs(%[[A]] : {{.*}})
// CHECK-NEXT: plan.copy ins(%[[Y]] : {{.*}}) outs(%[[B]] : {{.*}})
// CHECK-NEXT: plan.copy ins(%[[ZEROS]] : {{.*}}) outs(%[[GAP]] : {{.*}})
// CHECK: plan.group all_reduce {{.*}} ins(%[[M]] : {{.*}}) outs(%[[M]] : {{.*}})
func.func @gaps(%x: tensor<5xf32> {loom.name = "x"}, %y: tensor<5xf32> {loom.name = "y"}) -> (tensor<5xf32> {loom.name = "z"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r:2 = dist.all_reduce %x, %y over ["data"] sum : tensor<5xf32>, tensor<5xf32>
    dist.yield %r#0, %r#1 : tensor<5xf32>, tensor<5xf32>
  } : !dist.future<tensor<5xf32>, tensor<5xf32>>
  %0:2 = dist.done %f : !dist.future<tensor<5xf32>, tensor<5xf32>> -> tensor<5xf32>, tensor<5xf32>
  %1 = plan.call @add(%0#0, %0#1) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  return %1 : tensor<5xf32>
}

// -----

plan.kernel @sum {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.reduce sum %x dims = [0, 1] : (tensor<8x16xf32>) -> tensor<f32>
  loom.yield %0 : tensor<f32>
}
dist.mesh @mesh <["data" = 2]>

// A state is sent from its own memory.
// CHECK-LABEL: plan.program @state
// CHECK: %[[S:.*]] = plan.buffer state "w"
// CHECK-NOT: plan.copy
// CHECK: plan.group all_gather {{.*}} ins(%[[S]] : {{.*}})
func.func @state(%w: tensor<4x16xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"}) -> (tensor<f32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r = dist.all_gather %w over ["data"] dim = 0 : (tensor<4x16xf32>) -> tensor<8x16xf32>
    dist.yield %r : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %1 = plan.call @sum(%0) : (tensor<8x16xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}
