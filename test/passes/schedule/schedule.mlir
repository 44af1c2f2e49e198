// RUN: gridloom-opt %s --split-input-file --plan-schedule --plan-verify-scheduled --mlir-print-local-scope | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --plan-schedule="overlap=false" --plan-verify-scheduled | FileCheck %s --check-prefix=SERIAL

plan.kernel @exp {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}
plan.kernel @add {
^bb0(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>):
  %0 = loom.add %x, %y : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @w : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>

// The all_reduce starts at once, independent work runs concurrently, and one event each way orders the two.
// CHECK-LABEL: plan.program @overlap
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x" {{.*}}loom.dim_names = ["batch", ""]{{.*}}sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y"
// CHECK-DAG: %[[A:.*]] = plan.buffer registered :
// CHECK-DAG: %[[W:.*]] = plan.buffer weight "w" {layout = #loom.layout<[0, 1], pad = 16>, sharding = #dist.sharding<@mesh, [{"model"}, {}]>}
// CHECK: plan.block {
// CHECK-NEXT: plan.launch @exp ins(%[[X]] : {{.*}}) outs(%[[A]] : {{.*}}) on compute
// CHECK-NEXT: plan.record [[E:.*]] on compute
// CHECK-NEXT: plan.wait [[E]] on collective over ["data", "model"]
// CHECK-NEXT: plan.group all_reduce over ["data", "model"] by max sequence 0 ins(%[[A]] : {{.*}}) outs(%[[R:.*]] : {{.*}}) on collective over ["data", "model"]
// CHECK-NEXT: plan.record [[F:.*]] on collective over ["data", "model"]
// CHECK-NEXT: plan.library #plan.matmul<sizes = [8, 16, 16], {{.*}}> ins(%[[X]], %[[W]] : {{.*}}) outs(%[[B:.*]] : {{.*}}) on compute
// CHECK-NEXT: plan.wait [[F]] on compute
// CHECK-NEXT: plan.launch @add ins(%[[R]], %[[B]] : {{.*}}) outs(%[[Y]] : {{.*}}) on compute
// CHECK-NEXT: }
// CHECK-NEXT: } {dims = {batch = 16 : i64}, {{.*}}entry = "main", stage = 0 : i64}
// SERIAL-LABEL: plan.program @overlap
// SERIAL: plan.group all_reduce
// SERIAL-NEXT: plan.record [[E:.*]] on collective over ["data", "model"]
// SERIAL-NEXT: plan.wait [[E]] on compute
// SERIAL-NEXT: plan.library
// SERIAL-NEXT: plan.launch @add
func.func @overlap(%x: tensor<8x16xf32> {loom.name = "x", loom.dim_names = ["batch", ""], dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<8x16xf32> {loom.name = "y"})
    attributes {loom.entry = "main", loom.dims = {batch = 16 : i64}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>, sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<16x16xf32>
  %0 = plan.matmul %x, %w <sizes = [8, 16, 16], lhs = [16, 1], rhs = [32, 1], out = [16, 1]> : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %1 = plan.call @exp(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    %2 = dist.all_reduce %1 over ["data", "model"] max : tensor<8x16xf32>
    dist.yield %2 : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %3 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %4 = plan.call @add(%3, %0) : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// -----

plan.kernel @exp {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

dist.mesh @mesh <["model" = 2]>

// Inputs and literals are copied to memory that peers may read, received values to where the caller
// looks; a reshape is another name, also for an output; an input returned unchanged is a copy.
// CHECK-LABEL: plan.program @memory
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x"
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y" : <tensor<128xf32>>
// CHECK-DAG: %[[Z:.*]] = plan.buffer output "z"
// CHECK-DAG: %[[SAME:.*]] = plan.buffer output "same"
// CHECK-DAG: %[[S:.*]] = plan.buffer registered
// CHECK-DAG: %[[P:.*]] = plan.rank_param ["model"]
// CHECK-DAG: plan.buffer constant {value = dense<[1, 2]> : tensor<2xi64>}
// CHECK-DAG: %[[V:.*]] = plan.alias %[[Y]] : (!plan.buffer<tensor<128xf32>>) -> !plan.buffer<tensor<8x16xf32>>
// CHECK: plan.block {
// CHECK: plan.copy ins(%[[X]] : {{.*}}) outs(%[[S]] : {{.*}}) on compute
// CHECK: plan.group all_to_all over ["model"] sequence 0 ins(%[[S]]
// CHECK: plan.group permute over ["model"] sequence 1 {{.*}}permutation = array<i64: 1, 0>
// CHECK-DAG: plan.launch @exp ins(%{{.*}}) outs(%[[V]] : {{.*}}) on compute
// CHECK-DAG: plan.launch @pick ins(%{{.*}}, %[[P]] : {{.*}}) outs(%[[Z]]
// CHECK-DAG: plan.copy ins(%[[X]] : {{.*}}) outs(%[[SAME]] : {{.*}}) on compute
plan.kernel @pick {
^bb0(%x: tensor<2xi64>, %i: tensor<i64>):
  %0 = loom.gather %x, %i dim = 0 : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
  loom.yield %0 : tensor<i64>
}
func.func @memory(%x: tensor<8x16xf32> {loom.name = "x"})
    -> (tensor<128xf32> {loom.name = "y"}, tensor<i64> {loom.name = "z"}, tensor<8x16xf32> {loom.name = "same"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r = dist.all_to_all %x over ["model"] split = 0 concat = 0 : (tensor<8x16xf32>) -> tensor<8x16xf32>
    dist.yield %r : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %1 = plan.call @exp(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %2 = loom.reshape %1 : (tensor<8x16xf32>) -> tensor<128xf32>
  %c = loom.constant dense<[1, 2]> : tensor<2xi64>
  %g = dist.start {
    %r = dist.permute %c over ["model"] [1, 0] : (tensor<2xi64>) -> tensor<2xi64>
    dist.yield %r : tensor<2xi64>
  } : !dist.future<tensor<2xi64>>
  %3 = dist.done %g : !dist.future<tensor<2xi64>> -> tensor<2xi64>
  %i = dist.axis_index ["model"] : tensor<i64>
  %4 = plan.call @pick(%3, %i) : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
  return %2, %4, %x : tensor<128xf32>, tensor<i64>, tensor<8x16xf32>
}

// -----

plan.kernel @exp {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

dist.mesh @mesh <["pipe" = 2, "micro" = 4]>

// Micro-batches: a buffer in flight has two slots, and its writer waits for the reader two iterations ago.
// CHECK-LABEL: plan.program @main_stage0
// CHECK-DAG: %[[X:.*]] = plan.buffer input "x" {{.*}}slots = 4
// CHECK-DAG: %[[S:.*]] = plan.buffer registered {slots = 2 : i64}
// CHECK: plan.repeat 4 {
// CHECK-NEXT: plan.block {
// CHECK-NEXT: plan.wait [[SENT:.*]] on compute {lag = 2 : i64}
// CHECK-NEXT: plan.launch @exp ins(%[[X]] : {{.*}}) outs(%[[S]] : {{.*}})
// CHECK-NEXT: plan.record [[DONE:.*]] on compute
// CHECK-NEXT: plan.wait [[DONE]] on send stage 1
// CHECK-NEXT: plan.group send over [] sequence 0 ins(%[[S]] : {{.*}}) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
// CHECK-NEXT: plan.record [[SENT]] on send stage 1
// CHECK-NEXT: }
func.func @main_stage0(%x: tensor<8x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 4 : i64} {
  %0 = plan.call @exp(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    dist.send %0 to 1 channel 0 : tensor<8x16xf32>
    dist.yield
  } : !dist.future<>
  dist.done %f : !dist.future<>
  return
}

// CHECK-LABEL: plan.program @main_stage1
// CHECK-DAG: %[[Y:.*]] = plan.buffer output "y" {{.*}}slots = 4
// CHECK-DAG: %[[R:.*]] = plan.buffer registered {slots = 2 : i64}
// CHECK: plan.wait [[READ:.*]] on recv stage 0 {lag = 2 : i64}
// CHECK-NEXT: plan.group recv over [] sequence 0 ins() outs(%[[R]] : {{.*}}) on recv stage 0 {channel = 0 : i64, stage = 0 : i64}
// CHECK-NEXT: plan.record [[CAME:.*]] on recv stage 0
// CHECK-NEXT: plan.wait [[CAME]] on compute
// CHECK-NEXT: plan.launch @exp ins(%[[R]] : {{.*}}) outs(%[[Y]] : {{.*}})
// CHECK-NEXT: plan.record [[READ]] on compute
func.func @main_stage1() -> (tensor<8x16xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 4 : i64} {
  %f = dist.start {
    %r = dist.recv from 0 channel 0 : tensor<8x16xf32>
    dist.yield %r : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %1 = plan.call @exp(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// -----

plan.kernel @exp {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

dist.mesh @mesh <["pipe" = 2, "micro" = 4]>

// A buffer that is partly read has one slot: its writer waits for the last iteration's readers.
// CHECK-LABEL: plan.program @parts_stage0
// CHECK: %[[S:.*]] = plan.buffer registered : <tensor<8x16xf32>>
// CHECK-NEXT: %[[V:.*]] = plan.alias %[[S]]
// CHECK-NEXT: %[[P:.*]] = plan.alias %[[V]] {offset = 64 : i64}
// CHECK: plan.repeat 4 {
// CHECK-NEXT: plan.block {
// CHECK-NEXT: plan.wait [[SENT:.*]] on compute {lag = 1 : i64}
// CHECK-NEXT: plan.launch @exp {{.*}} outs(%[[S]] : {{.*}})
// CHECK-NEXT: plan.record [[DONE:.*]] on compute
// CHECK-NEXT: plan.wait [[DONE]] on send stage 1
// CHECK-NEXT: plan.group send {{.*}} ins(%[[S]] : {{.*}}
// CHECK-NEXT: plan.record [[SENT]] on send stage 1
// CHECK-NEXT: plan.launch @half ins(%[[P]] : {{.*}})
plan.kernel @half {
^bb0(%x: tensor<64xf32>):
  %0 = loom.negate %x : tensor<64xf32>
  loom.yield %0 : tensor<64xf32>
}
func.func @parts_stage0(%x: tensor<8x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    -> (tensor<64xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"micro"}]>})
    attributes {loom.entry = "parts", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 4 : i64} {
  %0 = plan.call @exp(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    dist.send %0 to 1 channel 0 : tensor<8x16xf32>
    dist.yield
  } : !dist.future<>
  %1 = loom.reshape %0 : (tensor<8x16xf32>) -> tensor<128xf32>
  %2 = loom.slice %1 [64] to [128] by [1] : (tensor<128xf32>) -> tensor<64xf32>
  %3 = plan.call @half(%2) : (tensor<64xf32>) -> tensor<64xf32>
  dist.done %f : !dist.future<>
  return %3 : tensor<64xf32>
}

func.func @parts_stage1() -> (tensor<8x16xf32> {loom.name = "z", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    attributes {loom.entry = "parts", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 4 : i64} {
  %f = dist.start {
    %r = dist.recv from 0 channel 0 : tensor<8x16xf32>
    dist.yield %r : tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x16xf32>> -> tensor<8x16xf32>
  %1 = plan.call @exp(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// -----

plan.kernel @exp {
^bb0(%x: tensor<8x16xf32>):
  %0 = loom.exp %x : tensor<8x16xf32>
  loom.yield %0 : tensor<8x16xf32>
}

// Transfers with one peer keep the channels' order, whichever operand is ready first.
// CHECK-LABEL: plan.program @channels
// CHECK: plan.group send {{.*}}channel = 3
// CHECK: plan.group send {{.*}}channel = 7
func.func @channels(%x: tensor<8x16xf32> {loom.name = "x"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.call @exp(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %f = dist.start {
    dist.send %0 to 1 channel 7 : tensor<8x16xf32>
    dist.yield
  } : !dist.future<>
  dist.done %f : !dist.future<>
  %1 = plan.call @exp(%0) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %g = dist.start {
    dist.send %1 to 1 channel 3 : tensor<8x16xf32>
    dist.yield
  } : !dist.future<>
  dist.done %g : !dist.future<>
  return
}
func.func @receives() attributes {loom.entry = "main", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  %f = dist.start {
    %r = dist.recv from 0 channel 3 : tensor<8x16xf32>
    %s = dist.recv from 0 channel 7 : tensor<8x16xf32>
    dist.yield %r, %s : tensor<8x16xf32>, tensor<8x16xf32>
  } : !dist.future<tensor<8x16xf32>, tensor<8x16xf32>>
  %0, %1 = dist.done %f : !dist.future<tensor<8x16xf32>, tensor<8x16xf32>> -> tensor<8x16xf32>, tensor<8x16xf32>
  return
}

// -----

// A contiguous slice is a part of its operand's memory.
// CHECK-LABEL: plan.program @view
// CHECK: %[[P:.*]] = plan.buffer arena : <tensor<4x16xf32>>
// CHECK: %[[V:.*]] = plan.alias %[[P]] {offset = 36 : i64} : (!plan.buffer<tensor<4x16xf32>>) -> !plan.buffer<tensor<1x8xf32>>
// CHECK: plan.library {{.*}} ins(%[[V]], %{{.*}} : {{.*}})
func.func @view(%x: tensor<4x8xf32> {loom.name = "x"}, %y: tensor<8x16xf32> {loom.name = "y"})
    -> (tensor<1x16xf32> {loom.name = "z"})
    attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = plan.matmul %x, %y <sizes = [4, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  %1 = loom.slice %0 [2, 4] to [3, 12] by [1, 1] : (tensor<4x16xf32>) -> tensor<1x8xf32>
  %2 = plan.matmul %1, %y <sizes = [1, 16, 8], lhs = [8, 1], rhs = [16, 1], out = [16, 1]> : (tensor<1x8xf32>, tensor<8x16xf32>) -> tensor<1x16xf32>
  return %2 : tensor<1x16xf32>
}
