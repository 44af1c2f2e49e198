// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// A warp computes a row: two reductions by five shuffles each, no shared memory. The row stays in
// registers, so it is read once, 128 bits per thread.
// CHECK-LABEL: gpu.func @warp
// CHECK-NOT: scf.for
// CHECK: vector.load {{.*}}vector<4xf32>
// CHECK-NOT: vector.load
// CHECK-COUNT-10: gpu.shuffle xor
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
// PTX-LABEL: kernel warp grid 40 x 1 x 1 block 32
// PTX: ld.global.nc.v4.b32
// PTX-COUNT-10: shfl.sync.bfly.b32
// PTX: st.global.v4.b32
plan.kernel @warp {
^bb0(%x: tensor<40x128xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<40x128xf32>
  loom.yield %0 : tensor<40x128xf32>
}

// A block computes a long row, three vectors per thread, and uses shared memory once per reduction.
// CHECK-LABEL: gpu.func @block
// CHECK-SAME: workgroup({{.*}} : memref<8xf32, #gpu.address_space<workgroup>> {llvm.align = 32 : i64}, {{.*}} : memref<8xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: scf.for
// CHECK-COUNT-3: vector.load {{.*}} : memref<49152xf32>
// CHECK-NOT: vector.load {{.*}} : memref<49152xf32>
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-COUNT-2: vector.load {{.*}} #gpu.address_space<workgroup>
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
plan.kernel @block {
^bb0(%x: tensor<16x3072xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<16x3072xf32>
  loom.yield %0 : tensor<16x3072xf32>
}

// As many threads as the row has vectors.
// CHECK-LABEL: gpu.func @norm
// PTX-LABEL: kernel norm grid 64 x 1 x 1 block 192
plan.kernel @norm {
^bb0(%x: tensor<64x768xf32>, %s: tensor<768xf32>, %b: tensor<768xf32>):
  %0 = loom.layer_norm %x, %s, %b epsilon = 1.0e-5 : (tensor<64x768xf32>, tensor<768xf32>, tensor<768xf32>) -> tensor<64x768xf32>
  loom.yield %0 : tensor<64x768xf32>
}

// Rows of an odd length: one element at a time, the last ones masked.
// CHECK-LABEL: gpu.func @odd
// CHECK-NOT: vector.load
// CHECK: arith.minui
// CHECK: arith.select
// CHECK: gpu.shuffle xor
plan.kernel @odd {
^bb0(%x: tensor<8x127xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<8x127xf32>
  loom.yield %0 : tensor<8x127xf32>
}

// A row too long for registers: one loop over the row per pass.
// CHECK-LABEL: gpu.func @longest
// CHECK-COUNT-3: scf.for
// PTX-LABEL: kernel longest grid 2 x 1 x 1 block 1024
plan.kernel @longest {
^bb0(%x: tensor<2x65536xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<2x65536xf32>
  loom.yield %0 : tensor<2x65536xf32>
}

// 16-bit floats: eight elements per thread, computed in f32.
// CHECK-LABEL: gpu.func @halves
// CHECK: vector.load {{.*}}vector<8xf16>
// CHECK: arith.extf {{.*}}vector<8xf32>
// CHECK: vector.store {{.*}}vector<8xf16>
plan.kernel @halves {
^bb0(%x: tensor<64x512xf16>):
  %0 = loom.softmax %x dim = 1 : tensor<64x512xf16>
  loom.yield %0 : tensor<64x512xf16>
}

// One output per row: the first thread of a warp stores it.
// CHECK-LABEL: gpu.func @sums
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: scf.if
// CHECK-NEXT: memref.store
plan.kernel @sums {
^bb0(%x: tensor<8x100xf32>):
  %0 = loom.reduce sum %x dims = [1] : (tensor<8x100xf32>) -> tensor<8xf32>
  loom.yield %0 : tensor<8xf32>
}

// The sum of nothing is the sums' identity.
// CHECK-LABEL: gpu.func @nothing
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: gpu.shuffle xor %[[ZERO]]
// CHECK: store
plan.kernel @nothing {
^bb0(%x: tensor<3x0xf32>):
  %0 = loom.reduce sum %x dims = [1] : (tensor<3x0xf32>) -> tensor<3xf32>
  loom.yield %0 : tensor<3xf32>
}
