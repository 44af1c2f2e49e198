// RUN: gridloom-opt %s --split-input-file --loom-add-train-step="losses='mse(y, target)' optimizer='sgd(lr=0.1)' parameters='still: frozen'" --canonicalize --cse --verify-diagnostics | FileCheck %s

// Results that update weights make these states, if they are not frozen.
loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
loom.weight @mean : tensor<4xf32> from <"", offset = 64, bytes = 16>
loom.weight @still : tensor<4xf32> from <"", offset = 80, bytes = 16>

// CHECK-LABEL: func.func @train_step
// CHECK-DAG: loom.name = "mean"
// CHECK-NOT: loom.name = "still"
// CHECK: return
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x4xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "mean", loom.dim_names = [""], loom.updates = "mean"},
    tensor<4xf32> {loom.name = "still", loom.dim_names = [""], loom.updates = "still"})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x4xf32>
  %m = loom.get_weight @mean : tensor<4xf32>
  %s = loom.get_weight @still : tensor<4xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %sum = loom.reduce sum %x dims = [0] : (tensor<2x4xf32>) -> tensor<4xf32>
  %m1 = loom.add %m, %sum : tensor<4xf32>
  %s1 = loom.add %s, %sum : tensor<4xf32>
  return %y, %m1, %s1 : tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
loom.weight @zeros : tensor<4xf32> from <"", offset = 64, bytes = 16>
loom.weight @still : tensor<4xf32> from <"", offset = 80, bytes = 16>

func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x4xf32> {loom.name = "y", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x4xf32>
  // expected-error @+1 {{weight 'zeros' is a running statistic of one node and a parameter of another}}
  %mean = loom.get_weight @zeros {loom.frozen = "statistics"} : tensor<4xf32>
  %bias = loom.get_weight @zeros : tensor<4xf32>
  %p = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %ms = loom.broadcast %mean dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %bs = loom.broadcast %bias dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %c = loom.subtract %p, %ms : tensor<2x4xf32>
  %y = loom.add %c, %bs : tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// -----

loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
loom.weight @ones : tensor<4xf32> from <"", offset = 64, bytes = 16>
loom.weight @still : tensor<4xf32> from <"", offset = 80, bytes = 16>

func.func @main(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x4xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "ones", loom.dim_names = [""], loom.updates = "ones"})
    attributes {loom.entry = "main", loom.dims = {}} {
  %w = loom.get_weight @w : tensor<4x4xf32>
  // expected-error @+1 {{weight 'ones' is a running statistic of one node and a parameter of another}}
  %scale = loom.get_weight @ones : tensor<4xf32>
  %p = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %s = loom.broadcast %scale dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %y = loom.multiply %p, %s : tensor<2x4xf32>
  %sum = loom.reduce sum %x dims = [0] : (tensor<2x4xf32>) -> tensor<4xf32>
  %next = loom.add %scale, %sum : tensor<4xf32>
  return %y, %next : tensor<2x4xf32>, tensor<4xf32>
}

// -----

loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
loom.weight @still : tensor<4xf32> from <"", offset = 64, bytes = 16>

// A part of a batch has other sums than the batch. A row's own sum is fine, and so is one that only metrics read.
func.func @train_step(%x: tensor<2x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<2x4xf32> {loom.name = "y", loom.dim_names = ["batch", ""]},
    tensor<4xf32> {loom.name = "z", loom.dim_names = [""]})
    attributes {loom.batch = {name = "batch", parts = 3 : i64}, loom.entry = "train_step", loom.dims = {batch = 6 : i64}} {
  %w = loom.get_weight @w : tensor<4x4xf32>
  %r = loom.reduce sum %x dims = [1] : (tensor<2x4xf32>) -> tensor<2xf32>
  // expected-warning @+1 {{sums over the batch, of which --microbatches 3 gives it a part at a time}}
  %s = loom.reduce sum %x dims = [0] : (tensor<2x4xf32>) -> tensor<4xf32>
  %rs = loom.broadcast %r dims = [0] : (tensor<2xf32>) -> tensor<2x4xf32>
  %ss = loom.broadcast %s dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
  %a = loom.subtract %x, %rs : tensor<2x4xf32>
  %c = loom.subtract %a, %ss : tensor<2x4xf32>
  %y = loom.dot_general %c, %w batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %z = loom.reduce sum %y dims = [0] : (tensor<2x4xf32>) -> tensor<4xf32>
  return %y, %z : tensor<2x4xf32>, tensor<4xf32>
}
func.func @main(%x: tensor<6x4xf32> {loom.name = "x", loom.dim_names = ["batch", ""]}) -> (
    tensor<6x4xf32> {loom.name = "y", loom.dim_names = ["batch", ""]})
    attributes {loom.entry = "main", loom.dims = {batch = 6 : i64}} {
  %w = loom.get_weight @w : tensor<4x4xf32>
  %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
