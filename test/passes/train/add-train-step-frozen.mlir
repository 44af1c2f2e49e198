// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)'" | FileCheck %s

loom.weight @w : tensor<4x1xf32> from <"", offset = 0, bytes = 16>
loom.weight @mean : tensor<4xf32> from <"", offset = 16, bytes = 16>
loom.weight @table : tensor<4xf32> from <"", offset = 48, bytes = 16>
loom.weight @other : tensor<4xf32> from <"", offset = 32, bytes = 16>
loom.weight @least : tensor<2x4xf32> from <"", offset = 64, bytes = 32>

// Constant statistics, as of norms in evaluation mode, are no weights that the loss fails to reach;
// neither are large constants of the graph. Only the training step marks statistics.
// What is only compared with has no derivative.
// CHECK: loom.training = {{{.*}}parameters = 1 : i64, {{.*}}unreached = ["other", "least"]}
func.func @train_step(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "z", loom.dim_names = [""]})
    attributes {loom.entry = "train_step", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %m = loom.get_weight @mean {loom.frozen = "statistics"} : tensor<4xf32>
  %t = loom.get_weight @table {loom.frozen = "constant"} : tensor<4xf32>
  %s = loom.add %m, %t : tensor<4xf32>
  %o = loom.get_weight @other : tensor<4xf32>
  %b = loom.broadcast %s dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %c = loom.subtract %x, %b : tensor<2x4xf32>
  %l = loom.get_weight @least : tensor<2x4xf32>
  %p = loom.compare gt %x, %l : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
  %d = loom.select %p, %c, %x : tensor<2x4xi1>, tensor<2x4xf32>
  %y = loom.dot_general %d, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
  return %y, %o : tensor<2x1xf32>, tensor<4xf32>
}
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x1xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "z", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x1xf32>
  %m = loom.get_weight @mean : tensor<4xf32>
  %t = loom.get_weight @table {loom.frozen = "constant"} : tensor<4xf32>
  %s = loom.add %m, %t : tensor<4xf32>
  %o = loom.get_weight @other : tensor<4xf32>
  %b = loom.broadcast %s dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %c = loom.subtract %x, %b : tensor<2x4xf32>
  %l = loom.get_weight @least : tensor<2x4xf32>
  %p = loom.compare gt %x, %l : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
  %d = loom.select %p, %c, %x : tensor<2x4xi1>, tensor<2x4xf32>
  %y = loom.dot_general %d, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x1xf32>) -> tensor<2x1xf32>
  return %y, %o : tensor<2x1xf32>, tensor<4xf32>
}
