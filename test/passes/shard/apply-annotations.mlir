// RUN: gridloom-opt %s --dist-apply-annotations="shard=w=[{},{model}] shard=x=[{data},{}]" | FileCheck %s
// RUN: gridloom-opt %s --dist-apply-annotations="shard=layers.*.w*t=[{model},{}]" | FileCheck %s --check-prefix=WILD
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=layers.*.wt.*=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=UNMATCHED
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=nothing=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=scale=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=FOLDED
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=old=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=NAMELESS
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=table=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=DERIVED
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{},{rows}]" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{model},{model}]" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{model}]" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w" 2>&1 | FileCheck %s --check-prefix=SYNTAX
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=x=[{odd},{}] stage-axis=odd" 2>&1 | FileCheck %s --check-prefix=STAGES
// RUN: gridloom-opt %s --dist-apply-annotations="shard=w=[{},{model}] shard=x=[{data},{}] shard=w=[{},{\"model\"}]" | FileCheck %s
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{},{model}] shard=w=[{model},{}]" 2>&1 | FileCheck %s --check-prefix=WEIGHT
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=x=[{data},{}] shard=x=[{},{}]" 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=y=[{data},{}] shard=y=[{},{data}]" 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=past=[{data},{}] shard=next=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=STATE
// RUN: gridloom-opt %s --dist-apply-annotations="shard=past=[{data},{}] shard=next=[{data},{}]"
// RUN: gridloom-opt %s --dist-apply-annotations="shard=present=[{},{data}]" | FileCheck %s --check-prefix=KEPT
// RUN: gridloom-opt %s --dist-apply-annotations="shard=/pool=[{data},{},{}]" | FileCheck %s --check-prefix=NODE
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=/pool=[{data}]" 2>&1 | FileCheck %s --check-prefix=NODERANK
// RUN: gridloom-opt %s --dist-apply-annotations="shard=w=stored[{data},{}] shard=before=stored[{},{data}]" | FileCheck %s --check-prefix=STORED
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=stored[{data},{}] shard=w=stored[{},{data}]" 2>&1 | FileCheck %s --check-prefix=STORAGE
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=x=stored[{data},{}]" 2>&1 | FileCheck %s --check-prefix=UNSTORED

// STATE: error: --shard 'next=[{},{model}]' contradicts --shard 'past=[{data},{}]': input 'past' and output 'next' are one state; keep one of them
// UNKNOWN: error: --shard names 'nothing', which is no input, output, weight or node of the model
// FOLDED: error: --shard names 'scale', which was folded into a constant for node '/scale/Mul'; name that node's output instead
// NAMELESS: error: --shard names 'old', which was folded into a constant{{$}}
// DERIVED: error: --shard names 'table', which only node '/table/Slice' reads, once, when weights are loaded; name that node instead
// UNMATCHED: error: --shard names 'layers.*.wt.*', which matches no input, output, weight or node of the model
// AXIS: error: --shard 'w' names axis 'rows'; the mesh has data, model, odd
// TWICE: error: --shard 'w' names axis 'model' twice
// RANK: error: --shard 'w' has 1 dimensions; the value is 'tensor<16x64xf32>'
// NODERANK: error: --shard '/pool' has 1 dimensions; the value is 'tensor<4x8x1xf32>'
// SYNTAX: error: cannot read --shard 'w'; write NAME=[{axis,...},{},...]
// STAGES: error: --shard 'x' names axis 'odd', along which devices run different pipeline stages; use another axis
// WEIGHT: error: --shard 'w=[{model},{}]' contradicts --shard 'w=[{},{model}]'; keep one of them
// INPUT: error: --shard 'x=[{},{}]' contradicts --shard 'x=[{data},{}]'; keep one of them
// STORAGE: error: --shard 'w=stored[{},{data}]' contradicts --shard 'w=stored[{data},{}]'; keep one of them
// UNSTORED: error: --shard says how 'x' is stored, which is no weight of the model, nor the input of a state
// OUTPUT: error: --shard 'y=[{},{data}]' contradicts --shard 'y=[{data},{}]'; keep one of them

module attributes {loom.folded = [{name = "scale", sha256 = "", reader = "/scale/Mul"}, {name = "old", sha256 = ""}]} {
dist.mesh @mesh <["data" = 2, "model" = 2, "odd" = 3]>
loom.weight @w : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
// CHECK: func.func @main(%{{.*}}: tensor<8x16xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
func.func @main(%x: tensor<8x16xf32> {loom.name = "x"}) -> (tensor<8x64xf32> {loom.name = "y"}) {
  // CHECK: loom.get_weight @w {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]}
  // STORED: loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>} : tensor<16x64xf32>
  %w = loom.get_weight @w : tensor<16x64xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  return %0 : tensor<8x64xf32>
}

// A star in the name matches any text.
loom.weight @layers.0.weight : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
loom.weight @layers.10.weight : tensor<16x64xf32> from <"", offset = 4096, bytes = 4096>
loom.weight @layers.0.weights : tensor<16x64xf32> from <"", offset = 8192, bytes = 4096>
// WILD-LABEL: func.func @layers(
func.func @layers() {
  // WILD: loom.get_weight @layers.0.weight {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]}
  %0 = loom.get_weight @layers.0.weight : tensor<16x64xf32>
  // WILD: loom.get_weight @layers.10.weight {dist.origins = [#dist.origin<"user">]
  %1 = loom.get_weight @layers.10.weight : tensor<16x64xf32>
  // WILD: loom.get_weight @layers.0.weights :
  %2 = loom.get_weight @layers.0.weights : tensor<16x64xf32>
  return
}

func.func @state(%past: tensor<4x4xf32> {loom.name = "past", loom.state = "past"}) -> (tensor<4x4xf32> {loom.name = "next", loom.state = "past"}) {
  %0 = loom.tanh %past : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// An annotation of a state's output applies to its input.
// STORED-LABEL: func.func @step(
// STORED-SAME: %{{.*}}: tensor<4x8xf32> {dist.storage = #dist.sharding<@mesh, [{}, {"data"}]>, loom.name = "before"
// KEPT-LABEL: func.func @step(
// KEPT-SAME: %{{.*}}: tensor<4x8xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>, loom.name = "before"
func.func @step(%before: tensor<4x8xf32> {loom.name = "before", loom.state = "cache"}) -> (tensor<4x8xf32> {loom.name = "present", loom.state = "cache"}) {
  %0 = loom.abs %before : tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// If a node is several operations of different ranks, only its results are split.
// NODE-LABEL: func.func @pool(
func.func @pool(%x: tensor<4x8x6xf32> {loom.name = "image"}) -> (tensor<4x8x1xf32> {loom.name = "pooled"}) {
  // NODE-NOT: dist.shardings
  // NODE: loom.reduce
  %0 = loom.reduce sum %x dims = [2] : (tensor<4x8x6xf32>) -> tensor<4x8xf32> loc("/pool")
  // NODE: loom.reshape {{.*}} {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}, {}]>]}
  %1 = loom.reshape %0 : (tensor<4x8xf32>) -> tensor<4x8x1xf32> loc("/pool")
  return %1 : tensor<4x8x1xf32> loc("y")
}

// Values computed from weights alone are computed once.
loom.weight @table : tensor<32x64xf32> from <"", offset = 0, bytes = 8192>
loom.derived @"/table/Slice" : tensor<16x64xf32> {
  %0 = loom.get_weight @table : tensor<32x64xf32>
  %1 = loom.slice %0 [0, 0] to [16, 64] by [1, 1] : (tensor<32x64xf32>) -> tensor<16x64xf32>
  loom.yield %1 : tensor<16x64xf32>
} loc("/table/Slice")
}
