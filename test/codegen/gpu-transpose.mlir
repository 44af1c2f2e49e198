// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// A tile of 32 x 32 in shared memory, with rows padded by a word, makes reads and writes contiguous.
// Each thread moves four of its rows; without partial tiles there is no branch and no loop.
// CHECK-LABEL: gpu.func @plain
// CHECK-SAME: workgroup({{.*}} : memref<1056xf32, #gpu.address_space<workgroup>>
// CHECK-NOT: scf
// CHECK-COUNT-4: memref.load %{{.*}} : memref<12288xf32>
// CHECK-NOT: memref.load %{{.*}} : memref<12288xf32>
// CHECK: gpu.barrier
// CHECK-COUNT-4: memref.store %{{.*}} : memref<12288xf32>
// CHECK-NOT: scf
// CHECK: gpu.return
// PTX-LABEL: kernel plain grid 2 x 6 x 1 block 256
// PTX-NOT: bra
plan.kernel @plain {
^bb0(%x: tensor<64x192xf32>):
  %0 = loom.transpose %x [1, 0] : (tensor<64x192xf32>) -> tensor<192x64xf32>
  loom.yield %0 : tensor<192x64xf32>
}

// The batch is along z. At the edges reads repeat the last element; nothing is written out of range.
// CHECK-LABEL: gpu.func @batched
// CHECK: gpu.block_id z
// CHECK: arith.minui
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: memref.store
// PTX-LABEL: kernel batched grid 2 x 2 x 5 block 256
plan.kernel @batched {
^bb0(%x: tensor<5x40x33xf32>):
  %0 = loom.transpose %x [0, 2, 1] : (tensor<5x40x33xf32>) -> tensor<5x33x40xf32>
  loom.yield %0 : tensor<5x33x40xf32>
}

// Of 16-bit elements, each thread moves two at once: a word.
// CHECK-LABEL: gpu.func @halves
// CHECK-SAME: memref<4224xf16, #gpu.address_space<workgroup>>
// CHECK: vector.load {{.*}}vector<2xf16>
// CHECK: gpu.barrier
// CHECK: vector.store {{.*}}vector<2xf16>
plan.kernel @halves {
^bb0(%x: tensor<128x64xf16>):
  %0 = loom.transpose %x [1, 0] : (tensor<128x64xf16>) -> tensor<64x128xf16>
  loom.yield %0 : tensor<64x128xf16>
}

// Fused operations come after the tile; operands with the output's layout bypass it.
// CHECK-LABEL: gpu.func @fused
// CHECK: gpu.barrier
// CHECK: memref.load %{{.*}} : memref<2048xf32>
// CHECK: math.exp
plan.kernel @fused {
^bb0(%x: tensor<64x32xf32>, %y: tensor<32x64xf32>):
  %0 = loom.transpose %x [1, 0] : (tensor<64x32xf32>) -> tensor<32x64xf32>
  %1 = loom.add %0, %y : tensor<32x64xf32>
  %2 = loom.exp %1 : tensor<32x64xf32>
  loom.yield %2 : tensor<32x64xf32>
}

// Sides of eight would leave most of a tile empty.
// CHECK-LABEL: gpu.func @small
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
plan.kernel @small {
^bb0(%x: tensor<64x8xf32>):
  %0 = loom.transpose %x [1, 0] : (tensor<64x8xf32>) -> tensor<8x64xf32>
  loom.yield %0 : tensor<8x64xf32>
}
