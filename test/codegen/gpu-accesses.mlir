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
