// RUN: gridloom-opt %s --dist-chunk-collective-matmul="chunks=2 min-bytes=128" | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @all_reduce
// CHECK-SAME: (%[[X:.*]]: tensor<8x4xf32>, %[[W:.*]]: tensor<4x6xf32>)
// CHECK: %[[X0:.*]] = loom.slice %[[X]] [0, 0] to [4, 4] by [1, 1]
// CHECK: %[[Y0:.*]] = loom.dot_general %[[X0]], %[[W]] {{.*}} -> tensor<4x6xf32>
// CHECK: %[[R0:.*]] = dist.all_reduce %[[Y0]] over ["model"] sum {dist.chunk} : tensor<4x6xf32>
// CHECK: %[[X1:.*]] = loom.slice %[[X]] [4, 0] to [8, 4] by [1, 1]
// CHECK: %[[Y1:.*]] = loom.dot_general %[[X1]], %[[W]]
// CHECK: %[[R1:.*]] = dist.all_reduce %[[Y1]]
// CHECK: loom.concatenate %[[R0]], %[[R1]] dim = 0
// CHECK-NOT: loom.dot_general
func.func @all_reduce(%x: tensor<8x4xf32>, %w: tensor<4x6xf32>) -> tensor<8x6xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %1 = dist.all_reduce %0 over ["model"] sum : tensor<8x6xf32>
  return %1 : tensor<8x6xf32>
}

// Only the scattered dimension can be split: a chunk has a piece of both devices' rows.
// CHECK-LABEL: func.func @reduce_scatter
// CHECK: loom.reshape %{{.*}} : (tensor<8x4xf32>) -> tensor<2x4x4xf32>
// CHECK: loom.slice %{{.*}} [0, 0, 0] to [2, 2, 4] by [1, 1, 1]
// CHECK: loom.reshape %{{.*}} : (tensor<2x2x4xf32>) -> tensor<4x4xf32>
// CHECK: dist.reduce_scatter {{.*}} {dist.chunk} : (tensor<4x5xf32>) -> tensor<2x5xf32>
// CHECK: dist.reduce_scatter
// CHECK: loom.concatenate {{.*}} -> tensor<4x5xf32>
func.func @reduce_scatter(%x: tensor<8x4xf32>, %w: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x5xf32>) -> tensor<8x5xf32>
  %1 = dist.reduce_scatter %0 over ["model"] dim = 0 sum : (tensor<8x5xf32>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}

// The sequence is gathered, the batch is split into chunks.
// CHECK-LABEL: func.func @all_gather
// CHECK: %[[X0:.*]] = loom.slice %{{.*}} [0, 0, 0] to [1, 4, 4]
// CHECK: %[[G0:.*]] = dist.all_gather %[[X0]] over ["model"] dim = 1 {dist.chunk} : (tensor<1x4x4xf32>) -> tensor<1x8x4xf32>
// CHECK: loom.dot_general %[[G0]]
// CHECK: dist.all_gather
// CHECK: loom.dot_general
// CHECK: loom.concatenate {{.*}} dim = 0 {{.*}} -> tensor<2x8x5xf32>
func.func @all_gather(%x: tensor<2x4x4xf32>, %w: tensor<4x5xf32>) -> tensor<2x8x5xf32> {
  %0 = dist.all_gather %x over ["model"] dim = 1 : (tensor<2x4x4xf32>) -> tensor<2x8x4xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [2] x [0] : (tensor<2x8x4xf32>, tensor<4x5xf32>) -> tensor<2x8x5xf32>
  return %1 : tensor<2x8x5xf32>
}

// Odd sizes, a small result, or another use of the product: not chunked.
// CHECK-LABEL: func.func @whole
// CHECK-NOT: dist.chunk
func.func @whole(%x: tensor<7x4xf32>, %y: tensor<2x4xf32>, %w: tensor<4x5xf32>, %z: tensor<8x4xf32>)
    -> (tensor<7x5xf32>, tensor<2x5xf32>, tensor<8x5xf32>, tensor<8x5xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<7x4xf32>, tensor<4x5xf32>) -> tensor<7x5xf32>
  %1 = dist.all_reduce %0 over ["model"] sum : tensor<7x5xf32>
  %2 = loom.dot_general %y, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  %3 = dist.all_reduce %2 over ["model"] sum : tensor<2x5xf32>
  %4 = loom.dot_general %z, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x5xf32>) -> tensor<8x5xf32>
  %5 = dist.all_reduce %4 over ["model"] sum : tensor<8x5xf32>
  return %1, %3, %4, %5 : tensor<7x5xf32>, tensor<2x5xf32>, tensor<8x5xf32>, tensor<8x5xf32>
}

// A product of a value with itself: only one operand is cut.
// CHECK-LABEL: func.func @square
// CHECK-SAME: (%[[X:.*]]: tensor<8x4xf32>)
// CHECK: %[[X0:.*]] = loom.slice %[[X]] [0, 0] to [4, 4] by [1, 1]
// CHECK: loom.dot_general %[[X0]], %[[X]] {{.*}} : (tensor<4x4xf32>, tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK: dist.all_reduce
func.func @square(%x: tensor<8x4xf32>) -> tensor<8x8xf32> {
  %0 = loom.dot_general %x, %x batch = [] x [] contract = [1] x [1] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>
  %1 = dist.all_reduce %0 over ["model"] sum : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
