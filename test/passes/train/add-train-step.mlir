// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1, momentum=0.9)'" --canonicalize | FileCheck %s

loom.weight @w : tensor<4x1xf32> from <"", offset = 0, bytes = 16>
loom.weight @mean : tensor<4xf32> from <"", offset = 16, bytes = 16>

// The default learning rate and the texts are stored for the training loop.
// CHECK: loom.training = {elements = 4 : i64, learning_rate = 1.000000e-01 : f64, losses = ["mse(y, target)"], optimizer = "sgd(lr=0.1, momentum=0.9)", parameters = 1 : i64, targets = [{name = "target"}], unreached = ["mean"]}

// Parameters and the optimizer's states are states; the learning rate is an input without a batch.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32> {loom.dim_names = ["batch", ""], loom.name = "x"},
// CHECK-SAME: %[[T:.*]]: tensor<2x1xf32> {loom.dim_names = ["batch", ""], loom.name = "target"},
// CHECK-SAME: %[[W:.*]]: tensor<4x1xf32> {loom.dim_names = ["", ""], loom.init = "w", loom.name = "w", loom.role = "parameter", loom.state = "w"},
// CHECK-SAME: %[[RATE:.*]]: tensor<f32> {loom.dim_names = [], loom.name = "learning_rate", loom.role = "setting"},
// CHECK-SAME: %[[STEP:.*]]: tensor<i64> {loom.dim_names = [], loom.name = "train/step", loom.role = "counter", loom.state = "train/step"},
// CHECK-SAME: %[[V:.*]]: tensor<4x1xf32> {loom.dim_names = ["", ""], loom.name = "w/momentum", loom.role = "moment", loom.state = "w/momentum"})
// CHECK-SAME: -> (tensor<f32> {{{.*}}loom.name = "loss"}, tensor<f32> {{{.*}}loom.name = "count"},
// CHECK-SAME: tensor<f32> {{{.*}}loom.name = "gradient_norm"}, tensor<f32> {{{.*}}loom.name = "committed"},
// CHECK-SAME: tensor<4x1xf32> {{{.*}}loom.state = "w"}, tensor<4x1xf32> {{{.*}}loom.state = "w/momentum"},
// CHECK-SAME: tensor<i64> {{{.*}}loom.state = "train/step"})
// CHECK-SAME: loom.entry = "train_step"
// A state keeps its value if the loss or the norm is not finite.
// CHECK: %[[FINITE:.*]] = loom.and
// CHECK: %[[TAKEN:.*]] = loom.broadcast %[[FINITE]] dims = [] : (tensor<i1>) -> tensor<4x1xi1>
// CHECK: %[[NEXT:.*]] = loom.select %[[TAKEN]], %{{.*}}, %[[W]]
// CHECK: %[[NEXTV:.*]] = loom.select %{{.*}}, %{{.*}}, %[[V]]
// CHECK: %[[ONE:.*]] = loom.convert %[[FINITE]] : (tensor<i1>) -> tensor<i64>
// CHECK: %[[COUNT:.*]] = loom.add %[[STEP]], %[[ONE]]
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[NEXT]], %[[NEXTV]], %[[COUNT]]

// CHECK-LABEL: func.func @eval(
// CHECK-SAME: loom.name = "x"
// CHECK-SAME: loom.name = "target"
// CHECK-SAME: loom.state = "w"}) -> (tensor<f32> {{{.*}}loom.name = "loss"}, tensor<f32> {{{.*}}loom.name = "count"})
// CHECK-SAME: loom.entry = "eval"

// Values that the loss does not depend on stay weights.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: loom.state = "w"}) -> (tensor<2x1xf32> {{{.*}}loom.name = "y"}, tensor<4xf32> {{{.*}}loom.name = "z"})
// CHECK: loom.get_weight @mean
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "z", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %m = loom.get_weight @mean : tensor<4xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
  return %y, %m : tensor<2x1xf32>, tensor<4xf32>
}
