// RUN: gridloom-opt %s --dist-split-stages --dist-verify-partitioned | FileCheck %s

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2, "micro" = 4]>
// CHECK-LABEL: func.func @main_stage0
// CHECK-SAME: (%[[X:.*]]: tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, loom.name = "x"}) attributes {
// CHECK-SAME: dist.microbatches = 4 : i64, dist.stage = 0 : i64
// CHECK: %[[E:.*]] = loom.exp %[[X]]
// CHECK-NEXT: dist.send %[[E]] to 1 channel 0
// CHECK-NEXT: return
// CHECK-LABEL: func.func @main_stage1
// CHECK-SAME: () -> (tensor<2x4xf32>
// CHECK: %[[R:.*]] = dist.recv from 0 channel 0 : tensor<2x4xf32>
// CHECK-NEXT: %[[T:.*]] = loom.tanh %[[R]]
// CHECK-NEXT: return %[[T]]
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    -> (tensor<2x4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>}) {
  %0 = loom.exp %x {dist.stage = 0 : i64} : tensor<2x4xf32>
  %1 = loom.tanh %0 {dist.stage = 1 : i64} : tensor<2x4xf32>
  return {dist.stage = 1 : i64} %1 : tensor<2x4xf32>
}
}
