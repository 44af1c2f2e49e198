// RUN: gridloom-opt %s --loom-differentiate="of=loss" -split-input-file -verify-diagnostics

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
// expected-error @below {{'loss' is not an output of the model; its outputs are 'y', 'z'}}
func.func @main(%x: tensor<3xf32> {loom.name = "x", loom.dim_names = [""]}) -> (
    tensor<3xf32> {loom.name = "y", loom.dim_names = [""]}, tensor<3xf32> {loom.name = "z", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  return %x, %x : tensor<3xf32>, tensor<3xf32>
}

// -----

// expected-error @below {{the model has no float weights to differentiate by; name inputs}}
func.func @main(%x: tensor<3xf32> {loom.name = "x", loom.dim_names = [""]}) -> (
    tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}) attributes {loom.entry = "main", loom.dims = {}} {
  return %x : tensor<3xf32>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
// expected-error @below {{'loss' is 'i64'; only floats have gradients}}
func.func @main(%x: tensor<3xi64> {loom.name = "x", loom.dim_names = [""]}) -> (
    tensor<3xi64> {loom.name = "loss", loom.dim_names = [""]}) attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  return %x : tensor<3xi64>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
// expected-error @below {{output 'loss' depends on none of the weights and inputs it is to be differentiated by}}
func.func @main(%x: tensor<3xf32> {loom.name = "x", loom.dim_names = [""]}) -> (
    tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}) attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  %f = loom.floor %w : tensor<3xf32>
  %y = loom.add %x, %f : tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
func.func @main() -> (tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  // expected-error @below {{output 'loss' depends on weights through it, and a running product, maximum or minimum has no derivative yet}}
  %y = loom.cumulative prod %w dim = 0 : tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
func.func @main(%c: tensor<i1> {loom.name = "c", loom.dim_names = []}) -> (
    tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}) attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  // expected-error @below {{output 'loss' depends on weights through it, and loom.if has no derivative yet}}
  %y = loom.if %c then @main_then else @main_else read %w : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}
func.func @main_then(%x: tensor<3xf32> {loom.name = "x"}) -> (tensor<3xf32> {loom.name = "y"}) attributes {loom.body} {
  return %x : tensor<3xf32>
}
func.func @main_else(%x: tensor<3xf32> {loom.name = "x"}) -> (tensor<3xf32> {loom.name = "y"}) attributes {loom.body} {
  return %x : tensor<3xf32>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
// expected-error @below {{'w.grad' has the name of the gradient of 'w'; rename it}}
func.func @main() -> (tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}, tensor<3xf32> {loom.name = "w.grad", loom.dim_names = [""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  %y = loom.tanh %w : tensor<3xf32>
  return %y, %w : tensor<3xf32>, tensor<3xf32>
}

// -----

// A weight that only a branch reads.
loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
func.func @main(%c: tensor<i1> {loom.name = "c", loom.dim_names = []}, %x: tensor<3xf32> {loom.name = "x", loom.dim_names = [""]}) -> (
    tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}) attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  // expected-error @below {{output 'loss' depends on weights through it, and loom.if has no derivative yet}}
  %y = loom.if %c then @main_then else @main_else read %x : (tensor<i1>, tensor<3xf32>) -> tensor<3xf32>
  %z = loom.add %y, %w : tensor<3xf32>
  return %z : tensor<3xf32>
}
func.func @main_then(%x: tensor<3xf32> {loom.name = "x"}) -> (tensor<3xf32> {loom.name = "y"}) attributes {loom.body} {
  %w = loom.get_weight @w : tensor<3xf32>
  %y = loom.multiply %x, %w : tensor<3xf32>
  return %y : tensor<3xf32>
}
func.func @main_else(%x: tensor<3xf32> {loom.name = "x"}) -> (tensor<3xf32> {loom.name = "y"}) attributes {loom.body} {
  return %x : tensor<3xf32>
}

// -----

loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>
// expected-error @below {{output 'loss' has as many elements as data say}}
func.func @main() -> (tensor<3xf32> {loom.name = "loss", loom.dim_names = [""]}, tensor<i64> {loom.name = "loss.dim0", loom.dim_names = []})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<3xf32>
  %n = loom.constant dense<2> : tensor<i64>
  return %w, %n : tensor<3xf32>, tensor<i64>
}

// -----

loom.weight @w : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
func.func @main() -> (tensor<32x32xf32> {loom.name = "loss", loom.dim_names = ["", ""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<64x64xf32>
  // expected-error @below {{windows of more than 1,024 elements has no derivative yet}}
  %y = loom.reduce_window max %w dims = [0, 1] sizes = [33, 33] strides = [1, 1] low = [0, 0] high = [0, 0] dilations = [1, 1] : (tensor<64x64xf32>) -> tensor<32x32xf32>
  return %y : tensor<32x32xf32>
}
