// RUN: printf 'strategy: 1\nmesh: model=2\nnodes:\n  "/down": [{}, {}]\n' > %t.strategy
// RUN: gridloom-opt %s --dist-assign-stages --dist-pin-shardings=file=%t.strategy --dist-propagate --dist-pin-reductions=file=%t.strategy --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s --check-prefix=WHOLE
// RUN: printf 'strategy: 1\nmesh: model=2\nnodes:\n  "/down": [{}, {}, {unreduced: {model}}]\n' > %t.sums.strategy
// RUN: gridloom-opt %s --dist-assign-stages --dist-pin-shardings=file=%t.sums.strategy --dist-propagate --dist-pin-reductions=file=%t.sums.strategy --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s --check-prefix=SUMS
// RUN: printf 'strategy: 1\nmesh: model=2\nsplits:\n  "/negate": {d1: {model}}\n' > %t.splits.strategy
// RUN: gridloom-opt %s --dist-assign-stages --dist-pin-shardings=file=%t.splits.strategy --dist-propagate --dist-pin-reductions=file=%t.splits.strategy --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s --check-prefix=SPLITS
// RUN: printf 'strategy: 1\nmesh: model=2\nsplits:\n  "/negate": {in0.d1: {model}}\n  "/down": {d0: {model}, d1: {model}}\n' > %t.bad.strategy
// RUN: not gridloom-opt %s --dist-pin-shardings=file=%t.bad.strategy 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: gridloom-opt %s --dist-apply-annotations="shard=/down=[{},{},{unreduced:{model}}]" --dist-assign-stages --dist-propagate --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s --check-prefix=SUMS
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=x=[{},{},{unreduced:{model}}]" 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=/down=[{},{},{unreduced:{model}},{}]" 2>&1 | FileCheck %s --check-prefix=LAST
// RUN: not gridloom-opt %s --dist-apply-annotations="shard=/negate=[{},{},{unreduced:{model}}]" --dist-assign-stages --dist-propagate --dist-choose-splits --dist-verify-sharded 2>&1 | FileCheck %s --check-prefix=EXP
// RUN: sed '/loom.exp/d; s/return %2/return %1/' %s | not gridloom-opt --dist-apply-annotations="shard=/negate=[{},{},{unreduced:{model}}]" --dist-assign-stages --dist-propagate --dist-choose-splits --dist-verify-sharded 2>&1 | FileCheck %s --check-prefix=OUTPUT

// By default the sums stay partial until exp needs them. A file that names the product as whole has
// them reduced before; one that declares it unreduced does not.
// WHOLE: loom.negate {{.*}}dist.splits = #dist.splits<[{}, {}]>
// SUMS: loom.dot_general {{.*}}unreduced = {"model" = sum}
// SUMS: loom.negate {{.*}}dist.splits = #dist.splits<[{}, {}], unreduced = {"model"}>
// SPLITS: loom.negate {{.*}}dist.splits = #dist.splits<[{}, {"model"}]>
// BAD: line 4: the work of '/negate' has no 'in0.d1'; it has d0, d1
// BAD: line 5: '/down' splits over axis 'model' twice; its factors are d0, d1, in0.d1
// INPUT: --shard 'x=[{},{},{unreduced:{model}}]' declares 'x' unreduced, which is an input, output or weight; only nodes leave partial sums
// LAST: cannot read --shard
// EXP: needs all of '/negate', which is declared unreduced over 'model'; only linear operations can take it so: declare it whole
// OUTPUT: 'func.return' op needs all of '/negate', which is declared unreduced over 'model'; only linear operations can take it so: declare it whole
dist.mesh @mesh <["model" = 2]>
func.func @main(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}) attributes {loom.entry = "main"} {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("/down")
  %1 = loom.negate %0 : tensor<4x4xf32> loc("/negate")
  %2 = loom.exp %1 : tensor<4x4xf32> loc("/exp")
  return %2 : tensor<4x4xf32>
}
