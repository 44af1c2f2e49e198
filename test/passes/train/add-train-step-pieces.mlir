// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)'" --canonicalize --cse | FileCheck %s

loom.weight @w : tensor<4x1xf32> from <"", offset = 0, bytes = 16>

// A batch of 6 in 3 parts: part i has rows i and 3 + i. Their gradients are summed, then divided once.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %[[X:.*]]: tensor<6x4xf32> {{.*}}loom.name = "x"
// CHECK-SAME: %[[T:.*]]: tensor<6x1xf32> {{.*}}loom.name = "target"
// CHECK-NOT: loom.batch
// CHECK-SAME: loom.parts = 3 : i64
// CHECK: %[[ROWS:.*]] = loom.reshape %[[X]] : (tensor<6x4xf32>) -> tensor<2x3x4xf32>
// CHECK: loom.slice %[[ROWS]] [0, 0, 0] to [2, 1, 4]
// CHECK: %[[G0:.*]] = loom.transpose
// CHECK: loom.slice %[[ROWS]] [0, 1, 0] to [2, 2, 4]
// CHECK: %[[G1:.*]] = loom.transpose
// CHECK: %[[G01:.*]] = loom.add %[[G0]], %[[G1]]
// CHECK: loom.slice %[[ROWS]] [0, 2, 0] to [2, 3, 4]
// CHECK: %[[G2:.*]] = loom.transpose
// CHECK: %[[SUM:.*]] = loom.add %[[G01]], %[[G2]]
// CHECK: loom.multiply %[[SUM]]
func.func @train_step(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]})
    attributes {loom.batch = {name = "batch", parts = 3 : i64}, loom.entry = "train_step", loom.dims = {batch = 6 : i64}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
  return %y : tensor<2x1xf32>
}
func.func @main(%x: tensor<6x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<6x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {batch = 6 : i64}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<6x4xf32>, tensor<4x1xf32>) -> tensor<6x1xf32>
  return %y : tensor<6x1xf32>
}
