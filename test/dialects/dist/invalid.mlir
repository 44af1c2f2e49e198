// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{axis 'a' is named twice}}
dist.mesh @mesh <["a" = 2, "a" = 4]>

// -----

// expected-error @below {{axis 'a' has size 0; sizes are at least 1}}
dist.mesh @mesh <["a" = 0]>

// -----

dist.mesh @mesh <["a" = 2]>
func.func @unknown_axis(%x: tensor<4xf32>) {
  // expected-error @below {{unknown mesh axis "b"}}
  %0 = dist.all_reduce %x over ["b"] sum : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2, "micro" = 2]>
func.func @temporal(%x: tensor<4xf32>) {
  // expected-error @below {{cannot communicate over "micro", which counts micro-batches}}
  %0 = dist.all_reduce %x over ["micro"] sum : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @gather(%x: tensor<4x3xf32>) {
  // expected-error @below {{output dimension 0 is 4, expected 8}}
  %0 = dist.all_gather %x over ["a"] dim = 0 : (tensor<4x3xf32>) -> tensor<4x6xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @scatter(%x: tensor<5xf32>) {
  // expected-error @below {{output dimension 0 is 5, expected 4}}
  %0 = dist.reduce_scatter %x over ["a"] dim = 0 sum : (tensor<5xf32>) -> tensor<2xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @permute(%x: tensor<5xf32>) {
  // expected-error @below {{permutation is not one of 0 to 1}}
  %0 = dist.permute %x over ["a"] [0, 0] : (tensor<5xf32>) -> tensor<5xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @group(%x: tensor<4xf32>) {
  // expected-error @below {{holds 1 collectives and 1 transfers; a group is one collective, or transfers alone}}
  %f = dist.start {
    %0 = dist.all_reduce %x over ["a"] sum : tensor<4xf32>
    dist.send %x to 1 channel 0 : tensor<4xf32>
    dist.yield %0 : tensor<4xf32>
  } : !dist.future<tensor<4xf32>>
  %y = dist.done %f : !dist.future<tensor<4xf32>> -> tensor<4xf32>
  return
}
