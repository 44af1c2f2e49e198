// RUN: gridloom-opt %s --loom-add-train-step="losses={mse(y, s),mse(z, t, weight=5)} optimizer='sgd(lr=0.1)'" --canonicalize --cse | FileCheck %s

loom.weight @w : tensor<4x1xf32> from <"", offset = 0, bytes = 16>
loom.weight @v : tensor<4x3xf32> from <"", offset = 16, bytes = 48>

// Several losses may have different counts: each is returned with its count, and their sum.
// CHECK: loom.training = {{{.*}}targets = [{name = "s"}, {name = "t"}], terms = ["loss.1", "loss.2"]}
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: -> (tensor<f32> {{{.*}}loom.name = "loss"}, tensor<f32> {{{.*}}loom.name = "count"},
// CHECK-SAME: tensor<f32> {{{.*}}loom.name = "loss.1"}, tensor<f32> {{{.*}}loom.name = "loss.1.count"},
// CHECK-SAME: tensor<f32> {{{.*}}loom.name = "loss.2"}, tensor<f32> {{{.*}}loom.name = "loss.2.count"},
// CHECK-SAME: tensor<f32> {{{.*}}loom.name = "gradient_norm"}
// CHECK-LABEL: func.func @eval(
// CHECK-DAG: %[[COUNT:.*]] = loom.constant dense<2.000000e+00> : tensor<f32>
// CHECK-DAG: %[[WEIGHT:.*]] = loom.constant dense<5.000000e+00> : tensor<f32>
// CHECK-DAG: %[[ELEMENTS:.*]] = loom.constant dense<6.000000e+00> : tensor<f32>
// CHECK: %[[FIRST:.*]] = loom.divide
// CHECK: %[[MEAN:.*]] = loom.divide
// CHECK: %[[SECOND:.*]] = loom.multiply %[[MEAN]], %[[WEIGHT]]
// CHECK: %[[LOSS:.*]] = loom.add %[[FIRST]], %[[SECOND]]
// CHECK: return %[[LOSS]], %[[COUNT]], %[[FIRST]], %[[COUNT]], %[[SECOND]], %[[ELEMENTS]] :
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<2x3xf32> {loom.name = "z", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %v = loom.get_weight @v : tensor<4x3xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
  %z = loom.dot_general %x, %v batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
  return %y, %z : tensor<2x1xf32>, tensor<2x3xf32>
}
