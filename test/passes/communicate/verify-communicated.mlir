// RUN: gridloom-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(dist-verify-communicated))' --verify-diagnostics

dist.mesh @mesh <["x" = 2]>
func.func @outside(%a: tensor<8xf32>) -> tensor<8xf32> {
  // C-G1
  // expected-error @+1 {{is not in a group}}
  %0 = dist.all_reduce %a over ["x"] sum : tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

dist.mesh @mesh <["x" = 2]>
func.func @dimension(%a: tensor<8x2xf32>) -> tensor<8x4xf32> {
  %f = dist.start {
    // C-G2
    // expected-error @+1 {{works on dimension 1; transports know dimension 0 only}}
    %1 = dist.all_gather %a over ["x"] dim = 1 : (tensor<8x2xf32>) -> tensor<8x4xf32>
    dist.yield %1 : tensor<8x4xf32>
  } : !dist.future<tensor<8x4xf32>>
  %0 = dist.done %f : !dist.future<tensor<8x4xf32>> -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

dist.mesh @mesh <["x" = 2]>
func.func @forgotten(%a: tensor<8xf32>) -> tensor<8xf32> {
  // C-G3
  // expected-error @+1 {{needs one dist.done}}
  %f = dist.start {
    %1 = dist.all_reduce %a over ["x"] sum : tensor<8xf32>
    dist.yield %1 : tensor<8xf32>
  } : !dist.future<tensor<8xf32>>
  return %a : tensor<8xf32>
}

// -----

// If a program names nodes, it must name all.
dist.mesh @mesh <["x" = 2]>
func.func @nameless(%a: tensor<8xf32>) -> tensor<8xf32> {
  %f = dist.start {
    // C-G4
    // expected-error @+1 {{has no ONNX node as its origin; the pass that made it must keep the location of the operation it serves}}
    %2 = dist.all_reduce %a over ["x"] sum : tensor<8xf32>
    dist.yield %2 : tensor<8xf32>
  } : !dist.future<tensor<8xf32>>
  %0 = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
  %1 = loom.negate %0 : tensor<8xf32> loc("node")
  return %1 : tensor<8xf32>
}

// -----

// A program without names, written by hand, need not.
dist.mesh @mesh <["x" = 2]>
func.func @by_hand(%a: tensor<8xf32>) -> tensor<8xf32> {
  %f = dist.start {
    %2 = dist.all_reduce %a over ["x"] sum : tensor<8xf32>
    dist.yield %2 : tensor<8xf32>
  } : !dist.future<tensor<8xf32>>
  %0 = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

dist.mesh @mesh <["x" = 2]>
func.func @slice(%a: tensor<8xf32>) -> tensor<4xf32> {
  // C-G1
  // expected-error @+1 {{is left after the communicate phase}}
  %0 = dist.shard_slice %a over ["x"] dim = 0 : (tensor<8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// C-G5: who needs it stands on every collective of a program that names nodes.
dist.mesh @mesh <["x" = 2]>
func.func @causeless(%a: tensor<8xf32>) -> tensor<8xf32> {
  %f = dist.start {
    // expected-error @unknown {{has no cause; the pass that made it must say who needs it in dist.because}}
    %2 = dist.all_reduce %a over ["x"] sum : tensor<8xf32> loc("node")
    dist.yield %2 : tensor<8xf32>
  } : !dist.future<tensor<8xf32>>
  %0 = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
