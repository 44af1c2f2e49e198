// RUN: gridloom-opt %s --dist-form-reduce-scatter | FileCheck %s

dist.mesh @mesh <["model" = 2, "a" = 2, "b" = 4]>
// CHECK-LABEL: func.func @one_use
// CHECK: dist.reduce_scatter %{{.*}} over ["model"] dim = 0 sum : (tensor<8x16xf32>) -> tensor<4x16xf32>
// CHECK-NOT: dist.
func.func @one_use(%x: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
  return %1 : tensor<4x16xf32>
}

// The whole sum is used too: nothing changes.
// CHECK-LABEL: func.func @two_uses
// CHECK: dist.all_reduce
// CHECK: dist.shard_slice
func.func @two_uses(%x: tensor<8x16xf32>) -> (tensor<4x16xf32>, tensor<8x16xf32>) {
  %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
  return %1, %0 : tensor<4x16xf32>, tensor<8x16xf32>
}

// The slice is over one of two axes: the sum over the other is computed on the part.
// CHECK-LABEL: func.func @one_of_two_axes
// CHECK: %[[P:.*]] = dist.reduce_scatter %{{.*}} over ["b"] dim = 1 sum : (tensor<8x16xf32>) -> tensor<8x4xf32>
// CHECK: %[[S:.*]] = dist.all_reduce %[[P]] over ["a"] sum : tensor<8x4xf32>
// CHECK: return %[[S]]
func.func @one_of_two_axes(%x: tensor<8x16xf32>) -> tensor<8x4xf32> {
  %0 = dist.all_reduce %x over ["a", "b"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["b"] dim = 1 : (tensor<8x16xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// The slice is over an axis that is not reduced: nothing changes.
// CHECK-LABEL: func.func @other_axis
// CHECK: dist.all_reduce
// CHECK: dist.shard_slice
func.func @other_axis(%x: tensor<8x16xf32>) -> tensor<8x4xf32> {
  %0 = dist.all_reduce %x over ["a"] sum : tensor<8x16xf32>
  %1 = dist.shard_slice %0 over ["b"] dim = 1 : (tensor<8x16xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
