// RUN: gridloom-opt %s --dist-lower-shard-slices | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @slice
// CHECK: %[[I:.*]] = dist.axis_index ["model"] : tensor<i64>
// CHECK: %[[P:.*]] = loom.reshape %{{.*}} : (tensor<3x8xf32>) -> tensor<3x2x4xf32>
// CHECK: loom.gather %[[P]], %[[I]] dim = 1 : (tensor<3x2x4xf32>, tensor<i64>) -> tensor<3x4xf32>
func.func @slice(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %0 = dist.shard_slice %x over ["model"] dim = 1 : (tensor<3x8xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
