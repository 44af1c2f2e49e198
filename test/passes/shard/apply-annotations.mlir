// RUN: gridloom-opt %s --dist-apply-annotations="shard=w=[{},{model}] shard=x=[{data},{}]" | FileCheck %s
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=nothing=[{},{model}]" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{},{rows}]" 2>&1 | FileCheck %s --check-prefix=AXIS
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{model},{model}]" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w=[{model}]" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=w" 2>&1 | FileCheck %s --check-prefix=SYNTAX

// UNKNOWN: error: --shard names 'nothing', which is no input, output, weight or node of the model
// AXIS: error: --shard 'w' names axis 'rows'; the mesh has data, model, odd
// TWICE: error: --shard 'w' names axis 'model' twice
// RANK: error: --shard 'w' has 1 dimensions; the value is 'tensor<16x64xf32>'
// SYNTAX: error: cannot read --shard 'w'; write NAME=[{axis,...},{},...]

dist.mesh @mesh <["data" = 2, "model" = 2, "odd" = 3]>
loom.weight @w : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
// CHECK: func.func @main(%{{.*}}: tensor<8x16xf32> {dist.origin = "user", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>
func.func @main(%x: tensor<8x16xf32> {loom.name = "x"}) -> (tensor<8x64xf32> {loom.name = "y"}) {
  // CHECK: loom.get_weight @w {dist.origins = ["user"], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]}
  %w = loom.get_weight @w : tensor<16x64xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  return %0 : tensor<8x64xf32>
}
