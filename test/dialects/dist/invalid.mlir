// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{axis 'a' is named twice}}
dist.mesh @mesh <["a" = 2, "a" = 4]>

// -----

// expected-error @below {{axis 'a' has size 0; sizes are at least 1}}
dist.mesh @mesh <["a" = 0]>

// -----

// Micro-batches are not devices.
dist.mesh @mesh <["a" = 1024, "b" = 1024, "micro" = 2]>

// -----

// expected-error @below {{has more than 1048576 devices}}
dist.mesh @mesh <["a" = 4294967296, "b" = 4294967296]>

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
  // D-ST1
  // expected-error @below {{holds 1 collectives and 1 transfers; a group is one collective, all_gathers over the same devices, or transfers alone}}
  %f = dist.start {
    %0 = dist.all_reduce %x over ["a"] sum : tensor<4xf32>
    dist.send %x to 1 channel 0 : tensor<4xf32>
    dist.yield %0 : tensor<4xf32>
  } : !dist.future<tensor<4xf32>>
  %y = dist.done %f : !dist.future<tensor<4xf32>> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2, "b" = 2]>
func.func @unit(%x: tensor<4xf32>) {
  // expected-error @below {{holds 2 collectives and 0 transfers; a group is one collective, all_gathers over the same devices, or transfers alone}}
  %f = dist.start {
    %0 = dist.all_gather %x over ["a"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
    %1 = dist.all_gather %x over ["b"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
    dist.yield %0, %1 : tensor<8xf32>, tensor<8xf32>
  } : !dist.future<tensor<8xf32>, tensor<8xf32>>
  %y:2 = dist.done %f : !dist.future<tensor<8xf32>, tensor<8xf32>> -> tensor<8xf32>, tensor<8xf32>
  return
}

// -----

// expected-error @below {{has an axis without a name}}
dist.mesh @mesh <["" = 2]>

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{axis "a" is named twice}}
  %0 = dist.all_reduce %x over ["a", "a"] sum : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{differ in rank or element type}}
  %0 = dist.all_gather %x over ["a"] dim = 0 : (tensor<4xf32>) -> tensor<8xf64>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{dim 1 is not a dimension of}}
  %0 = dist.all_gather %x over ["a"] dim = 1 : (tensor<4xf32>) -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-AG1
  // expected-error @below {{output dimension 0 is 4, expected 8}}
  %0 = dist.all_gather %x over ["a"] dim = 0 : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-RS1
  // expected-error @below {{output dimension 0 is 4, expected 8}}
  %0 = dist.reduce_scatter %x over ["a"] dim = 0 sum : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-SS1
  // expected-error @below {{output dimension 0 is 4, expected 6}}
  %0 = dist.shard_slice %x over ["a"] dim = 0 : (tensor<4xf32>) -> tensor<3xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4x2xf32>) {
  // expected-error @below {{split dim 0 and concat dim 2 must be dimensions of}}
  %0 = dist.all_to_all %x over ["a"] split = 0 concat = 2 : (tensor<4x2xf32>) -> tensor<2x4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<5x2xf32>) {
  // expected-error @below {{split dimension of 5 does not divide by the group's 2}}
  %0 = dist.all_to_all %x over ["a"] split = 0 concat = 1 : (tensor<5x2xf32>) -> tensor<2x4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4x2xf32>) {
  // D-AA1
  // expected-error @below {{output is 'tensor<4x2xf32>', expected 'tensor<2x4xf32>'}}
  %0 = dist.all_to_all %x over ["a"] split = 0 concat = 1 : (tensor<4x2xf32>) -> tensor<4x2xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{permutation of 3 members in a group of 2}}
  %0 = dist.permute %x over ["a"] [0, 2, 1] : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  %f = dist.start {
    // expected-error @below {{is not communication and cannot be in a group}}
    %0 = dist.shard_slice %x over ["a"] dim = 0 : (tensor<4xf32>) -> tensor<2xf32>
    dist.yield %0 : tensor<2xf32>
  } : !dist.future<tensor<2xf32>>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-ST2
  // expected-error @below {{yields other types than its future's}}
  %f = dist.start {
    %0 = dist.all_reduce %x over ["a"] sum : tensor<4xf32>
    dist.yield %0 : tensor<4xf32>
  } : !dist.future<tensor<2xf32>>
  return
}

// -----

// expected-error @below {{unknown reduction 'mean'}}
func.func private @f(tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}], unreduced = {"a" = mean}>})

// -----

// expected-error @below {{unreduced axes combine in one way, not sum and max}}
func.func private @f(tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}], unreduced = {"a" = sum, "b" = max}>})

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-AR1
  // expected-error @below {{results differ in type from the operands}}
  %0 = "dist.all_reduce"(%x) <{axes = ["a"], reduction = #dist<reduction sum>}> : (tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

// expected-error @below {{a factor is split or whole; `?` is for dimensions}}
func.func private @f(tensor<4xf32> {dist.splits = #dist.splits<[{?}]>})

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-RE1
  // expected-error @below {{brings 'tensor<4xf32>' from or to a sharding of 2 dimensions}}
  %0 = dist.reshard %x from <@mesh, [{"a"}]> to <@mesh, [{}, {}]> : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-RE2
  // expected-error @below {{makes partial values over "a" of whole ones}}
  %0 = dist.reshard %x from <@mesh, [{}]> to <@mesh, [{}], unreduced = {"a" = sum}> : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-OS1
  // expected-error @below {{takes 'tensor<4xf32>'; the input's shard is 'tensor<2xf32>'}}
  %0 = dist.on_shards %x from <@mesh, [{"a"}]> to <@mesh, [{}]> {
  ^bb0(%shard: tensor<4xf32>):
    dist.yield %shard : tensor<4xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["a" = 2]>
func.func @f(%x: tensor<4xf32>) {
  // D-OS2
  // expected-error @below {{yields 'tensor<2xf32>'; the output's shard is 'tensor<4xf32>'}}
  %0 = dist.on_shards %x from <@mesh, [{"a"}]> to <@mesh, [{}]> {
  ^bb0(%shard: tensor<2xf32>):
    dist.yield %shard : tensor<2xf32>
  } : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{takes one shard and yields one}}
  %0 = dist.on_shards %x from <@mesh, [{"a"}]> to <@mesh, [{}]> {
  ^bb0(%shard: tensor<2xf32>):
    dist.yield
  } : (tensor<4xf32>) -> tensor<4xf32>
  return
}
