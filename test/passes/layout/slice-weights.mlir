// RUN: gridloom-opt %s --split-input-file --loom-slice-weights --mlir-print-local-scope | FileCheck %s

// Each slice is made at load, once for all functions that read it, and the weight is not.
loom.weight @w : tensor<8x4x5xf32> from <"", offset = 0, bytes = 640>
// CHECK: loom.derived @"w[:,:,::2]" : tensor<8x4x3xf32> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @w : tensor<8x4x5xf32>
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[W]] [0, 0, 0] to [8, 4, 5] by [1, 1, 2]
// CHECK-NEXT: loom.yield %[[S]]
// CHECK: loom.derived @"w[:,:,1::2]" : tensor<8x4x2xf32> {
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @phases
// CHECK-NEXT: %[[A:.*]] = loom.get_weight @"w[:,:,::2]" : tensor<8x4x3xf32>
// CHECK-NEXT: %[[B:.*]] = loom.get_weight @"w[:,:,1::2]" : tensor<8x4x2xf32>
// CHECK-NEXT: return %[[A]], %[[B]]
func.func @phases() -> (tensor<8x4x3xf32>, tensor<8x4x2xf32>) {
  %w = loom.get_weight @w : tensor<8x4x5xf32>
  %0 = loom.slice %w [0, 0, 0] to [8, 4, 5] by [1, 1, 2] : (tensor<8x4x5xf32>) -> tensor<8x4x3xf32>
  %1 = loom.slice %w [0, 0, 1] to [8, 4, 5] by [1, 1, 2] : (tensor<8x4x5xf32>) -> tensor<8x4x2xf32>
  return %0, %1 : tensor<8x4x3xf32>, tensor<8x4x2xf32>
}
// CHECK-LABEL: func.func @another_size
// CHECK-NEXT: loom.get_weight @"w[:,:,1::2]" : tensor<8x4x2xf32>
func.func @another_size() -> tensor<8x4x2xf32> {
  %w = loom.get_weight @w : tensor<8x4x5xf32>
  %0 = loom.slice %w [0, 0, 1] to [8, 4, 5] by [1, 1, 2] : (tensor<8x4x5xf32>) -> tensor<8x4x2xf32>
  return %0 : tensor<8x4x2xf32>
}

// -----

// A shard's cuts stay, whole dimensions are the whole weight's; the source may be derived itself, and a
// name be taken.
dist.mesh @mesh <["model" = 2]>
loom.weight @v : tensor<7x4xf32> from <"", offset = 0, bytes = 112>
loom.weight @"w[:,1:2]" : tensor<7x1xf32> from <"", offset = 112, bytes = 28>
loom.derived @w : tensor<7x4xf32> {
  %0 = loom.get_weight @v : tensor<7x4xf32>
  %1 = loom.exp %0 : tensor<7x4xf32>
  loom.yield %1 : tensor<7x4xf32>
}
// CHECK-NOT: loom.derived @w :
// CHECK: loom.derived @"w[:,1:2]_0" : tensor<7x1xf32> {
// CHECK: %[[E:.*]] = loom.exp
// CHECK-NEXT: loom.slice %[[E]] [0, 1] to [7, 2] by [1, 1]
// CHECK-LABEL: func.func @shard
// CHECK-NEXT: loom.get_weight @"w[:,1:2]_0" {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x1xf32>
// CHECK-NEXT: loom.get_weight @"w[:,1:2]" : tensor<7x1xf32>
func.func @shard() -> (tensor<4x1xf32>, tensor<7x1xf32>) {
  %w = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x4xf32>
  %0 = loom.slice %w [0, 1] to [4, 2] by [1, 1] : (tensor<4x4xf32>) -> tensor<4x1xf32>
  %other = loom.get_weight @"w[:,1:2]" : tensor<7x1xf32>
  return %0, %other : tensor<4x1xf32>, tensor<7x1xf32>
}

// -----

// Slices of a weight that is reshaped, where what is split stays a dimension.
dist.mesh @mesh <["model" = 2]>
loom.weight @w : tensor<1x8x6x4xf32> from <"", offset = 0, bytes = 768>
// CHECK: loom.derived @"w[:,:,1:]" : tensor<8x6x3xf32> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @w : tensor<1x8x6x4xf32>
// CHECK-NEXT: %[[R:.*]] = loom.reshape %[[W]] : (tensor<1x8x6x4xf32>) -> tensor<8x6x4xf32>
// CHECK-NEXT: loom.slice %[[R]] [0, 0, 1] to [8, 6, 4] by [1, 1, 1]
// CHECK-LABEL: func.func @reshaped
// CHECK-NEXT: loom.get_weight @"w[:,:,1:]" {sharding = #dist.sharding<@mesh, [{}, {"model"}, {}]>} : tensor<8x3x3xf32>
func.func @reshaped() -> tensor<8x3x3xf32> {
  %w = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{}, {}, {"model"}, {}]>} : tensor<1x8x3x4xf32>
  %0 = loom.reshape %w : (tensor<1x8x3x4xf32>) -> tensor<8x3x4xf32>
  %1 = loom.slice %0 [0, 0, 1] to [8, 3, 4] by [1, 1, 1] : (tensor<8x3x4xf32>) -> tensor<8x3x3xf32>
  return %1 : tensor<8x3x3xf32>
}

// -----

// Whole elsewhere, or in overlapping parts: memory would hold it twice. What is split cannot be cut.
dist.mesh @mesh <["model" = 2]>
loom.weight @whole : tensor<8xf32> from <"", offset = 0, bytes = 32>
loom.weight @overlaps : tensor<8xf32> from <"", offset = 32, bytes = 32>
loom.weight @split : tensor<8xf32> from <"", offset = 64, bytes = 32>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @stay
// CHECK-COUNT-4: loom.slice
func.func @stay() -> (tensor<4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<2xf32>) {
  %0 = loom.get_weight @whole : tensor<8xf32>
  %1 = loom.slice %0 [0] to [4] by [1] : (tensor<8xf32>) -> tensor<4xf32>
  %2 = loom.get_weight @overlaps : tensor<8xf32>
  %3 = loom.slice %2 [0] to [6] by [1] : (tensor<8xf32>) -> tensor<6xf32>
  %4 = loom.slice %2 [2] to [8] by [1] : (tensor<8xf32>) -> tensor<6xf32>
  %5 = loom.get_weight @split {sharding = #dist.sharding<@mesh, [{"model"}]>} : tensor<4xf32>
  %6 = loom.slice %5 [0] to [2] by [1] : (tensor<4xf32>) -> tensor<2xf32>
  return %1, %3, %4, %6 : tensor<4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<2xf32>
}
func.func @reads_whole() -> tensor<8xf32> {
  %0 = loom.get_weight @whole : tensor<8xf32>
  return %0 : tensor<8xf32>
}
