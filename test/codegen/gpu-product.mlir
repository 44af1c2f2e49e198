// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// The matrix lies across the sum: two threads side by side have vectors of four columns, 32 bytes;
// of the other 128 each has six rows, all of them under way at once. Shuffles join those of a warp,
// shared memory the warps. What follows is computed by those who store. One block on a multiprocessor
// is enough: registers are for loads under way.
// CHECK-LABEL: gpu.func @across
// CHECK-SAME: nvvm.minctasm = 1
// CHECK-NOT: scf.for
// CHECK-COUNT-6: vector.load {{.*}} : memref<589824xf32>, vector<4xf32>
// CHECK-NOT: memref<589824xf32>, vector
// CHECK: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: vector.store {{.*}} : memref<768xf32>, vector<4xf32>
// PTX-LABEL: kernel across grid 96 x 1 x 1 block 256
plan.kernel @across {
^bb0(%x: tensor<1x768xf32>, %w: tensor<768x768xf32>, %b: tensor<1x768xf32>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x768xf32>, tensor<768x768xf32>) -> tensor<1x768xf32>
  %1 = loom.add %0, %b : tensor<1x768xf32>
  loom.yield %1 : tensor<1x768xf32>
}

// The matrix lies along the sum: a warp has a column, and reads it once for all rows. 16-bit floats
// are summed in f32, and rounded after what follows.
// CHECK-LABEL: gpu.func @along
// CHECK-NOT: scf.for
// CHECK-COUNT-3: vector.load {{.*}} : memref<3072000xbf16>, vector<8xbf16>
// CHECK-NOT: memref<3072000xbf16>, vector
// CHECK: gpu.shuffle xor
// CHECK-NOT: gpu.barrier
// CHECK: scf.if
// CHECK: arith.addf {{.*}} : f32
// CHECK: arith.truncf
// PTX-LABEL: kernel along grid 500 x 1 x 1 block 256
plan.kernel @along {
^bb0(%x: tensor<2x768xbf16>, %w: tensor<4000x768xbf16>, %b: tensor<2x4000xbf16>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [1]
      : (tensor<2x768xbf16>, tensor<4000x768xbf16>) -> tensor<2x4000xbf16>
  %1 = loom.add %0, %b : tensor<2x4000xbf16>
  loom.yield %1 : tensor<2x4000xbf16>
}

// Long sums are loops over batches of vectors.
// CHECK-LABEL: gpu.func @long
// CHECK: scf.for
// CHECK-COUNT-8: vector.load {{.*}} : memref<6291456xf16>, vector<8xf16>
// CHECK: scf.yield
// PTX-LABEL: kernel long grid 48 x 1 x 1 block 512
plan.kernel @long {
^bb0(%x: tensor<1x8192xf16>, %w: tensor<8192x768xf16>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x8192xf16>, tensor<8192x768xf16>) -> tensor<1x768xf16>
  loom.yield %0 : tensor<1x768xf16>
}

// Five rows would read the matrix once, but have no registers for their sums.
// CHECK-LABEL: gpu.func @more
// PTX-LABEL: kernel more
plan.kernel @more {
^bb0(%x: tensor<5x768xf32>, %w: tensor<768x768xf32>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<5x768xf32>, tensor<768x768xf32>) -> tensor<5x768xf32>
  loom.yield %0 : tensor<5x768xf32>
}
