// RUN: gridloom-opt %s --dist-apply-strategy="only-given microbatches=2" | FileCheck %s

// Consequences of a user's sharding stay open, except for micro-batches.
dist.mesh @mesh <["a" = 2]>
// CHECK-LABEL: func.func @given
// CHECK-SAME: dist.origin = #dist.origin<"a" = "user", "micro" = "micro-batches">, dist.sharding = #dist.sharding<@mesh, [{"a", "micro"}, {}]>
// CHECK: loom.exp {{.*}}dist.origins = [#dist.origin<"micro" = "micro-batches">], dist.shardings = [#dist.sharding<@mesh, [{"micro", ?}, {?}]>]
func.func @given(%x: tensor<8x4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"a"}, {}]>}) -> (tensor<8x4xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
