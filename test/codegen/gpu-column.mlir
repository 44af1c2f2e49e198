// RUN: gridloom-opt %s --plan-emit-gpu --canonicalize --cse | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// 25 vectors of four columns, side by side; two threads split the eight rows of each, whose parts
// are in line. Threads outside repeat the last vector and store nothing.
// CHECK-LABEL: gpu.func @columns
// CHECK: arith.minui
// CHECK: arith.maxsi {{.*}} : vector<4xi64>
// CHECK-NOT: gpu.shuffle
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: vector.store
// PTX-LABEL: kernel columns grid 1 x 1 x 1 block 64
plan.kernel @columns {
^bb0(%x: tensor<8x100xi64>):
  %0 = loom.reduce max %x dims = [0] : (tensor<8x100xi64>) -> tensor<100xi64>
  loom.yield %0 : tensor<100xi64>
}

// Many rows are split over 32 threads, each with a loop over its part.
// CHECK-LABEL: gpu.func @tall
// CHECK: scf.for {{.*}} iter_args
// CHECK: vector.load {{.*}} : memref<393216xf32>, vector<4xf32>
// CHECK: gpu.barrier
// PTX-LABEL: kernel tall grid 1 x 12 x 1 block 256
plan.kernel @tall {
^bb0(%x: tensor<1024x384xf32>):
  %0 = loom.reduce sum %x dims = [0] : (tensor<1024x384xf32>) -> tensor<384xf32>
  loom.yield %0 : tensor<384xf32>
}

// A softmax across columns: the block that reduces them reads them once and writes them.
// CHECK-LABEL: gpu.func @across
// CHECK-COUNT-4: vector.load {{.*}} : memref<8192xf32>
// CHECK-NOT: vector.load {{.*}} : memref<8192xf32>
// CHECK: gpu.barrier
// CHECK: gpu.barrier
// CHECK: vector.store
plan.kernel @across {
^bb0(%x: tensor<4x16x128xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<4x16x128xf32>
  loom.yield %0 : tensor<4x16x128xf32>
}
