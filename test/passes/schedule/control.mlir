// RUN: gridloom-opt %s --plan-schedule --plan-verify-scheduled --plan-allocate --plan-verify-allocated --mlir-print-local-scope | FileCheck %s

plan.kernel @step in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%i: tensor<i64>):
  %one = loom.constant dense<1> : tensor<i64>
  %0 = loom.add %i, %one : tensor<i64>
  loom.yield %0 : tensor<i64>
}
plan.kernel @below {
^bb0(%i: tensor<i64>):
  %limit = loom.constant dense<5> : tensor<i64>
  %0 = loom.compare lt %i, %limit : (tensor<i64>, tensor<i64>) -> tensor<i1>
  loom.yield %0 : tensor<i1>
}
plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

dist.mesh @mesh <["model" = 2]>

// The values that the loop swaps go through a temporary, the body has the collective, and the memory of carried values
// is separate from all that it computes.
// CHECK-LABEL: plan.program @main
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x"
// CHECK-DAG: %[[S:.*]] = plan.buffer state "cache" {{.*}}sharding = #dist.sharding<@mesh, [{}, {}]>
// CHECK: plan.block {
// CHECK: plan.copy ins(%{{.*}}) outs(%[[C:.*]] : !plan.buffer<tensor<i1>>)
// CHECK: plan.copy ins(%{{.*}}) outs(%[[I:.*]] : !plan.buffer<tensor<i64>>)
// CHECK: plan.copy ins(%[[X]] : {{.*}}) outs(%[[A:.*]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK: plan.copy ins(%[[S]] : {{.*}}) outs(%[[B:.*]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK: plan.while %[[C]] : <tensor<i1>> {
// CHECK: plan.launch @exp ins(%[[A]]
// CHECK: plan.group all_reduce over ["model"] by sum sequence 0
// CHECK: plan.launch @step ins(%[[I]]
// CHECK: plan.copy ins(%[[B]] : {{.*}}) outs(%[[T:.*]] : !plan.buffer<tensor<8x16xf32>>)
// CHECK: plan.copy ins(%{{.*}}) outs(%[[C]] : !plan.buffer<tensor<i1>>)
// CHECK: plan.copy ins(%{{.*}}) outs(%[[I]] : !plan.buffer<tensor<i64>>)
// CHECK: plan.copy ins(%[[T]] : {{.*}}) outs(%[[A]]
// CHECK: plan.copy ins(%{{.*}}) outs(%[[B]]
// CHECK: } {plan.trips = 5 : i64}
// CHECK: plan.if %{{.*}} then {
// CHECK: plan.launch @exp
// CHECK: } else {
// CHECK: plan.copy ins(%[[A]]
// CHECK: plan.copy ins(%[[B]] : {{.*}}) outs(%[[S]]
// CHECK-NOT: func.func
func.func @main(%x: tensor<8x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {}]>},
                %past: tensor<8x16xf32> {loom.name = "past", loom.state = "cache", dist.sharding = #dist.sharding<@mesh, [{}, {}]>},
                %c: tensor<i1> {loom.name = "c", dist.sharding = #dist.sharding<@mesh, []>})
    -> (tensor<8x16xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>},
        tensor<8x16xf32> {loom.name = "present", loom.state = "cache", dist.sharding = #dist.sharding<@mesh, [{}, {}]>})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %zero = loom.constant dense<0> : tensor<i64>
  %r:3 = loom.while @loop if %c carry %zero, %x, %past trips = 5
      : (tensor<i1>, tensor<i64>, tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<i64>, tensor<8x16xf32>, tensor<8x16xf32>)
  %y = loom.if %c then @yes else @no read %r#1 : (tensor<i1>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y, %r#2 : tensor<8x16xf32>, tensor<8x16xf32>
}
func.func @loop(%i: tensor<i64>, %a: tensor<8x16xf32>, %b: tensor<8x16xf32>)
    -> (tensor<i1>, tensor<i64>, tensor<8x16xf32>, tensor<8x16xf32>)
    attributes {loom.body, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %next = plan.call @step(%i) : (tensor<i64>) -> tensor<i64>
  %e = plan.call @exp(%a) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    %p = dist.all_reduce %e over ["model"] sum : tensor<8x16xf32>
    dist.yield %p : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %s = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %more = plan.call @below(%next) : (tensor<i64>) -> tensor<i1>
  return %more, %next, %b, %s : tensor<i1>, tensor<i64>, tensor<8x16xf32>, tensor<8x16xf32>
}
func.func @yes(%x: tensor<8x16xf32>) -> tensor<8x16xf32>
    attributes {loom.body, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %y = plan.call @exp(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}
func.func @no(%x: tensor<8x16xf32>) -> tensor<8x16xf32>
    attributes {loom.body, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return %x : tensor<8x16xf32>
}
