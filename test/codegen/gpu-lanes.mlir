// RUN: gridloom-opt %s --plan-emit-gpu | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

//===----------------------------------------------------------------------===//
// Running values
//===----------------------------------------------------------------------===//

// A warp computes a lane: four neighbouring elements per thread, whose totals it scans by shuffles.
// CHECK-LABEL: gpu.func @warp_scan
// CHECK: scf.for
// CHECK: vector.load {{.*}} vector<4xf32>
// CHECK-COUNT-6: gpu.shuffle up
// CHECK: gpu.shuffle idx
// CHECK-NOT: gpu.barrier
// CHECK: vector.store {{.*}} vector<4xf32>
// PTX: // kernel warp_scan grid 2 x 1 x 1 block 256
// PTX: ld.global{{.*}}.v4.b32
// PTX-COUNT-6: shfl.sync.up.b32
// PTX: st.global.v4.b32
plan.kernel @warp_scan {
^bb0(%x: tensor<10x128xf32>):
  %0 = loom.cumulative sum %x dim = 1 : tensor<10x128xf32>
  loom.yield %0 : tensor<10x128xf32>
}

// A block computes a long lane: warps exchange totals in shared memory. 16-bit floats add as f32.
// CHECK-LABEL: gpu.func @block_scan
// CHECK-SAME: workgroup({{.*}} : memref<8xf32, #gpu.address_space<workgroup>>
// CHECK: gpu.barrier
// CHECK: gpu.barrier
// CHECK: arith.truncf {{.*}} : f32 to bf16
// PTX: // kernel block_scan grid 3 x 1 x 1 block 256
plan.kernel @block_scan {
^bb0(%x: tensor<3x5001xbf16>):
  %0 = loom.cumulative sum %x dim = 1 exclusive reverse : tensor<3x5001xbf16>
  loom.yield %0 : tensor<3x5001xbf16>
}

// Many lanes next to each other: one thread each.
// CHECK-LABEL: gpu.func @walk
// CHECK-NOT: gpu.shuffle
// CHECK: gpu.return
// PTX: // kernel walk grid 64 x 1 x 1 block 256
plan.kernel @walk {
^bb0(%x: tensor<4x100x4096xi32>):
  %0 = loom.cumulative max %x dim = 1 : tensor<4x100x4096xi32>
  loom.yield %0 : tensor<4x100x4096xi32>
}

//===----------------------------------------------------------------------===//
// Scatter
//===----------------------------------------------------------------------===//

// Few updates of a large cache: a thread copies four elements, unless the output is the input, and
// then applies their updates in order. No atomics are used.
// CHECK-LABEL: gpu.func @cache
// CHECK-NOT: atomic
// CHECK: arith.cmpi ne
// CHECK: scf.if
// CHECK-COUNT-4: memref.load
// CHECK-COUNT-4: memref.store
// CHECK: scf.for
// PTX: // kernel cache grid 4096 x 1 x 1 block 256
plan.kernel @cache {
^bb0(%x: tensor<1024x4096xf32>, %i: tensor<1xi64>, %u: tensor<1x4096xf32>):
  %0 = loom.scatter %x, %i, %u dim = 0
      : (tensor<1024x4096xf32>, tensor<1xi64>, tensor<1x4096xf32>) -> tensor<1024x4096xf32>
  loom.yield %0 : tensor<1024x4096xf32>
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

// Eight lanes of 64 words per block.
// CHECK-LABEL: gpu.func @short_lanes
// CHECK-SAME: workgroup({{.*}} : memref<512xi64, #gpu.address_space<workgroup>>
// PTX: // kernel short_lanes grid 13 x 1 x 1 block 256
plan.kernel @short_lanes {
^bb0(%x: tensor<100x50xf16>):
  %0 = loom.argsort %x dim = 1 descending : (tensor<100x50xf16>) -> tensor<100x8xi64>
  loom.yield %0 : tensor<100x8xi64>
}

// The top few of a vocabulary: a block per lane, with the best in shared memory.
// CHECK-LABEL: gpu.func @vocabulary
// CHECK-SAME: memref<2048xi64, #gpu.address_space<workgroup>>
// CHECK-SAME: memref<32xi32, #gpu.address_space<workgroup>>
// PTX: // kernel vocabulary grid 2 x 1 x 1 block 1024
plan.kernel @vocabulary {
^bb0(%x: tensor<2x50257xf32>):
  %0 = loom.argsort %x dim = 1 descending : (tensor<2x50257xf32>) -> tensor<2x50xi64>
  loom.yield %0 : tensor<2x50xi64>
}

// Sorting all of a long lane happens in place, in the output.
// CHECK-LABEL: gpu.func @whole
// CHECK-SAME: workgroup({{.*}} : memref<4096xi64, #gpu.address_space<workgroup>>
// PTX: // kernel whole grid 1 x 1 x 1 block 1024
plan.kernel @whole {
^bb0(%x: tensor<20000xf32>):
  %0 = loom.argsort %x dim = 0 : (tensor<20000xf32>) -> tensor<20000xi64>
  loom.yield %0 : tensor<20000xi64>
}

// 64 bits and an index make 128-bit words; indices alone are kept in the output.
// CHECK-LABEL: gpu.func @wide_words
// CHECK-SAME: memref<2048xi128, #gpu.address_space<workgroup>>
// PTX: // kernel wide_words grid 1 x 1 x 1 block 512
// PTX: .minnctapersm 1
plan.kernel @wide_words {
^bb0(%x: tensor<9000xf64>):
  %0 = loom.argsort %x dim = 0 : (tensor<9000xf64>) -> tensor<3000xi64>
  loom.yield %0 : tensor<3000xi64>
}

//===----------------------------------------------------------------------===//
// Powers
//===----------------------------------------------------------------------===//

// CHECK-LABEL: gpu.func @power
// CHECK: math.ipowi
// PTX: // kernel power
// PTX: mul.lo.s32
// PTX: bra
plan.kernel @power {
^bb0(%x: tensor<4x4xi32>, %y: tensor<4x4xi32>):
  %0 = loom.power %x, %y : tensor<4x4xi32>
  loom.yield %0 : tensor<4x4xi32>
}
