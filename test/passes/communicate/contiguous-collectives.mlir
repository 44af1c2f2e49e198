// RUN: gridloom-opt %s --dist-contiguous-collectives | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @gather
// CHECK: %[[A:.*]] = dist.all_gather %{{.*}} over ["model"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
// CHECK: %[[B:.*]] = loom.reshape %[[A]] : (tensor<8x8xf32>) -> tensor<2x4x8xf32>
// CHECK: %[[C:.*]] = loom.transpose %[[B]] [1, 0, 2] : (tensor<2x4x8xf32>) -> tensor<4x2x8xf32>
// CHECK: loom.reshape %[[C]] : (tensor<4x2x8xf32>) -> tensor<4x16xf32>
func.func @gather(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %0 = dist.all_gather %x over ["model"] dim = 1 : (tensor<4x8xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @scatter
// CHECK: %[[A:.*]] = loom.reshape %{{.*}} : (tensor<4x16xf32>) -> tensor<4x2x8xf32>
// CHECK: %[[B:.*]] = loom.transpose %[[A]] [1, 0, 2]
// CHECK: %[[C:.*]] = loom.reshape %[[B]] : (tensor<2x4x8xf32>) -> tensor<8x8xf32>
// CHECK: dist.reduce_scatter %[[C]] over ["model"] dim = 0 sum : (tensor<8x8xf32>) -> tensor<4x8xf32>
func.func @scatter(%x: tensor<4x16xf32>) -> tensor<4x8xf32> {
  %0 = dist.reduce_scatter %x over ["model"] dim = 1 sum : (tensor<4x16xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @exchange
// CHECK: %[[P:.*]] = loom.reshape %{{.*}} : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
// CHECK: %[[Q:.*]] = loom.reshape %[[P]] : (tensor<2x2x8xf32>) -> tensor<4x8xf32>
// CHECK: dist.all_to_all %[[Q]] over ["model"] split = 0 concat = 0 : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: loom.transpose {{.*}} [1, 0, 2] : (tensor<2x2x8xf32>) -> tensor<2x2x8xf32>
// CHECK: loom.reshape {{.*}} -> tensor<2x16xf32>
func.func @exchange(%x: tensor<4x8xf32>) -> tensor<2x16xf32> {
  %0 = dist.all_to_all %x over ["model"] split = 0 concat = 1 : (tensor<4x8xf32>) -> tensor<2x16xf32>
  return %0 : tensor<2x16xf32>
}

// A transpose that brings the dimension to the front comes before.
// CHECK-LABEL: func.func @transposed
// CHECK: %[[T:.*]] = loom.transpose %arg0 [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
// CHECK-NEXT: %[[R:.*]] = dist.reduce_scatter %[[T]] over ["model"] dim = 0 sum : (tensor<8x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return %[[R]]
func.func @transposed(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = dist.reduce_scatter %x over ["model"] dim = 1 sum : (tensor<4x8xf32>) -> tensor<4x4xf32>
  %1 = loom.transpose %0 [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
