// RUN: printf 'strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nmicrobatches: 4\nstages:\n  "first": 0\n  "last": 1\n' > %t.strategy
// RUN: gridloom-opt %s --dist-pin-stages=file=%t.strategy | FileCheck %s
// RUN: printf 'strategy: 1\nmesh: pipe=2\nstage-axis: pipe\nmicrobatches: 2\nstages:\n  "first": 0\n' > %t.bad.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.bad.strategy 2>&1 | FileCheck %s --check-prefix=BAD

// The parts of a training step's batch are in the program; they are no axis.
// BAD: error: the strategy '{{.*}}.bad.strategy' cuts the batch into 2 micro-batches, the training step was imported with 4; import the model with --microbatches 2, or change 'microbatches' in the file
// CHECK: dist.mesh @mesh <["pipe" = 2]>
module attributes {loom.training = {}} {
dist.mesh @mesh <["pipe" = 2]>
func.func @train_step(%x: tensor<8xf32> {loom.name = "x"}) -> (tensor<8xf32> {loom.name = "loss"}) attributes {loom.entry = "train_step", loom.parts = 4 : i64} {
  // CHECK: loom.tanh {{.*}} {dist.stage = 0 : i64}
  %0 = loom.tanh %x : tensor<8xf32> loc("first")
  // CHECK: loom.negate {{.*}} {dist.stage = 1 : i64}
  %1 = loom.negate %0 : tensor<8xf32> loc("last")
  return %1 : tensor<8xf32>
}
func.func @main(%x: tensor<8xf32> {loom.name = "x"}) -> (tensor<8xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  // CHECK: loom.tanh {{.*}} {dist.stage = 0 : i64}
  %0 = loom.tanh %x : tensor<8xf32> loc("first")
  return %0 : tensor<8xf32>
}
}
