// RUN: gridloom-opt %s --dist-apply-strategy="microbatches=4" | FileCheck %s

// The input follows the result, which leaves two rows for a device: two micro-batches instead of four.
dist.mesh @mesh <["a" = 2]>
// CHECK: dist.mesh @mesh <["a" = 2, "micro" = 2]>
// CHECK-LABEL: func.func @fewer
// CHECK-SAME: [{"a", "micro", ?}, {?}]
// CHECK: loom.reshape {{.*}}[{"a", "micro"}]
func.func @fewer(%x: tensor<4x6xf32> {loom.name = "x"}) -> (tensor<24xf32> {loom.name = "y"}) {
  %0 = loom.reshape %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : (tensor<4x6xf32>) -> tensor<24xf32>
  return %0 : tensor<24xf32>
}
