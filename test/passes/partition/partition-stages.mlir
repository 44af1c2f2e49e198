// RUN: gridloom-opt %s --dist-declare-storage --dist-choose-splits --dist-insert-reshards --dist-lower-reshards --dist-localize --split-input-file | FileCheck %s

// The first reader of the input is in stage 1, the second in stage 0: each stage gathers for itself,
// since values flow to later stages only.
dist.mesh @mesh <["data" = 2, "pipe" = 3]>
// CHECK-LABEL: func.func @later_first
// CHECK: %[[A:.*]] = dist.all_gather {{.*}}dist.stage = 1
// CHECK-NEXT: loom.reshape %[[A]] {{.*}}dist.stage = 1
// CHECK-NEXT: %[[B:.*]] = dist.all_gather {{.*}}dist.stage = 0
// CHECK-NEXT: loom.reshape %[[B]] {{.*}}dist.stage = 0
// CHECK-NEXT: loom.add
func.func @later_first(%x: tensor<4x9xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<6x6xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %0 = loom.reshape %x {dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x9xf32>) -> tensor<6x6xf32>
  %1 = loom.reshape %x {dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x9xf32>) -> tensor<6x6xf32>
  %2 = loom.add %0, %1 {dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<6x6xf32>
  return {dist.stage = 2 : i64} %2 : tensor<6x6xf32>
}

// -----

// A value that an earlier stage gathered is available to later ones.
dist.mesh @mesh <["data" = 2, "pipe" = 3]>
// CHECK-LABEL: func.func @earlier_first
// CHECK: %[[A:.*]] = dist.all_gather {{.*}}dist.stage = 0
// CHECK-NEXT: loom.reshape %[[A]] {{.*}}dist.stage = 0
// CHECK-NEXT: loom.reshape %[[A]] {{.*}}dist.stage = 1
func.func @earlier_first(%x: tensor<4x9xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<6x6xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) {
  %0 = loom.reshape %x {dist.stage = 0 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x9xf32>) -> tensor<6x6xf32>
  %1 = loom.reshape %x {dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<4x9xf32>) -> tensor<6x6xf32>
  %2 = loom.add %0, %1 {dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<6x6xf32>
  return {dist.stage = 2 : i64} %2 : tensor<6x6xf32>
}
