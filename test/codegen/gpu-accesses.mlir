// RUN: gridloom-opt %s --plan-print-ptx=chip=sm_103 -o /dev/null | FileCheck %s --implicit-check-not=v4.b64

// A view is aligned to 16 bytes, and sm_103 has accesses of 32: four numbers of 64 bits take two.
// CHECK: // kernel wide
// CHECK: ld.global{{.*}}v2.b64
// CHECK: st.global.v2.b64
plan.kernel @wide {
^bb0(%x: tensor<4096xi64>, %y: tensor<4096xi64>):
  %0 = loom.add %x, %y : tensor<4096xi64>
  loom.yield %0 : tensor<4096xi64>
}

// The micro-batches of an input follow each other without gaps: those of 36 bytes are not aligned.
// CHECK: // kernel parts
// CHECK-NOT: .v{{[24]}}.
// CHECK: ret;
plan.kernel @parts {
^bb0(%x: tensor<1x9xf32>):
  %0 = loom.negate %x : tensor<1x9xf32>
  loom.yield %0 : tensor<1x9xf32>
}

// Those of 48 bytes are.
// CHECK: // kernel wholes
// CHECK: ld.global{{.*}}v4.b32
// CHECK: st.global.v4.b32
plan.kernel @wholes {
^bb0(%x: tensor<1x12xf32>):
  %0 = loom.negate %x : tensor<1x12xf32>
  loom.yield %0 : tensor<1x12xf32>
}

plan.program @main {
  %0 = plan.buffer input "a" {bytes = 36 : i64, slots = 4 : i64} : !plan.buffer<tensor<1x9xf32>>
  %1 = plan.buffer output "b" {bytes = 36 : i64, slots = 4 : i64} : !plan.buffer<tensor<1x9xf32>>
  %2 = plan.buffer input "c" {bytes = 48 : i64, slots = 4 : i64} : !plan.buffer<tensor<1x12xf32>>
  %3 = plan.buffer output "d" {bytes = 48 : i64, slots = 4 : i64} : !plan.buffer<tensor<1x12xf32>>
  plan.repeat 4 {
    plan.block {
      plan.launch @parts ins(%0 : !plan.buffer<tensor<1x9xf32>>) outs(%1 : !plan.buffer<tensor<1x9xf32>>) on compute
      plan.launch @wholes ins(%2 : !plan.buffer<tensor<1x12xf32>>) outs(%3 : !plan.buffer<tensor<1x12xf32>>) on compute
    }
  }
} {entry = "main", dims = {}, stage = 0 : i64}
