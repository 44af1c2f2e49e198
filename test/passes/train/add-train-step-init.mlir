// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1, momentum=0.9)' inits='w: kaiming_normal' seed=7" --canonicalize | FileCheck %s
// RUN: not gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)' inits='*: xavier_normal'" 2>&1 | FileCheck %s --check-prefix=FANS
// RUN: not gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)' inits='v: ones'" 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: gridloom-opt %s --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)' parameters='b: frozen' inits={b: zeros,*: ones,z: ones}" -o /dev/null 2>&1 | FileCheck %s --check-prefix=FROZEN

// A deviation of sqrt(2 / 8), for the eight rows that the product sums over; momentum starts at zero. Weights that the text
// does not match start with the model's values.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: {loom.dim_names = ["", ""], loom.draw = {distribution = "normal", first = 0.000000e+00 : f64, second = 5.000000e-01 : f64, seed = 7 : i64, stream = {{-?[0-9]+}} : i64}, loom.name = "w", loom.role = "parameter", loom.state = "w"}
// CHECK-SAME: {loom.dim_names = [""], loom.init = "b", loom.name = "b", loom.role = "parameter", loom.state = "b"}
// CHECK-SAME: {loom.dim_names = ["", ""], loom.name = "w/momentum", loom.role = "moment", loom.state = "w/momentum"}
// CHECK-LABEL: func.func @eval(
// CHECK-SAME: loom.draw = {distribution = "normal"
// CHECK-LABEL: func.func @main(
// CHECK-SAME: loom.draw = {distribution = "normal"
// CHECK: loom.get_weight @z

// FANS: error: --init '*: xavier_normal': weight 'b' of 'tensor<2xf32>' has fewer than two dimensions, and no fans
// NAME: error: --init 'v: ones': no weight of the model has such a name
// FROZEN: warning: --init 'b: zeros' matches only weights that are not trained; they keep the model's values
// FROZEN-NOT: '*: ones'
// FROZEN: warning: --init 'z: ones' matches only weights that are not trained; they keep the model's values

loom.weight @w : tensor<8x2xf32> from <"", offset = 0, bytes = 64>
loom.weight @b : tensor<2xf32> from <"", offset = 64, bytes = 8>
loom.weight @z : tensor<3xf32> from <"", offset = 72, bytes = 12>

func.func @main(%x: tensor<4x8xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<4x2xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<3xf32> {loom.name = "u", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<8x2xf32>
  %b = loom.get_weight @b : tensor<2xf32>
  %z = loom.get_weight @z : tensor<3xf32>
  %p = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %c = loom.broadcast %b dims = [1] : (tensor<2xf32>) -> tensor<4x2xf32>
  %y = loom.add %p, %c : tensor<4x2xf32>
  return %y, %z : tensor<4x2xf32>, tensor<3xf32>
}
