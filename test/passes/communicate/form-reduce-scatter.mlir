// RUN: gridloom-opt %s --dist-form-reduce-scatter | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @one_use
// CHECK: dist.reduce_scatter %{{.*}} over ["model"] dim = 0 sum : (tensor<8x16xf32>) -> tensor<4x16xf32>
// CHECK-NOT: dist.
func.func @one_use(%x: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
  return %1 : tensor<4x16xf32>
}

// The whole sum is wanted too: nothing changes.
// CHECK-LABEL: func.func @two_uses
// CHECK: dist.all_reduce
// CHECK: dist.shard_slice
func.func @two_uses(%x: tensor<8x16xf32>) -> (tensor<4x16xf32>, tensor<8x16xf32>) {
  %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
  return %1, %0 : tensor<4x16xf32>, tensor<8x16xf32>
}
