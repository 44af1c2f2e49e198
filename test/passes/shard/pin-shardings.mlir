// RUN: printf 'strategy: 1\nmesh: data=2,model=2\ninputs:\n  x: [{data}, {}]\nweights:\n  "l.*.w": [{}, {model: 2}]\nnodes:\n  "/l.0/mm": [{data}, {model}]\n  "/l.0/mm:*": [{}, {data, model}]\noutputs:\n  y: [{}, {}]\nspecialisations:\n  main batch=1:\n    inputs:\n      x: [{}, {}]\n' > %t.strategy
// RUN: gridloom-opt %s --dist-pin-shardings=file=%t.strategy | FileCheck %s
// RUN: printf 'strategy: 1\nmesh: data=2,model=2\ninputs:\n  x: [{data}]\nweights:\n  l.0.v: [{}, {model}]\noutputs:\n  z: [{}, {}]\n  next: [{model}, {}]\n' > %t.bad.strategy
// RUN: not gridloom-opt %s --dist-pin-shardings=file=%t.bad.strategy 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: printf 'strategy: 1\nmesh: data=2,model=2\ninputs:\n  past: [{}, {model}]\noutputs:\n  next: [{model}, {}]\n' > %t.state.strategy
// RUN: not gridloom-opt %s --dist-pin-shardings=file=%t.state.strategy 2>&1 | FileCheck %s --check-prefix=STATE
// RUN: gridloom-opt %s --dist-apply-annotations="shard=x=[{model},{}]" -o %t.mlir
// RUN: not gridloom-opt %t.mlir --dist-pin-shardings=file=%t.strategy 2>&1 | FileCheck %s --check-prefix=PINNED
// RUN: printf 'strategy: 1\nmesh: data=2,model=2\nmicrobatches: 3\ninputs:\n  x: [{micro}, {}]\n' > %t.micro.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.micro.strategy --dist-pin-shardings=file=%t.micro.strategy 2>&1 | FileCheck %s --check-prefix=MICRO
// RUN: printf 'strategy: 1\nmesh: data=2,model=2\nmicrobatches: 2\ninputs:\n  past: [{data}, {}]\n' > %t.part.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.part.strategy --dist-pin-shardings=file=%t.part.strategy 2>&1 | FileCheck %s --check-prefix=PART
// RUN: printf 'strategy: 1\nmesh: data=2,model=2\nmicrobatches: 2\noutputs:\n  y: [{data}, {}]\n' > %t.uncut.strategy
// RUN: not gridloom-opt %s --dist-pin-stages=file=%t.uncut.strategy --dist-pin-shardings=file=%t.uncut.strategy 2>&1 | FileCheck %s --check-prefix=UNCUT
// RUN: printf 'strategy: 1\nmesh: data=1,model=2\ninputs:\n  x: [{data: 3}, {model}]\n  past: [{}, {data: 3}]\noutputs:\n  next: [{}, {data: 3}]\nstorage:\n  past: [{data: 3}, {model: 2}]\nspecialisations:\n  main batch=1:\n    inputs:\n      x: [{}, {}]\n' > %t.one.strategy
// RUN: sed 's/"data" = 2/"data" = 1/' %s | gridloom-opt --dist-pin-shardings=file=%t.one.strategy | FileCheck %s --check-prefix=ONE

// BAD: error: the strategy '{{.*}}.bad.strategy' line 4: 'x' has 2 dimensions in the program, 1 here
// BAD: note: line 6: unknown weight 'l.0.v'; did you mean 'l.0.w'?
// BAD: note: line 8: unknown output 'z'
// STATE: state 'past' has one split, but input 'past' is [{}, {model}] and output 'next' is [{model}, {}]; make them agree
// PINNED: line 4: 'x' is [{data}, {}], but [{model}, {}] by --shard; keep one of them
// MICRO: line 5: 'x' has 4 rows, which cannot be cut evenly in 3 for 3 micro-batches; change 'microbatches', or the size
// PART: cuts the batch into 2 micro-batches: a device's part of input 'x' cannot be cut along its leading dimension
// UNCUT: line 5: 'y' is [{data}, {}], not cut into the 2 micro-batches; write 'micro' as the last axis of its first dimension
// An axis of one device cuts on no multiples: the dimension is whole.
// ONE-LABEL: func.func @main
// ONE-SAME: tensor<4x8xf32> {dist.origin = #dist.origin<"strategy file">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {"model"}]>
// ONE-SAME: tensor<4x4xf32> {dist.origin = #dist.origin<"strategy file">, dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>, dist.storage = #dist.sharding<@mesh, [{"data"}, {"model"} * 2]>

dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @l.0.w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<4x8xf32> {dist.origin = #dist.origin<"strategy file">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
// CHECK-SAME: tensor<4x4xf32> {loom.name = "past"
// CHECK-SAME: -> (tensor<4x16xf32> {dist.origin = #dist.origin<"strategy file">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>
func.func @main(%x: tensor<4x8xf32> {loom.name = "x"}, %past: tensor<4x4xf32> {loom.name = "past", loom.state = "past"})
    -> (tensor<4x16xf32> {loom.name = "y"}, tensor<4x4xf32> {loom.name = "next", loom.state = "past"})
    attributes {loom.entry = "main", loom.dims = {batch = 4 : i64}} {
  // CHECK: loom.get_weight @l.0.w {{.*}}#dist.sharding<@mesh, [{}, {"model"} * 2]>
  %w = loom.get_weight @l.0.w : tensor<8x16xf32>
  // CHECK: loom.negate {{.*}}#dist.sharding<@mesh, [{}, {"data", "model"}]>
  %n = loom.negate %x : tensor<4x8xf32> loc("/l.0/mm")
  // CHECK: loom.dot_general {{.*}}#dist.sharding<@mesh, [{"data"}, {"model"}]>
  %0 = loom.dot_general %n, %w batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32> loc("/l.0/mm")
  // Values that the file does not name stay open.
  // CHECK: loom.tanh %{{.*}} : tensor<4x4xf32>
  %1 = loom.tanh %past : tensor<4x4xf32> loc("/state")
  return %0, %1 : tensor<4x16xf32>, tensor<4x4xf32>
}

// CHECK-LABEL: func.func @small
// CHECK-SAME: tensor<1x8xf32> {dist.origin = #dist.origin<"strategy file">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>
func.func @small(%x: tensor<1x8xf32> {loom.name = "x"}) -> (tensor<1x8xf32> {loom.name = "y"}) attributes {loom.entry = "main", loom.dims = {batch = 1 : i64}} {
  return %x : tensor<1x8xf32>
}
