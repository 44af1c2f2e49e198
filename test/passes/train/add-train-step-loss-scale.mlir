// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer=sgd loss-scale=dynamic(interval=4)" --canonicalize | FileCheck %s
// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer=sgd loss-scale=8" --canonicalize | FileCheck %s --check-prefix=STATIC
// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer=sgd loss-scale=off" --canonicalize | FileCheck %s --check-prefix=OFF

// The derivative of the mean over 6 elements is seeded with the scale over 4, the power of two below 6; the count
// and the rest of the scale are divided out together. A state of 0 means the initial scale.
// CHECK: loom.training = {{{.*}}least_loss_scale = 1.000000e+00 : f64
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %[[STATE:[a-z0-9]+]]: tensor<f32> {loom.dim_names = [], loom.name = "train/loss_scale", loom.role = "counter", loom.state = "train/loss_scale"},
// CHECK-SAME: %[[GOOD:[a-z0-9]+]]: tensor<i64> {loom.dim_names = [], loom.name = "train/good_steps", loom.role = "counter", loom.state = "train/good_steps"},
// CHECK-SAME: tensor<f32> {loom.dim_names = [], loom.name = "loss_scale"}
// CHECK-DAG: %[[ZERO:.*]] = loom.constant dense<0.000000e+00> : tensor<f32>
// CHECK-DAG: %[[NONE:.*]] = loom.constant dense<0> : tensor<i64>
// CHECK-DAG: %[[FOUR:.*]] = loom.constant dense<4> : tensor<i64>
// CHECK-DAG: %[[LEAST:.*]] = loom.constant dense<1.000000e+00> : tensor<f32>
// CHECK-DAG: %[[SIX:.*]] = loom.constant dense<6.000000e+00> : tensor<f32>
// CHECK-DAG: %[[WHOLE:.*]] = loom.constant dense<4.000000e+00> : tensor<f32>
// CHECK-DAG: %[[QUARTER:.*]] = loom.constant dense<2.500000e-01> : tensor<f32>
// CHECK-DAG: %[[INIT:.*]] = loom.constant dense<6.553600e+04> : tensor<f32>
// CHECK: %[[IS_NEW:.*]] = loom.compare eq %[[STATE]], %[[ZERO]]
// CHECK: %[[SCALE:.*]] = loom.select %[[IS_NEW]], %[[INIT]], %[[STATE]]
// CHECK: %[[SEED:.*]] = loom.multiply %[[QUARTER]], %[[SCALE]]
// CHECK: loom.broadcast %[[SEED]]
// CHECK: %[[COUNT:.*]] = loom.select %{{.*}}, %[[SIX]], %[[LEAST]]
// CHECK: %[[DIVISOR:.*]] = loom.multiply %[[COUNT]], %[[SCALE]]
// CHECK: loom.divide %[[WHOLE]], %[[DIVISOR]]
// CHECK: %[[COMMITTED:.*]] = loom.and
// CHECK: %[[MORE:.*]] = loom.add %[[GOOD]]
// CHECK: %[[DUE:.*]] = loom.compare ge %[[MORE]], %[[FOUR]]
// CHECK: %[[GROWN:.*]] = loom.minimum
// CHECK: %[[LESS:.*]] = loom.maximum %{{.*}}, %[[LEAST]]
// CHECK: %[[UP:.*]] = loom.select %[[DUE]], %[[GROWN]], %[[SCALE]]
// CHECK: %[[NEXT:.*]] = loom.select %[[COMMITTED]], %[[UP]], %[[LESS]]
// CHECK: %[[ROW:.*]] = loom.select %[[DUE]], %[[NONE]], %[[MORE]]
// CHECK: %[[STEPS:.*]] = loom.select %[[COMMITTED]], %[[ROW]], %[[NONE]]
// CHECK: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[SCALE]], %[[NEXT]], %[[STEPS]],

// A fixed scale is a state, too, which keeps its value.
// STATIC: least_loss_scale = 8.000000e+00
// STATIC: %[[SCALE:.*]] = loom.select
// STATIC-NOT: train/good_steps
// STATIC: return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[SCALE]], %[[SCALE]],

// OFF-NOT: loss_scale

loom.weight @w : tensor<4x1xf32> from <"", offset = 0, bytes = 16>

func.func @main(%x: tensor<6x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<6x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<6x4xf32>, tensor<4x1xf32>) -> tensor<6x1xf32>
  return %y : tensor<6x1xf32>
}
