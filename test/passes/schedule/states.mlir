// RUN: gridloom-opt %s --split-input-file --plan-schedule --plan-verify-scheduled --plan-allocate --plan-verify-allocated --mlir-print-local-scope | FileCheck %s

// A scatter writes into the state that it reads, and later readers of the rows read them there. A reader of the old state
// that follows the scatter in the program is scheduled before it.
plan.kernel @update in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%past: tensor<8x16xf32>, %at: tensor<2xi64>, %rows: tensor<2x16xf32>):
  %0 = loom.scatter %past, %at, %rows dim = 0 : (tensor<8x16xf32>, tensor<2xi64>, tensor<2x16xf32>) -> tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
plan.kernel @add in_place = [#plan.in_place<output = 0, input = 0>, #plan.in_place<output = 0, input = 1>] {
^bb0(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>):
  %0 = loom.add %x, %y : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
// CHECK-LABEL: plan.program @scatter
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache"
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y"
// CHECK: plan.block {
// CHECK-NEXT: plan.launch @exp ins(%[[S]] : {{.*}}) outs(%[[E:.*]] : {{.*}})
// CHECK-NEXT: plan.launch @update ins(%[[S]], %{{.*}}, %{{.*}} : {{.*}}) outs(%[[S]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK-NEXT: plan.launch @add ins(%[[S]], %[[E]] : {{.*}}) outs(%[[Y]]
// CHECK-NEXT: }
func.func @scatter(%past: tensor<8x16xf32> {loom.name = "past", loom.state = "cache"},
                   %at: tensor<2xi64> {loom.name = "at"}, %rows: tensor<2x16xf32> {loom.name = "rows"})
    -> (tensor<8x16xf32> {loom.name = "y"}, tensor<8x16xf32> {loom.name = "present", loom.state = "cache"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @update(%past, %at, %rows) : (tensor<8x16xf32>, tensor<2xi64>, tensor<2x16xf32>) -> tensor<8x16xf32>
  %1 = plan.call @exp(%past) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %2 = plan.call @add(%0, %1) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %2, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}

// A reshaped state is the same memory; an output with its value is a copy. The weight of a state's
// initial value is attached to its buffer.
// CHECK-LABEL: plan.program @reshaped
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache" {{{.*}}loom.init = "w"
// CHECK-DAG: %[[O:.*]] = plan.buffer output "y"
// CHECK: plan.launch @update ins(%[[A:.*]], %{{.*}}, %{{.*}} : {{.*}}) outs(%[[B:.*]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK-NEXT: plan.copy ins(%{{.*}}) outs(%[[O]]
// CHECK-NEXT: }
func.func @reshaped(%past: tensor<8x4x4xf32> {loom.init = "w", loom.name = "past", loom.state = "cache"},
                    %at: tensor<2xi64> {loom.name = "at"}, %rows: tensor<2x16xf32> {loom.name = "rows"})
    -> (tensor<8x4x4xf32> {loom.name = "y"}, tensor<8x4x4xf32> {loom.name = "present", loom.state = "cache"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %flat = loom.reshape %past : (tensor<8x4x4xf32>) -> tensor<8x16xf32>
  %0 = plan.call @update(%flat, %at, %rows) : (tensor<8x16xf32>, tensor<2xi64>, tensor<2x16xf32>) -> tensor<8x16xf32>
  %1 = loom.reshape %0 : (tensor<8x16xf32>) -> tensor<8x4x4xf32>
  return %1, %1 : tensor<8x4x4xf32>, tensor<8x4x4xf32>
}

// A reader that needs both the old and the new state keeps them apart.
// CHECK-LABEL: plan.program @both
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache"
// CHECK: plan.launch @update ins(%[[S]], %{{.*}}, %{{.*}} : {{.*}}) outs(%[[N:.*]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK-NEXT: plan.launch @add ins(%[[N]], %[[S]]
// CHECK-NEXT: plan.copy ins(%[[N]] : {{.*}}) outs(%[[S]]
func.func @both(%past: tensor<8x16xf32> {loom.name = "past", loom.state = "cache"},
                %at: tensor<2xi64> {loom.name = "at"}, %rows: tensor<2x16xf32> {loom.name = "rows"})
    -> (tensor<8x16xf32> {loom.name = "y"}, tensor<8x16xf32> {loom.name = "present", loom.state = "cache"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @update(%past, %at, %rows) : (tensor<8x16xf32>, tensor<2xi64>, tensor<2x16xf32>) -> tensor<8x16xf32>
  %1 = plan.call @add(%0, %past) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %1, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}

// So does the caller who gets the old state.
// CHECK-LABEL: plan.program @given
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache"
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y"
// CHECK: plan.launch @exp ins(%[[S]] : {{.*}}) outs(%[[N:.*]] :
// CHECK-NEXT: plan.copy ins(%[[S]] : {{.*}}) outs(%[[Y]]
// CHECK-NEXT: plan.copy ins(%[[N]] : {{.*}}) outs(%[[S]]
func.func @given(%past: tensor<8x16xf32> {loom.name = "past", loom.state = "cache"})
    -> (tensor<8x16xf32> {loom.name = "y"}, tensor<8x16xf32> {loom.name = "present", loom.state = "cache"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @exp(%past) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %past, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}

// States that swap go through temporaries; a state that does not change is not touched.
// CHECK-LABEL: plan.program @swap
// CHECK-DAG: %[[A:.*]] = plan.buffer state "a"
// CHECK-DAG: %[[B:.*]] = plan.buffer state "b"
// CHECK-DAG: plan.buffer state "c"
// CHECK: plan.block {
// CHECK-NEXT: plan.copy ins(%[[B]] : {{.*}}) outs(%[[OLDB:.*]] :
// CHECK-NEXT: plan.copy ins(%[[A]] : {{.*}}) outs(%[[OLDA:.*]] :
// CHECK-NEXT: plan.copy ins(%[[OLDB]] : {{.*}}) outs(%[[A]]
// CHECK-NEXT: plan.copy ins(%[[OLDA]] : {{.*}}) outs(%[[B]]
// CHECK-NEXT: }
func.func @swap(%a: tensor<8xf32> {loom.name = "a", loom.state = "a"}, %b: tensor<8xf32> {loom.name = "b", loom.state = "b"},
                %c: tensor<8xf32> {loom.name = "c", loom.state = "c"})
    -> (tensor<8xf32> {loom.name = "x", loom.state = "a"}, tensor<8xf32> {loom.name = "y", loom.state = "b"},
        tensor<8xf32> {loom.name = "z", loom.state = "c"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return %b, %a, %c : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// -----

// Other devices read the value from memory that they can reach: the state gets a copy.
dist.mesh @mesh <["model" = 2]>
plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
// CHECK-LABEL: plan.program @sent
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache"
// CHECK: plan.launch @exp ins(%[[S]] : {{.*}}) outs(%[[N:.*]] :
// CHECK: plan.group all_reduce {{.*}} ins(%[[N]]
// CHECK: plan.copy ins(%[[N]] : {{.*}}) outs(%[[S]]
func.func @sent(%past: tensor<8x16xf32> {loom.name = "past", loom.state = "cache"})
    -> (tensor<8x16xf32> {loom.name = "y"}, tensor<8x16xf32> {loom.name = "present", loom.state = "cache"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @exp(%past) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    %1 = dist.all_reduce %0 over ["model"] sum : tensor<8x16xf32>
    dist.yield %1 : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %2 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  return %2, %0 : tensor<8x16xf32>, tensor<8x16xf32>
}
