// RUN: gridloom-opt %s --dist-assign-stages | FileCheck %s

// The model is cut between its layers, and a training step of two parts follows: a node's forward and backward work, its weight,
// gradient and momentum are in one stage. The last stage has the loss; a sum of scalars is in the stage of the last of them.
dist.mesh @mesh <["pipe" = 2]>

// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %arg1: tensor<64x64xf32> {dist.stage = 0 : i64,
// CHECK-SAME: %arg2: tensor<64x64xf32> {dist.stage = 1 : i64,
// CHECK-SAME: %arg3: tensor<64x64xf32> {dist.stage = 0 : i64,
// CHECK-SAME: %arg4: tensor<64x64xf32> {dist.stage = 1 : i64,
// The counter is in the stage that writes it.
// CHECK-SAME: %arg5: tensor<f32> {dist.stage = 1 : i64,
func.func @train_step(
    %x: tensor<8x64xf32> {loom.name = "x"},
    %w1: tensor<64x64xf32> {loom.name = "w1", loom.state = "w1"},
    %w2: tensor<64x64xf32> {loom.name = "w2", loom.state = "w2"},
    %m1: tensor<64x64xf32> {loom.name = "m1", loom.state = "m1"},
    %m2: tensor<64x64xf32> {loom.name = "m2", loom.state = "m2"},
    %n: tensor<f32> {loom.name = "n", loom.state = "n"})
    -> (tensor<f32> {loom.name = "loss"},
        tensor<64x64xf32> {loom.name = "w1", loom.state = "w1"}, tensor<64x64xf32> {loom.name = "w2", loom.state = "w2"},
        tensor<64x64xf32> {loom.name = "m1", loom.state = "m1"}, tensor<64x64xf32> {loom.name = "m2", loom.state = "m2"},
        tensor<f32> {loom.name = "n", loom.state = "n"})
    attributes {loom.entry = "train_step"} {
  // CHECK: loom.dot_general %arg0, %arg1 {{.*}}dist.stage = 0
  %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  // CHECK: loom.dot_general {{.*}}, %arg2 {{.*}}dist.stage = 1
  %y = loom.dot_general %h, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("second")
  // CHECK: loom.reduce {{.*}}dist.stage = 1
  %loss = loom.reduce sum %y dims = [0, 1] : (tensor<8x64xf32>) -> tensor<f32> loc("loss")
  // What both weights' derivatives read, in the order of the backward part.
  // CHECK: loom.dot_general {{.*}} contract = [0] x [0] {{.*}}dist.stage = 1
  %g2 = loom.dot_general %h, %y batch = [] x [] contract = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32> loc("second.grad"("second"))
  // CHECK: loom.dot_general {{.*}} contract = [1] x [1] {{.*}}dist.stage = 1
  %dh = loom.dot_general %y, %w2 batch = [] x [] contract = [1] x [1] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("second.grad"("second"))
  // CHECK: loom.dot_general {{.*}} contract = [0] x [0] {{.*}}dist.stage = 0
  %g1 = loom.dot_general %x, %dh batch = [] x [] contract = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32> loc("first.grad"("first"))
  // CHECK: loom.reduce {{.*}}dist.stage = 0
  %s1 = loom.reduce sum %g1 dims = [0, 1] : (tensor<64x64xf32>) -> tensor<f32> loc("norm")
  // CHECK: loom.reduce {{.*}}dist.stage = 1
  %s2 = loom.reduce sum %g2 dims = [0, 1] : (tensor<64x64xf32>) -> tensor<f32> loc("norm")
  // CHECK: loom.add {{.*}}dist.stage = 1
  %norm = loom.add %s1, %s2 : tensor<f32> loc("norm")
  // Each stage computes the number itself.
  // CHECK-DAG: loom.broadcast {{.*}}dist.stage = 0
  // CHECK-DAG: loom.broadcast {{.*}}dist.stage = 1
  %all = loom.broadcast %norm dims = [] : (tensor<f32>) -> tensor<64x64xf32> loc("norm")
  // CHECK: loom.multiply {{.*}}dist.stage = 0
  %c1 = loom.multiply %g1, %all : tensor<64x64xf32> loc("w1.update")
  // CHECK: loom.multiply {{.*}}dist.stage = 1
  %c2 = loom.multiply %g2, %all : tensor<64x64xf32> loc("w2.update")
  // CHECK: loom.add %arg3, {{.*}}dist.stage = 0
  %n1 = loom.add %m1, %c1 : tensor<64x64xf32> loc("w1.update")
  // CHECK: loom.add %arg4, {{.*}}dist.stage = 1
  %n2 = loom.add %m2, %c2 : tensor<64x64xf32> loc("w2.update")
  // CHECK: loom.subtract %arg1, {{.*}}dist.stage = 0
  %u1 = loom.subtract %w1, %n1 : tensor<64x64xf32> loc("w1.update")
  // CHECK: loom.subtract %arg2, {{.*}}dist.stage = 1
  %u2 = loom.subtract %w2, %n2 : tensor<64x64xf32> loc("w2.update")
  // CHECK: loom.add %arg5, {{.*}}dist.stage = 1
  %next = loom.add %n, %norm : tensor<f32> loc("step")
  return %loss, %u1, %u2, %n1, %n2, %next : tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<f32>
}

func.func @main(
    %x: tensor<8x64xf32> {loom.name = "x"},
    %w1: tensor<64x64xf32> {loom.name = "w1", loom.state = "w1"},
    %w2: tensor<64x64xf32> {loom.name = "w2", loom.state = "w2"})
    -> (tensor<f32> {loom.name = "loss"}, tensor<64x64xf32> {loom.name = "w1", loom.state = "w1"}, tensor<64x64xf32> {loom.name = "w2", loom.state = "w2"})
    attributes {loom.entry = "main"} {
  %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("first")
  %y = loom.dot_general %h, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc("second")
  %loss = loom.reduce sum %y dims = [0, 1] : (tensor<8x64xf32>) -> tensor<f32> loc("loss")
  return %loss, %w1, %w2 : tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>
}
