// RUN: gridloom-opt %s --split-input-file --dist-insert-reshards --verify-diagnostics | FileCheck %s

// The product gives partial sums and is needed whole; the reshard names the reader and the origin.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @sum
// CHECK: %[[P:.*]] = loom.dot_general {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]
// CHECK-NEXT: %[[R:.*]] = dist.reshard %[[P]] from <@mesh, [{}, {}], unreduced = {"model" = sum}> to <@mesh, [{}, {}]>
// CHECK-SAME: dist.because = "each device of 'model' has a partial sum; 'exponential' needs the whole"
// CHECK-SAME: tensor<4x4xf32>
// CHECK-NEXT: loom.exp %[[R]]
func.func @sum(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
               %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] {dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.exp %0 {dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x4xf32> loc("exponential")
  return %1 : tensor<4x4xf32>
}

// -----

// Two users with the same need share one reshard. The output takes the value as it is computed.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @shared
// CHECK: %[[A:.*]] = loom.abs
// CHECK: %[[R:.*]] = dist.reshard %[[A]] from <@mesh, [{"model"}]> to <@mesh, [{}]>
// CHECK: loom.exp %[[R]]
// CHECK: loom.negate %[[R]]
// CHECK: return %[[A]],
func.func @shared(%x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>})
    -> (tensor<4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>},
        tensor<4xf32> {loom.name = "b", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>},
        tensor<4xf32> {loom.name = "c", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  %0 = loom.abs %x {dist.splits = #dist.splits<[{"model"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  %1 = loom.exp %0 {dist.splits = #dist.splits<[{}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  %2 = loom.negate %0 {dist.splits = #dist.splits<[{}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A weight and a state whose storage differs from their use are gathered for their readers; the
// state's next value is split again as stored.
dist.mesh @mesh <["data" = 2]>
loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
// CHECK-LABEL: func.func @stored
// CHECK-SAME: %[[PAST:.*]]: tensor<4xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}]>, loom.name = "past"
// CHECK: %[[W:.*]] = loom.get_weight @w {{.*}}dist.shardings = [#dist.sharding<@mesh, [{"data"}]>]
// CHECK: %[[A:.*]] = dist.reshard %[[PAST]] from <@mesh, [{"data"}]> to <@mesh, [{}]> {dist.because = "'sum' needs all of a value that 'data' splits"
// CHECK: %[[B:.*]] = dist.reshard %[[W]] from <@mesh, [{"data"}]> to <@mesh, [{}]>
// CHECK: %[[S:.*]] = loom.add %[[A]], %[[B]]
// CHECK: %[[R:.*]] = dist.reshard %[[S]] from <@mesh, [{}]> to <@mesh, [{"data"}]>
// CHECK-NOT: dist.storage
// CHECK: return %[[R]]
func.func @stored(%past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{"data"}]>, dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}]>, dist.splits = #dist.splits<[{"data"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  %0 = loom.add %past, %w {dist.splits = #dist.splits<[{}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32> loc("sum")
  return %0 : tensor<4xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @undecided(%x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  // expected-error @below {{has no dist.splits; dist-choose-splits writes an entry for each of its 1 factors}}
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["micro" = 2]>
func.func @in_time(%x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"micro"}]>}) {
  // expected-error @below {{cannot reshard operand 0 from #dist.sharding<@mesh, [{"micro"}]> to #dist.sharding<@mesh, [{}]>}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  return
}

// -----

// Three readers need a sum in three shardings. It is reduced first into the sharding that the program
// keeps, and each takes its part; in program order it would be scattered, exchanged and gathered.
dist.mesh @mesh <["model" = 4]>
// CHECK-LABEL: func.func @kept
// CHECK: %[[P:.*]] = loom.dot_general
// CHECK-NEXT: %[[K:.*]] = dist.reshard %[[P]] from <@mesh, [{}, {}], unreduced = {"model" = sum}> to <@mesh, [{}, {}]> {dist.because = "readers of '/down' need it in different ways, and all take it from here"
// CHECK-NEXT: %[[R:.*]] = dist.reshard %[[K]] from <@mesh, [{}, {}]> to <@mesh, [{"model"}, {}]>
// CHECK-NEXT: loom.exp %[[R]]
// CHECK-NEXT: %[[C:.*]] = dist.reshard %[[K]] from <@mesh, [{}, {}]> to <@mesh, [{}, {"model"}]>
// CHECK-NEXT: loom.abs %[[C]]
// CHECK-NEXT: loom.tanh %[[K]]
func.func @kept(%x: tensor<512x512xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">}, %w: tensor<512x512xf32> {loom.name = "w", dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">})
    -> (tensor<512x512xf32> {loom.name = "r", dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">},
        tensor<512x512xf32> {loom.name = "c", dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">},
        tensor<512x512xf32> {loom.name = "k", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"search">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.stage = 0 : i64} : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32> loc("/down")
  %1 = loom.exp %0 {dist.origins = [#dist.origin<"search">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>], dist.splits = #dist.splits<[{"model"}, {}]>, dist.stage = 0 : i64} : tensor<512x512xf32>
  %2 = loom.abs %0 {dist.origins = [#dist.origin<"search">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>], dist.splits = #dist.splits<[{}, {"model"}]>, dist.stage = 0 : i64} : tensor<512x512xf32>
  %3 = loom.tanh %0 {dist.origins = [#dist.origin<"search">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64} : tensor<512x512xf32>
  return {dist.stage = 0 : i64} %1, %2, %3 : tensor<512x512xf32>, tensor<512x512xf32>, tensor<512x512xf32>
}
