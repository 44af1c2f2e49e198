// RUN: gridloom-opt %s --loom-add-train-step="losses={mse(y, t)} optimizer='sgd(lr=0.1)'" --canonicalize --cse | FileCheck %s

loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>

// A prediction without dimensions has a target without dimensions, and no axis of classes.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %{{.*}}: tensor<f32> {{{.*}}loom.name = "t"}
// CHECK-SAME: -> (tensor<f32> {{{.*}}loom.name = "loss"}
func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = ["batch"]}) -> (
    tensor<f32> {loom.name = "y", loom.dim_names = []})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [0] x [0] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %y : tensor<f32>
}
