// RUN: gridloom-opt %s --loom-differentiate="of=loss" --mlir-print-local-scope --mlir-print-debuginfo | FileCheck %s
// RUN: gridloom-opt %s --loom-differentiate="of=loss with-respect-to=x,b*" | FileCheck %s --check-prefix=CHOSEN

loom.weight @w : tensor<4x3xf32> from <"", offset = 0, bytes = 48>
loom.weight @bias : tensor<3xf32> from <"", offset = 48, bytes = 12>
loom.weight @unused : tensor<3xf32> from <"", offset = 48, bytes = 12>

// A weight read twice has one gradient, the sum; one that the loss does not depend on has none.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:.*]]: tensor<2x4xf32>
// CHECK-SAME: -> (tensor<2xf32> {{{.*}}loom.name = "loss"}, tensor<2x3xf32> {{{.*}}loom.name = "hidden"},
// CHECK-SAME: tensor<4x3xf32> {loom.dim_names = ["", ""], loom.gradient, loom.name = "w.grad"},
// CHECK-SAME: tensor<3xf32> {loom.dim_names = [""], loom.gradient, loom.name = "bias.grad"})
// CHECK: %[[Y:.*]] = loom.dot_general %[[X]]
// CHECK: %[[P:.*]] = loom.tanh
// CHECK: %[[SEED:.*]] = loom.constant dense<1.000000e+00> : tensor<2xf32> loc("loss.grad")
// CHECK: %[[CT:.*]] = loom.broadcast %[[SEED]] dims = [0] : (tensor<2xf32>) -> tensor<2x3xf32> loc("Sum.grad"("Sum"))
// CHECK: %[[SQUARE:.*]] = loom.multiply %[[P]], %[[P]] : tensor<2x3xf32> loc("Tanh.grad"("Tanh"))
// CHECK: loom.subtract %{{.*}}, %[[SQUARE]]
// CHECK: %[[B:.*]] = loom.reduce sum %{{.*}} dims = [0] : (tensor<2x3xf32>) -> tensor<3xf32> loc("Repeat.grad"("Repeat"))
// CHECK: %[[W:.*]] = loom.dot_general %{{.*}}, %[[X]] batch = [] x [] contract = [0] x [0]
// CHECK: %[[WT:.*]] = loom.transpose %[[W]] [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32> loc("MatMul.grad"("MatMul"))
// CHECK: %[[TWICE:.*]] = loom.add %[[B]], %[[B]] : tensor<3xf32> loc("bias.grad"("bias"))
// CHECK: return %{{.*}}, %{{.*}}, %[[WT]], %[[TWICE]]

// CHOSEN-LABEL: func.func @main(
// CHOSEN-SAME: tensor<2x4xf32> {loom.dim_names = ["batch", ""], loom.gradient, loom.name = "x.grad"},
// CHOSEN-SAME: tensor<3xf32> {loom.dim_names = [""], loom.gradient, loom.name = "bias.grad"})
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2xf32> {loom.name = "loss", loom.dim_names = ["batch"]},
    tensor<2x3xf32> {loom.name = "hidden", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x3xf32> loc("w")
  %u = loom.get_weight @unused : tensor<3xf32> loc("unused")
  %b0 = loom.get_weight @bias : tensor<3xf32> loc("bias")
  %b1 = loom.get_weight @bias : tensor<3xf32> loc("bias")
  %b = loom.add %b0, %b1 : tensor<3xf32> loc("Twice")
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32> loc("MatMul")
  %r = loom.broadcast %b dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32> loc("Repeat")
  %s = loom.add %y, %r : tensor<2x3xf32> loc("Add")
  %t = loom.tanh %s : tensor<2x3xf32> loc("Tanh")
  %n = loom.negate %u : tensor<3xf32> loc("Neg")
  %l = loom.reduce sum %t dims = [1] : (tensor<2x3xf32>) -> tensor<2xf32> loc("Sum")
  return %l, %t : tensor<2xf32>, tensor<2x3xf32>
}
