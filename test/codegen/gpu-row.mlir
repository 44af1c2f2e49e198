// RUN: gridloom-opt %s --plan-emit-gpu | FileCheck %s
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null | FileCheck %s --check-prefix=PTX

// A warp has a row: eight rows a block, two reductions by five shuffles each, no shared memory.
// CHECK-LABEL: gpu.func @warp
// CHECK-COUNT-10: gpu.shuffle xor
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
// PTX-LABEL: .entry warp
// PTX: ld.global.nc.v4.b32
// PTX-COUNT-10: shfl.sync.bfly.b32
// PTX: st.global.v4.b32
plan.kernel @warp row {
^bb0(%x: tensor<40x128xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<40x128xf32>
  loom.yield %0 : tensor<40x128xf32>
}

// A block has a long row; its warps meet in shared memory, once a reduction.
// CHECK-LABEL: gpu.func @block
// CHECK-SAME: workgroup({{.*}} : memref<8xf32, #gpu.address_space<workgroup>>, {{.*}} : memref<8xf32, #gpu.address_space<workgroup>>)
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-NOT: gpu.barrier
// CHECK: gpu.return
plan.kernel @block row {
^bb0(%x: tensor<16x3072xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<16x3072xf32>
  loom.yield %0 : tensor<16x3072xf32>
}

// One output per row: the first thread of a warp stores it.
// CHECK-LABEL: gpu.func @sums
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: scf.if
// CHECK-NEXT: memref.store
plan.kernel @sums row {
^bb0(%x: tensor<8x100xf32>):
  %0 = loom.reduce sum %x dims = [1] : (tensor<8x100xf32>) -> tensor<8xf32>
  loom.yield %0 : tensor<8xf32>
}

// Columns: a thread has neighbouring outputs, nothing is exchanged.
// CHECK-LABEL: gpu.func @columns
// CHECK-NOT: gpu.shuffle
// CHECK: arith.maxsi {{.*}} : vector<4xi64>
plan.kernel @columns row {
^bb0(%x: tensor<8x100xi64>):
  %0 = loom.reduce max %x dims = [0] : (tensor<8x100xi64>) -> tensor<100xi64>
  loom.yield %0 : tensor<100xi64>
}
