// RUN: gridloom-opt %s --split-input-file --plan-allocate --plan-verify-allocated | FileCheck %s

plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<32xf32>):
  %0 = loom.exp %x : tensor<32xf32>
  loom.yield %0 : tensor<32xf32>
}
plan.kernel @flip {
^bb0(%x: tensor<4x8xf32>):
  %0 = loom.transpose %x [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  loom.yield %0 : tensor<8x4xf32>
}

// An elementwise kernel writes over its dead input; a transpose does not.
// CHECK-LABEL: plan.program @in_place
// CHECK: plan.buffer input "x" {bytes = 128 : i64}
// CHECK: plan.buffer output "y" {bytes = 128 : i64}
// CHECK: plan.buffer weight "w" {bytes = 768 : i64, layout
// CHECK: plan.buffer arena {bytes = 128 : i64, offset = [[A:[0-9]+]] : i64}
// CHECK-NEXT: plan.buffer arena {bytes = 128 : i64, offset = [[A]] : i64}
// CHECK-NEXT: plan.alias
// CHECK-NEXT: plan.buffer arena {bytes = 128 : i64, offset = {{128|0}} : i64}
// CHECK: arena_bytes = 256
plan.program @in_place {
  %x = plan.buffer input "x" : !plan.buffer<tensor<32xf32>>
  %y = plan.buffer output "y" : !plan.buffer<tensor<8x4xf32>>
  %w = plan.buffer weight "w" {layout = #loom.layout<[0, 1], pad = 16>} : !plan.buffer<tensor<8x8xf32>>
  %0 = plan.buffer arena : !plan.buffer<tensor<32xf32>>
  %1 = plan.buffer arena : !plan.buffer<tensor<32xf32>>
  %2 = plan.alias %1 : (!plan.buffer<tensor<32xf32>>) -> !plan.buffer<tensor<4x8xf32>>
  %3 = plan.buffer arena : !plan.buffer<tensor<8x4xf32>>
  plan.block {
    plan.launch @exp ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
    plan.launch @exp ins(%0 : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
    plan.launch @flip ins(%2 : !plan.buffer<tensor<4x8xf32>>) outs(%3 : !plan.buffer<tensor<8x4xf32>>) on compute
    plan.copy ins(%3 : !plan.buffer<tensor<8x4xf32>>) outs(%y : !plan.buffer<tensor<8x4xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<32xf32>):
  %0 = loom.exp %x : tensor<32xf32>
  loom.yield %0 : tensor<32xf32>
}

// An operation that reads or writes a part of a buffer does not write over it.
// CHECK-LABEL: plan.program @parts
// CHECK: plan.buffer arena {bytes = 256 : i64, offset = [[A:[0-9]+]] : i64}
// CHECK-NEXT: plan.alias {{.*}} {offset = 32 : i64}
// CHECK-NOT: offset = [[A]] : i64
// CHECK: arena_bytes = 512
plan.program @parts {
  %x = plan.buffer input "x" : !plan.buffer<tensor<64xf32>>
  %y = plan.buffer output "y" : !plan.buffer<tensor<64xf32>>
  %0 = plan.buffer arena : !plan.buffer<tensor<64xf32>>
  %1 = plan.alias %0 {offset = 32 : i64} : (!plan.buffer<tensor<64xf32>>) -> !plan.buffer<tensor<32xf32>>
  %2 = plan.buffer arena : !plan.buffer<tensor<64xf32>>
  %3 = plan.alias %2 : (!plan.buffer<tensor<64xf32>>) -> !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%x : !plan.buffer<tensor<64xf32>>) outs(%0 : !plan.buffer<tensor<64xf32>>) on compute
    plan.launch @exp ins(%1 : !plan.buffer<tensor<32xf32>>) outs(%3 : !plan.buffer<tensor<32xf32>>) on compute
    plan.copy ins(%2 : !plan.buffer<tensor<64xf32>>) outs(%y : !plan.buffer<tensor<64xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<32xf32>):
  %0 = loom.exp %x : tensor<32xf32>
  loom.yield %0 : tensor<32xf32>
}

// A group's operands are in use until an event says that it is done, however early it started.
// CHECK-LABEL: plan.program @asynchronous
// CHECK: plan.buffer registered {bytes = 128 : i64, offset = [[READ:[0-9]+]] : i64}
// CHECK-NEXT: plan.buffer registered {bytes = 128 : i64, offset = [[WRITTEN:[0-9]+]] : i64}
// CHECK-NEXT: plan.buffer registered {bytes = 128 : i64, offset = [[BESIDE:[0-9]+]] : i64}
// CHECK-NEXT: plan.buffer registered {bytes = 128 : i64, offset = [[READ]] : i64}
// CHECK: registered_bytes = 384
plan.program @asynchronous {
  %x = plan.buffer input "x" : !plan.buffer<tensor<32xf32>>
  %0 = plan.buffer registered : !plan.buffer<tensor<32xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<32xf32>>
  %2 = plan.buffer registered : !plan.buffer<tensor<32xf32>>
  %3 = plan.buffer registered : !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
    plan.record 0 on compute
    plan.wait 0 on collective over ["model"]
    plan.group all_reduce over ["model"] by sum sequence 0 ins(%0 : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on collective over ["model"]
    plan.record 1 on collective over ["model"]
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%2 : !plan.buffer<tensor<32xf32>>) on compute
    plan.wait 1 on compute
    plan.copy ins(%1 : !plan.buffer<tensor<32xf32>>) outs(%3 : !plan.buffer<tensor<32xf32>>) on compute
    plan.copy ins(%2 : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
    plan.copy ins(%3 : !plan.buffer<tensor<32xf32>>) outs(%1 : !plan.buffer<tensor<32xf32>>) on compute
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// In a repeat, a late use in one iteration must end before an early write of the next: the send of
// the last iteration continues, so nothing shares memory with its slots.
// CHECK-LABEL: plan.program @repeated
// CHECK: plan.buffer registered {bytes = 128 : i64, offset = 0 : i64, slots = 2 : i64}
// CHECK-NEXT: plan.buffer registered {bytes = 64 : i64, offset = 256 : i64}
// CHECK: registered_bytes = 320
plan.program @repeated {
  %x = plan.buffer input "x" {slots = 4 : i64} : !plan.buffer<tensor<32xf32>>
  %z = plan.buffer input "z" : !plan.buffer<tensor<16xf32>>
  %0 = plan.buffer registered {slots = 2 : i64} : !plan.buffer<tensor<32xf32>>
  %1 = plan.buffer registered : !plan.buffer<tensor<16xf32>>
  plan.repeat 4 {
    plan.block {
      plan.copy ins(%z : !plan.buffer<tensor<16xf32>>) outs(%1 : !plan.buffer<tensor<16xf32>>) on compute
      plan.wait 1 on compute {lag = 2 : i64}
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
      plan.record 0 on compute
      plan.wait 0 on send stage 1
      plan.group send over [] sequence 0 ins(%0 : !plan.buffer<tensor<32xf32>>) outs() on send stage 1 {channel = 0 : i64, stage = 1 : i64}
      plan.record 1 on send stage 1
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64}

// -----

// A branch reads its condition when everything before it is done: the condition lives until then.
// CHECK-LABEL: plan.program @condition
// CHECK: plan.buffer arena {bytes = 1 : i64, offset = [[C:[0-9]+]] : i64}
// CHECK-NOT: offset = [[C]] : i64
// CHECK: plan.block
plan.program @condition {
  %p = plan.buffer input "p" : !plan.buffer<tensor<i1>>
  %x = plan.buffer input "x" : !plan.buffer<tensor<32xf32>>
  %y = plan.buffer output "y" : !plan.buffer<tensor<32xf32>>
  %c = plan.buffer arena : !plan.buffer<tensor<i1>>
  %0 = plan.buffer arena : !plan.buffer<tensor<32xf32>>
  plan.block {
    plan.copy ins(%p : !plan.buffer<tensor<i1>>) outs(%c : !plan.buffer<tensor<i1>>) on compute
    plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%0 : !plan.buffer<tensor<32xf32>>) on compute
  }
  plan.if %c : !plan.buffer<tensor<i1>> then {
    plan.block {
      plan.copy ins(%0 : !plan.buffer<tensor<32xf32>>) outs(%y : !plan.buffer<tensor<32xf32>>) on compute
    }
  } else {
    plan.block {
      plan.copy ins(%x : !plan.buffer<tensor<32xf32>>) outs(%y : !plan.buffer<tensor<32xf32>>) on compute
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64}
