// RUN: gridloom-opt %s --split-input-file --dist-localize --verify-diagnostics | FileCheck %s

// Shapes become those of the shards; operations that work on shards already are kept.
dist.mesh @mesh <["model" = 2]>
loom.weight @w : tensor<8x4xf32> from <"", offset = 0, bytes = 128>
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:.*]]: tensor<4x4xf32> {{{.*}}loom.global_type = tensor<4x8xf32>
// CHECK: %[[W:.*]] = loom.get_weight @w {{.*}}sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x4xf32>
// CHECK-NEXT: %[[P:.*]] = loom.dot_general %[[X]], %[[W]] {{.*}}: (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: %[[R:.*]] = dist.all_reduce %[[P]] over ["model"] sum
// CHECK-NEXT: %[[Y:.*]] = loom.exp %[[R]]
// CHECK-NOT: dist.splits
// CHECK: return {dist.stage = 0 : i64} %[[Y]]
func.func @main(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>})
    -> (tensor<4x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %w = loom.get_weight @w {dist.splits = #dist.splits<[{"model"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<8x4xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = dist.on_shards %0 from <@mesh, [{}, {}], unreduced = {"model" = sum}> to <@mesh, [{}, {}]> {
  ^bb0(%shard: tensor<4x4xf32>):
    %3 = dist.all_reduce %shard over ["model"] sum : tensor<4x4xf32>
    dist.yield %3 : tensor<4x4xf32>
  } {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = loom.exp %1 {dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// -----

// Running sums of 16-bit floats are joined in f32: the total of a part may be infinite in f16 where results after it are not.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @running
// CHECK-SAME: %[[X:.*]]: tensor<3xf16>
// CHECK-NEXT: %[[WIDE:.*]] = loom.convert %[[X]] {{.*}}: (tensor<3xf16>) -> tensor<3xf32>
// CHECK-NEXT: loom.cumulative sum %[[WIDE]] dim = 0 {{.*}}: tensor<3xf32>
// CHECK: dist.all_gather %{{.*}} over ["model"] dim = 0 {{.*}}: (tensor<1xf32>) -> tensor<2xf32>
// CHECK: %[[SUM:.*]] = loom.add %{{.*}}, %{{.*}} {{.*}}: tensor<3xf32>
// CHECK-NEXT: loom.convert %[[SUM]] {{.*}}: (tensor<3xf32>) -> tensor<3xf16>
func.func @running(%x: tensor<6xf16> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>})
    -> (tensor<6xf16> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>}) {
  %0 = loom.cumulative sum %x dim = 0 {dist.splits = #dist.splits<[{"model"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}]>]} : tensor<6xf16>
  return %0 : tensor<6xf16>
}

// -----

// An index behind the table finds zeros, not the padding of its last part; the padding of a weight is zeros.
dist.mesh @mesh <["model" = 2]>
loom.weight @table : tensor<5x3xf32> from <"", offset = 0, bytes = 60>
// CHECK-LABEL: func.func @lookups
// CHECK-SAME: %[[X:[^ ]+]]: tensor<3x3xf32>
// CHECK-SAME: %[[I:[^ ]+]]: tensor<4xi64>
// CHECK: loom.gather %[[X]]
// CHECK: %[[MINE:.*]] = loom.compare eq
// CHECK: %[[SIZE:.*]] = loom.constant dense<5> : tensor<4xi64>
// CHECK: %[[INSIDE:.*]] = loom.compare lt %[[I]], %[[SIZE]]
// CHECK: loom.and %[[MINE]], %[[INSIDE]]
// CHECK: loom.gather_elements %[[X]]
// CHECK: loom.compare lt
// CHECK: loom.and
// CHECK: loom.gather %{{.*}}, %{{.*}} dim = 0
// CHECK-NOT: loom.and
// CHECK: return
func.func @lookups(%x: tensor<5x3xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>},
                   %i: tensor<4xi64> {loom.name = "i", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>},
                   %j: tensor<4x3xi64> {loom.name = "j", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %w = loom.get_weight @table {dist.splits = #dist.splits<[{"model"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<5x3xf32>
  %0 = loom.gather %x, %i dim = 0 {dist.splits = #dist.splits<[{"model"}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<5x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
  %1 = loom.gather_elements %x, %j dim = 0 {dist.splits = #dist.splits<[{"model"}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<5x3xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  %2 = loom.gather %w, %i dim = 0 {dist.splits = #dist.splits<[{"model"}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<5x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
  return
}

// -----

// expected-error @below {{no mesh is declared}}
module {
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @missing(%x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>}) {
  // expected-error @below {{reads operand 0 as #dist.sharding<@mesh, [{}]>, but it is #dist.sharding<@mesh, [{"model"}]>; a reshard is missing}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @not_lowered(%x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>}) {
  // expected-error @below {{has no sharding rule; reshards are lowered before}}
  %0 = dist.reshard %x from <@mesh, [{"model"}]> to <@mesh, [{}]> : tensor<4xf32>
  return
}
