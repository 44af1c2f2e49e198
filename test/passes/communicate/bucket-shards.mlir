// RUN: gridloom-opt %s --dist-bucket-shards="bucket-size=4096" | FileCheck %s
// RUN: gridloom-opt %s --dist-bucket-shards="bucket-size=64" | FileCheck %s --check-prefix=SMALL
// RUN: gridloom-opt %s --dist-bucket-shards | FileCheck %s --check-prefix=NONE
// RUN: gridloom-opt %s --dist-bucket-shards="bucket-size=16777216" | FileCheck %s --check-prefix=LARGE

dist.mesh @mesh <["data" = 2]>

// The message has the first rank's shards, then the second's. It is placed where its last gradient is ready; operations that rearrange an operand
// come before it, those that rearrange a result after it. With 64 bytes the first gradient fills a bucket.
// CHECK-LABEL: func.func @scatter
// CHECK: %[[A:.*]] = loom.exp %arg0
// CHECK: %[[B:.*]] = loom.negate %arg1
// CHECK: %[[T:.*]] = loom.transpose %[[B]] [1, 0]
// CHECK: %[[P:.*]] = loom.reshape %[[A]] : (tensor<8x3xf32>) -> tensor<2x12xf32>
// CHECK: %[[Q:.*]] = loom.reshape %[[T]] : (tensor<2x5xf32>) -> tensor<2x5xf32>
// CHECK: %[[C:.*]] = loom.concatenate %[[P]], %[[Q]] dim = 1 : (tensor<2x12xf32>, tensor<2x5xf32>) -> tensor<2x17xf32>
// CHECK: %[[M:.*]] = loom.reshape %[[C]] : (tensor<2x17xf32>) -> tensor<34xf32>
// CHECK: %[[R:.*]] = dist.reduce_scatter %[[M]] over ["data"] dim = 0 sum {dist.because = "a bucket of 2: 'a' needs the whole; 'b' needs the whole"} : (tensor<34xf32>) -> tensor<17xf32>
// CHECK-NOT: dist.reduce_scatter
// CHECK: loom.slice %[[R]] [0] to [12] by [1]
// CHECK: %[[S:.*]] = loom.slice %[[R]] [12] to [17] by [1]
// CHECK: %[[MOVED:.*]] = loom.transpose
// CHECK: loom.tanh %[[MOVED]]
// SMALL-LABEL: func.func @scatter
// SMALL-COUNT-2: dist.reduce_scatter
// SMALL-LABEL: func.func @gather
// NONE-LABEL: func.func @scatter
// NONE-COUNT-2: dist.reduce_scatter
// NONE-LABEL: func.func @gather
func.func @scatter(%x: tensor<8x3xf32>, %y: tensor<5x2xf32>) -> (tensor<3x4xf32>, tensor<1x5xf32>) attributes {loom.entry = "train_step"} {
  %a = loom.exp %x : tensor<8x3xf32>
  %0 = dist.reduce_scatter %a over ["data"] dim = 0 sum {dist.because = "'a' needs the whole"} : (tensor<8x3xf32>) -> tensor<4x3xf32>
  %1 = loom.transpose %0 [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %b = loom.negate %y : tensor<5x2xf32>
  %2 = loom.transpose %b [1, 0] : (tensor<5x2xf32>) -> tensor<2x5xf32>
  %3 = dist.reduce_scatter %2 over ["data"] dim = 0 sum {dist.because = "'b' needs the whole"} : (tensor<2x5xf32>) -> tensor<1x5xf32>
  %4 = loom.tanh %1 : tensor<3x4xf32>
  return %4, %3 : tensor<3x4xf32>, tensor<1x5xf32>
}

// Weights that are only returned are gathered together; a weight that is also read is not.
// CHECK-LABEL: func.func @gather
// CHECK: %[[P:.*]] = loom.reshape %arg0 : (tensor<4x3xf32>) -> tensor<12xf32>
// CHECK: %[[C:.*]] = loom.concatenate %[[P]], %{{.*}} dim = 0 : (tensor<12xf32>, tensor<5xf32>) -> tensor<17xf32>
// CHECK: %[[G:.*]] = dist.all_gather %[[C]] over ["data"] dim = 0 : (tensor<17xf32>) -> tensor<34xf32>
// CHECK: %[[M:.*]] = loom.reshape %[[G]] : (tensor<34xf32>) -> tensor<2x17xf32>
// CHECK: loom.slice %[[M]] [0, 0] to [2, 12] by [1, 1]
// CHECK: loom.reshape {{.*}} -> tensor<8x3xf32>
// CHECK: loom.slice %[[M]] [0, 12] to [2, 17] by [1, 1]
// CHECK: loom.reshape {{.*}} -> tensor<10xf32>
// CHECK: dist.all_gather %arg2 over ["data"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
// CHECK-NOT: dist.all_gather
func.func @gather(%x: tensor<4x3xf32>, %y: tensor<5xf32>, %z: tensor<4xf32>) -> (tensor<8x3xf32>, tensor<9xf32>, tensor<8xf32>) attributes {loom.entry = "train_step"} {
  %2 = dist.all_gather %z over ["data"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
  %3 = loom.exp %2 : tensor<8xf32>
  %0 = dist.all_gather %x over ["data"] dim = 0 : (tensor<4x3xf32>) -> tensor<8x3xf32>
  %1 = dist.all_gather %y over ["data"] dim = 0 : (tensor<5xf32>) -> tensor<10xf32>
  %4 = loom.slice %1 [0] to [9] by [1] : (tensor<10xf32>) -> tensor<9xf32>
  return %0, %4, %3 : tensor<8x3xf32>, tensor<9xf32>, tensor<8xf32>
}

// The gradients of one part of a batch do not wait for those of the next part.
// CHECK-LABEL: func.func @parts
// CHECK: dist.reduce_scatter %{{.*}} : (tensor<16xf32>) -> tensor<8xf32>
// CHECK: loom.tanh
// CHECK: dist.reduce_scatter %{{.*}} : (tensor<16xf32>) -> tensor<8xf32>
// CHECK-NOT: dist.reduce_scatter
func.func @parts(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {loom.entry = "train_step"} {
  %w1 = loom.exp %x : tensor<8xf32>
  %v1 = loom.exp %y : tensor<8xf32>
  %w2 = loom.tanh %x : tensor<8xf32>
  %v2 = loom.tanh %y : tensor<8xf32>
  %0 = dist.reduce_scatter %w1 over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %1 = dist.reduce_scatter %w2 over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %2 = loom.add %0, %1 {loom.accumulates = "w"} : tensor<4xf32>
  %3 = dist.reduce_scatter %v1 over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %4 = dist.reduce_scatter %v2 over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %5 = loom.add %3, %4 {loom.accumulates = "v"} : tensor<4xf32>
  return %2, %5 : tensor<4xf32>, tensor<4xf32>
}

// A value that another depends on is no gradient and sent alone; gradients after it go together.
// CHECK-LABEL: func.func @awaited
// CHECK: dist.reduce_scatter %{{.*}} : (tensor<8xf32>) -> tensor<4xf32>
// CHECK: dist.reduce_scatter %{{.*}} : (tensor<12xf32>) -> tensor<6xf32>
// CHECK-NOT: dist.reduce_scatter
func.func @awaited(%x: tensor<8xf32>, %z: tensor<8xf32>) -> (tensor<2xf32>, tensor<4xf32>, tensor<4xf32>) attributes {loom.entry = "train_step"} {
  %a = loom.exp %x : tensor<8xf32>
  %b = loom.tanh %z : tensor<8xf32>
  %0 = dist.reduce_scatter %a over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %5 = dist.reduce_scatter %b over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %1 = loom.exp %0 : tensor<4xf32>
  %2 = dist.reduce_scatter %1 over ["data"] dim = 0 sum : (tensor<4xf32>) -> tensor<2xf32>
  %3 = loom.exp %2 : tensor<2xf32>
  return %3, %5, %0 : tensor<2xf32>, tensor<4xf32>, tensor<4xf32>
}

// No gradients: values that others depend on. A value used before another is ready does not wait for it; a message has one type.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-4: dist.reduce_scatter
// CHECK-NOT: dist.reduce_scatter
func.func @apart(%x: tensor<8xf32>, %z: tensor<8xf64>) -> (tensor<2xf32>, tensor<4xf64>, tensor<4xf32>) attributes {loom.entry = "train_step"} {
  %a = loom.exp %x : tensor<8xf32>
  %0 = dist.reduce_scatter %a over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %1 = loom.exp %0 : tensor<4xf32>
  %2 = dist.reduce_scatter %1 over ["data"] dim = 0 sum : (tensor<4xf32>) -> tensor<2xf32>
  %3 = loom.exp %2 : tensor<2xf32>
  %4 = dist.reduce_scatter %z over ["data"] dim = 0 sum : (tensor<8xf64>) -> tensor<4xf64>
  %b = loom.tanh %a : tensor<8xf32>
  %5 = dist.reduce_scatter %b over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  return %3, %4, %5 : tensor<2xf32>, tensor<4xf64>, tensor<4xf32>
}

// Only a training step has gradients.
// CHECK-LABEL: func.func @eval
// CHECK-COUNT-2: dist.reduce_scatter
func.func @eval(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<4xf32>, tensor<4xf32>) attributes {loom.entry = "eval"} {
  %0 = dist.reduce_scatter %x over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  %1 = dist.reduce_scatter %y over ["data"] dim = 0 sum : (tensor<8xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// To copy a large gradient into the message of small ones would take longer than its own message.
// LARGE-LABEL: func.func @large
// LARGE-COUNT-2: dist.reduce_scatter
// LARGE-NOT: dist.reduce_scatter
func.func @large(%x: tensor<1024x1024xf32>, %y: tensor<8x3xf32>, %z: tensor<4xf32>) -> (tensor<512x1024xf32>, tensor<4x3xf32>, tensor<2xf32>)
    attributes {loom.entry = "train_step"} {
  %0 = dist.reduce_scatter %x over ["data"] dim = 0 sum : (tensor<1024x1024xf32>) -> tensor<512x1024xf32>
  %1 = dist.reduce_scatter %y over ["data"] dim = 0 sum : (tensor<8x3xf32>) -> tensor<4x3xf32>
  %2 = dist.reduce_scatter %z over ["data"] dim = 0 sum : (tensor<4xf32>) -> tensor<2xf32>
  return %0, %1, %2 : tensor<512x1024xf32>, tensor<4x3xf32>, tensor<2xf32>
}
