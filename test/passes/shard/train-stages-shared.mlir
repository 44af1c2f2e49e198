// RUN: not gridloom-opt %s --split-input-file --dist-assign-stages 2>&1 | FileCheck %s

// The first and the last node of a model read one weight, which lies in one stage with all between them: no cut leaves the other stage any
// weight. A state of an inference program says so, too, where no cut is possible.
// CHECK: error: no cut into 2 stages gives each of them weights; weight 'w' is used from 'first' to 'last' and lies in one stage with all between them: export the model with a weight for each of them, or use axes of data (with --zero 3 each device keeps a part of the weights) or of tensor parallelism in place of 'pipe'
dist.mesh @mesh <["pipe" = 2]>
func.func @train_step(%x: tensor<8x64xf32> {loom.name = "x"}, %w: tensor<64x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"})
    -> (tensor<64x64xf32> {loom.name = "w", loom.state = "w"}) attributes {loom.entry = "train_step"} {
  %0 = loom.negate %x : tensor<8x64xf32> loc("before")
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %2 = loom.tanh %1 : tensor<8x64xf32> loc("between")
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("last")
  %4 = loom.dot_general %3, %3 batch = [] x [] contract = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32> loc("w.update")
  return %4 : tensor<64x64xf32>
}
func.func @main(%x: tensor<8x64xf32> {loom.name = "x"}, %w: tensor<64x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"})
    -> (tensor<8x64xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  %0 = loom.negate %x : tensor<8x64xf32> loc("before")
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %2 = loom.tanh %1 : tensor<8x64xf32> loc("between")
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("last")
  return %3 : tensor<8x64xf32>
}

// -----

// Stages that are given part the two.
// CHECK: error: {{.*}}uses weight 'w' in stage 1, and 'first' uses it in stage 0; it lies in one stage: give both nodes the same, or leave out the --tie that makes it one
dist.mesh @mesh <["pipe" = 2]>
func.func @main(%x: tensor<8x64xf32> {loom.name = "x"}, %w: tensor<64x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter", loom.tied = [{name = "v", transposed = false}]})
    -> (tensor<8x64xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.stage = 0 : i64} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %2 = loom.tanh %1 {dist.stage = 0 : i64} : tensor<8x64xf32> loc("between")
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] {dist.stage = 1 : i64} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("last")
  return %3 : tensor<8x64xf32>
}

// -----

// A weight that is used over half of the operations and more may still leave other stages weights.
// CHECK-NOT: error
dist.mesh @mesh <["pipe" = 2]>
func.func @main(%x: tensor<8x64xf32> {loom.name = "x"}, %w: tensor<64x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"},
    %v: tensor<64x64xf32> {loom.name = "v", loom.state = "v", loom.role = "parameter"}) -> (tensor<8x64xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %2 = loom.tanh %1 : tensor<8x64xf32> loc("between")
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("again")
  %4 = loom.dot_general %3, %v batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("last")
  return %4 : tensor<8x64xf32>
}
func.func @train_step(%x: tensor<8x64xf32> {loom.name = "x"}, %w: tensor<64x64xf32> {loom.name = "w", loom.state = "w", loom.role = "parameter"},
    %v: tensor<64x64xf32> {loom.name = "v", loom.state = "v", loom.role = "parameter"}) -> (tensor<64x64xf32> {loom.name = "w", loom.state = "w"}) attributes {loom.entry = "train_step"} {
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %4 = loom.dot_general %1, %1 batch = [] x [] contract = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32> loc("w.update")
  return %4 : tensor<64x64xf32>
}
