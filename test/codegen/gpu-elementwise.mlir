// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// Each thread computes four neighbours; 80 threads are in range. Indices have 32 bits.
// CHECK-LABEL: gpu.module @bias_gelu
// CHECK: gpu.func @bias_gelu(%[[X:.*]]: memref<320xf32>, %[[B:.*]]: memref<40xf32> {llvm.noalias, llvm.readonly}, %[[Y:.*]]: memref<320xf32>) kernel
// CHECK: %[[ITEM:.*]] = arith.addi {{.*}} overflow<nsw, nuw> : i32
// CHECK: %[[IN:.*]] = arith.cmpi ult, %[[ITEM]], %c80_i32
// CHECK: scf.if %[[IN]]
// CHECK: arith.remui %[[ITEM]], %c10_i32
// CHECK: vector.load %[[X]]{{.*}}vector<4xf32>
// CHECK: vector.load %[[B]]{{.*}}vector<4xf32>
// CHECK: vector.store
//
// PTX-LABEL: kernel bias_gelu grid 1 x 1 x 1 block 128
// PTX: .target sm_90
// PTX: .entry bias_gelu
// PTX: .maxntid 128
// PTX: ld.global.v4.b32
// PTX: ld.global.nc.v4.b32
// PTX: st.global.v4.b32
plan.kernel @bias_gelu in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<8x40xf32>, %b: tensor<40xf32>):
  %0 = loom.broadcast %b dims = [1] : (tensor<40xf32>) -> tensor<8x40xf32>
  %1 = loom.add %x, %0 : tensor<8x40xf32>
  %2 = loom.gelu erf %1 : tensor<8x40xf32>
  loom.yield %2 : tensor<8x40xf32>
}

// Long rows: the grid has the rows along x and the parts of a row along y, so nothing is divided.
// CHECK-LABEL: gpu.module @rows
// CHECK-NOT: arith.divui
// CHECK-NOT: scf.if
// CHECK: gpu.return
// PTX-LABEL: kernel rows grid 512 x 3 x 1 block 256
// PTX-NOT: bra
plan.kernel @rows {
^bb0(%x: tensor<512x3072xf32>, %b: tensor<3072xf32>):
  %0 = loom.broadcast %b dims = [1] : (tensor<3072xf32>) -> tensor<512x3072xf32>
  %1 = loom.add %x, %0 : tensor<512x3072xf32>
  loom.yield %1 : tensor<512x3072xf32>
}

// 91 elements are 22 vectors of four and three single elements, with one thread each.
// CHECK-LABEL: gpu.module @odd
// CHECK: arith.cmpi ult, {{.*}}, %c22_i32
// CHECK: vector.store
// CHECK: memref.store
// PTX-LABEL: .entry odd
// PTX: st.global.v4.b32
// PTX: st.global.b32
// PTX: ret
plan.kernel @odd {
^bb0(%x: tensor<7x13xf32>, %m: tensor<7x13xi1>):
  %1 = loom.exp %x : tensor<7x13xf32>
  %2 = loom.select %m, %1, %x : tensor<7x13xi1>, tensor<7x13xf32>
  loom.yield %2 : tensor<7x13xf32>
}

// Rows that start at column 2 are aligned for vectors of two.
// CHECK-LABEL: gpu.module @unaligned
// CHECK-NOT: scf.if
// CHECK: vector.load {{.*}}vector<2xf32>
// CHECK-NOT: vector.load
plan.kernel @unaligned {
^bb0(%x: tensor<64x6xf32>):
  %0 = loom.slice %x [0, 2] to [64, 6] by [1, 1] : (tensor<64x6xf32>) -> tensor<64x4xf32>
  loom.yield %0 : tensor<64x4xf32>
}

// 128 bits hold eight 16-bit or sixteen 8-bit elements, used if there is enough work.
// CHECK-LABEL: gpu.module @halves
// CHECK: vector.load {{.*}}vector<8xbf16>
// CHECK: vector.store {{.*}}vector<8xbf16>
// PTX-LABEL: .entry halves
// PTX: ld.global{{(.nc)?}}.v4.b32
plan.kernel @halves {
^bb0(%x: tensor<1024x1024xbf16>, %y: tensor<1024x1024xbf16>):
  %0 = loom.add %x, %y : tensor<1024x1024xbf16>
  loom.yield %0 : tensor<1024x1024xbf16>
}
// CHECK-LABEL: gpu.module @bytes
// CHECK: vector.load {{.*}}vector<16xi8>
// CHECK: vector.store {{.*}}vector<16xi8>
plan.kernel @bytes {
^bb0(%x: tensor<1024x1024xi8>, %y: tensor<1024x1024xi8>):
  %0 = loom.add %x, %y : tensor<1024x1024xi8>
  loom.yield %0 : tensor<1024x1024xi8>
}

// An index beyond 31 bits.
// CHECK-LABEL: gpu.module @huge
// CHECK: arith.muli {{.*}} : index
plan.kernel @huge {
^bb0(%x: tensor<65536x65536xi8>):
  %0 = loom.add %x, %x : tensor<65536x65536xi8>
  loom.yield %0 : tensor<65536x65536xi8>
}
