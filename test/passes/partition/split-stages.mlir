// RUN: gridloom-opt %s --split-input-file --dist-split-stages --dist-verify-partitioned | FileCheck %s

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2, "micro" = 4]>
// CHECK-LABEL: func.func @main_stage0
// CHECK-SAME: (%[[X:.*]]: tensor<2x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, loom.name = "x"}) attributes {
// CHECK-SAME: dist.microbatches = 4 : i64, dist.stage = 0 : i64
// CHECK: %[[E:.*]] = loom.exp %[[X]]
// CHECK-NEXT: dist.send %[[E]] to 1 channel 0 {dist.because = "stage 1 reads a result of stage 0"}
// CHECK-NEXT: return
// CHECK-LABEL: func.func @main_stage1
// CHECK-SAME: () -> (tensor<2x4xf32>
// CHECK: %[[R:.*]] = dist.recv from 0 channel 0 {{.*}} : tensor<2x4xf32>
// CHECK-NEXT: %[[T:.*]] = loom.tanh %[[R]]
// CHECK-NEXT: return %[[T]]
func.func @main(%x: tensor<2x4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>})
    -> (tensor<2x4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>}) {
  %0 = loom.exp %x {dist.stage = 0 : i64} : tensor<2x4xf32>
  %1 = loom.tanh %0 {dist.stage = 1 : i64} : tensor<2x4xf32>
  return {dist.stage = 1 : i64} %1 : tensor<2x4xf32>
}
}

// -----

// Stages as annotations may define them: the values of stage 1 come first. Channels are numbered stage
// by stage, so that stage 2 receives in the order of the sends, and stage 1 receives before it sends.
module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 3]>
// CHECK-LABEL: func.func @out_of_order_stage0
// CHECK: loom.tanh
// CHECK-NEXT: dist.send %{{.*}} to 1 channel 0
// CHECK-NEXT: dist.send %{{.*}} to 2 channel 1
// CHECK-LABEL: func.func @out_of_order_stage1
// CHECK: dist.recv from 0 channel 0
// CHECK-NEXT: loom.exp
// CHECK-NEXT: dist.send %{{.*}} to 2 channel 2
// CHECK-NEXT: loom.abs
// CHECK-NEXT: dist.send %{{.*}} to 2 channel 3
// CHECK-LABEL: func.func @out_of_order_stage2
// CHECK: dist.recv from 0 channel 1
// CHECK-NEXT: dist.recv from 1 channel 2
// CHECK-NEXT: dist.recv from 1 channel 3
func.func @out_of_order(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    -> (tensor<4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  %0 = loom.exp %x {dist.stage = 1 : i64} : tensor<4xf32>
  %1 = loom.tanh %x {dist.stage = 0 : i64} : tensor<4xf32>
  %2 = loom.abs %1 {dist.stage = 1 : i64} : tensor<4xf32>
  %3 = loom.add %0, %1 {dist.stage = 2 : i64} : tensor<4xf32>
  %4 = loom.add %2, %3 {dist.stage = 2 : i64} : tensor<4xf32>
  return {dist.stage = 2 : i64} %4 : tensor<4xf32>
}
}
