// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// The matrix is contiguous across the sum: two neighbouring threads have vectors of four columns,
// together 32 bytes; each of the 128 pairs has six rows, all loaded at once. Shuffles add the sums of
// a warp, shared memory those of the warps. Products are fused with their sums. The storing threads
// compute the epilogue. One block per multiprocessor is enough: registers are for loads in flight.
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
// PTX: fma.rn.f32
plan.kernel @across {
^bb0(%x: tensor<1x768xf32>, %w: tensor<768x768xf32>, %b: tensor<1x768xf32>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<1x768xf32>, tensor<768x768xf32>) -> tensor<1x768xf32>
  %1 = loom.add %0, %b : tensor<1x768xf32>
  loom.yield %1 : tensor<1x768xf32>
}

// The matrix is contiguous along the sum: a warp computes a column, and reads it once for all rows.
// 16-bit floats are summed in f32 and rounded after the epilogue.
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

// Long sums become loops over batches of vectors.
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

// Five rows would read the matrix once, but their sums do not fit into registers.
// CHECK-LABEL: gpu.func @more
// PTX-LABEL: kernel more
plan.kernel @more {
^bb0(%x: tensor<5x768xf32>, %w: tensor<768x768xf32>):
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0]
      : (tensor<5x768xf32>, tensor<768x768xf32>) -> tensor<5x768xf32>
  loom.yield %0 : tensor<5x768xf32>
}
