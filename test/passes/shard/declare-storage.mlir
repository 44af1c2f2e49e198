// RUN: gridloom-opt %s --dist-declare-storage --dist-choose-splits --dist-verify-sharded | FileCheck %s

// A weight and a state are stored as they are split, unless the user says otherwise: then the weight
// is read as it is stored, and the product uses its own split.
dist.mesh @mesh <["data" = 2]>
loom.weight @a : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
loom.weight @b : tensor<4x4xf32> from <"", offset = 64, bytes = 64>
// CHECK-LABEL: func.func @main
// CHECK-SAME: %{{.*}}: tensor<4x4xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>, loom.name = "past"
// CHECK: loom.get_weight @a {{.*}}dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64, dist.storage = #dist.sharding<@mesh, [{}, {}]>}
// CHECK: loom.get_weight @b {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{"data"}, {}]>, dist.stage = 0 : i64, dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>}
// CHECK-COUNT-2: loom.dot_general {{.*}}dist.splits = #dist.splits<[{"data"}, {}, {}]>
func.func @main(%past: tensor<4x4xf32> {loom.name = "past", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">})
    -> (tensor<4x4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) {
  %a = loom.get_weight @a {dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x4xf32>
  %b = loom.get_weight @b {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>, dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x4xf32>
  %0 = loom.dot_general %past, %a batch = [] x [] contract = [1] x [0] {dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = loom.dot_general %0, %b batch = [] x [] contract = [1] x [0] {dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return {dist.stage = 0 : i64} %1 : tensor<4x4xf32>
}
