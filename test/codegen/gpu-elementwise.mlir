// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// Threads have four neighbours each; 80 of them are inside.
// CHECK-LABEL: gpu.module @bias_gelu
// CHECK: gpu.func @bias_gelu(%[[X:.*]]: memref<320xf32>, %[[B:.*]]: memref<40xf32> {llvm.noalias, llvm.readonly}, %[[Y:.*]]: memref<320xf32>) kernel
// CHECK: %[[ITEM:.*]] = arith.addi
// CHECK: %[[IN:.*]] = arith.cmpi ult, %[[ITEM]], %c80
// CHECK: scf.if %[[IN]]
// CHECK: arith.remui %[[ITEM]], %c10
// CHECK: vector.load %[[X]]{{.*}}vector<4xf32>
// CHECK: vector.load %[[B]]{{.*}}vector<4xf32>
// CHECK: vector.store
//
// PTX-LABEL: kernel bias_gelu grid 1 block 256
// PTX: .target sm_90
// PTX: .entry bias_gelu
// PTX: .maxntid 256
// PTX: ld.global.v4.b32
// PTX: ld.global.nc.v4.b32
// PTX: st.global.v4.b32
plan.kernel @bias_gelu elementwise {
^bb0(%x: tensor<8x40xf32>, %b: tensor<40xf32>):
  %0 = loom.broadcast %b dims = [1] : (tensor<40xf32>) -> tensor<8x40xf32>
  %1 = loom.add %x, %0 : tensor<8x40xf32>
  %2 = loom.gelu erf %1 : tensor<8x40xf32>
  loom.yield %2 : tensor<8x40xf32>
}

// 91 elements are no vectors of four.
// CHECK-LABEL: gpu.module @odd
// CHECK-NOT: vector
// CHECK: memref.store
// PTX-LABEL: .entry odd
// PTX-NOT: .v4
// PTX: st.global.b32
// PTX: ret
plan.kernel @odd elementwise {
^bb0(%x: tensor<7x13xf32>, %m: tensor<7x13xi1>):
  %1 = loom.exp %x : tensor<7x13xf32>
  %2 = loom.select %m, %1, %x : tensor<7x13xi1>, tensor<7x13xf32>
  loom.yield %2 : tensor<7x13xf32>
}

// Full blocks need no bounds check. Rows that start at 2 are not aligned for vectors.
// CHECK-LABEL: gpu.module @unaligned
// CHECK-NOT: scf.if
// CHECK: memref.load
// CHECK-NOT: vector.load
plan.kernel @unaligned elementwise {
^bb0(%x: tensor<64x6xf32>):
  %0 = loom.slice %x [0, 2] to [64, 6] by [1, 1] : (tensor<64x6xf32>) -> tensor<64x4xf32>
  loom.yield %0 : tensor<64x4xf32>
}
