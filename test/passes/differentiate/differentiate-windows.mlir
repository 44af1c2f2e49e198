// RUN: gridloom-opt %s --loom-differentiate="of=loss with-respect-to=x" | FileCheck %s

// The gradient of a maximum over windows: for each place in a window, the cotangents of the windows
// that have their maximum there. No tensor holds all windows' shares.
// CHECK-LABEL: func.func @pool(
// CHECK: %[[FIRST:.*]] = loom.arg_reduce max %{{.*}} dim = 2 {{.*}} -> tensor<2x3xi64>
// CHECK-NOT: tensor<2x3x2xf32>
// CHECK: %[[ZERO:.*]] = loom.constant dense<0> : tensor<2x3xi64>
// CHECK: %[[IS_ZERO:.*]] = loom.compare eq %[[FIRST]], %[[ZERO]]
// CHECK: %[[LEFT:.*]] = loom.select %[[IS_ZERO]], %[[CT:.*]], %{{.*}} : tensor<2x3xi1>, tensor<2x3xf32>
// CHECK: %[[EVEN:.*]] = loom.pad %[[LEFT]]
// CHECK: %[[ONE:.*]] = loom.constant dense<1> : tensor<2x3xi64>
// CHECK: %[[IS_ONE:.*]] = loom.compare eq %[[FIRST]], %[[ONE]]
// CHECK: %[[RIGHT:.*]] = loom.select %[[IS_ONE]], %[[CT]], %{{.*}} : tensor<2x3xi1>, tensor<2x3xf32>
// CHECK: %[[ODD:.*]] = loom.pad %[[RIGHT]]
// CHECK: loom.add %[[EVEN]], %[[ODD]] : tensor<2x6xf32>
func.func @pool(%x: tensor<2x6xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2xf32> {loom.name = "loss", loom.dim_names = ["batch"]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %y = loom.reduce_window max %x dims = [1] sizes = [2] strides = [2] low = [0] high = [0] dilations = [1] : (tensor<2x6xf32>) -> tensor<2x3xf32> loc("Pool")
  %l = loom.reduce sum %y dims = [1] : (tensor<2x3xf32>) -> tensor<2xf32> loc("Sum")
  return %l : tensor<2xf32>
}
