// RUN: gridloom-opt %s --dist-split-states="axes=data level=1" | FileCheck %s
// RUN: gridloom-opt %s --dist-split-states="axes=data level=2" | FileCheck %s --check-prefix=SUMS
// RUN: gridloom-opt %s --dist-split-states="axes=data level=3" | FileCheck %s --check-prefix=ALL

dist.mesh @mesh <["data" = 2, "model" = 2]>

// Moments are split if the parts are equal, parameters as the strategy says; only states with their parameter's shape are split.
// CHECK-LABEL: func.func @train_step(
// CHECK-SAME: %[[W:.*]]: tensor<3x8xf32> {dist.origin = #dist.origin<"--zero 1">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, {{.*}}loom.state = "w"}
// CHECK-SAME: %[[M:.*]]: tensor<3x8xf32> {{{.*}}dist.sharding = #dist.sharding<@mesh, [{}, {"data"}]>, {{.*}}loom.state = "w/m"}
// CHECK-SAME: %[[R:.*]]: tensor<3xf32> {{{.*}}dist.sharding = #dist.sharding<@mesh, [{}]>, {{.*}}loom.state = "w/v_row"}
// CHECK-SAME: %[[STEP:.*]]: tensor<i64> {loom.name = "train/step"

// ALL-LABEL: func.func @train_step(
// ALL-SAME: tensor<3x8xf32> {dist.origin = #dist.origin<"--zero 3">, dist.sharding = #dist.sharding<@mesh, [{}, {"model", "data"}]>, {{.*}}loom.state = "w"}
func.func @train_step(
    %w: tensor<3x8xf32> {dist.sharding = #dist.sharding<@mesh, [{?}, {"model", ?}]>, loom.name = "w", loom.role = "parameter", loom.state = "w"},
    %m: tensor<3x8xf32> {loom.name = "w/m", loom.role = "moment", loom.state = "w/m"},
    %r: tensor<3xf32> {loom.name = "w/v_row", loom.role = "moment", loom.state = "w/v_row"},
    %step: tensor<i64> {loom.name = "train/step", loom.role = "counter", loom.state = "train/step"}) -> tensor<3x8xf32>
    attributes {loom.entry = "train_step", loom.dims = {}} {
  %0 = loom.add %w, %m : tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// At level 1 sums over the parts of a batch are split like the parameter, from level 2 on like its moments; a pinned sum stays.
// CHECK-LABEL: func.func @sums(
// CHECK: loom.add %{{.*}}, %{{.*}} {{{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>], loom.accumulates = "w"} : tensor<3x8xf32>
// CHECK: loom.add %{{.*}}, %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], loom.accumulates = "w"} : tensor<3x8xf32>
// SUMS-LABEL: func.func @sums(
// SUMS-SAME: dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, {{.*}}loom.state = "w"}
// SUMS: loom.add %{{.*}}, %{{.*}} {{{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"data"}]>], loom.accumulates = "w"} : tensor<3x8xf32>
// SUMS: loom.add %{{.*}}, %{{.*}} {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], loom.accumulates = "w"} : tensor<3x8xf32>
// SUMS: loom.add %{{.*}}, %{{.*}} : tensor<3x8xf32>
func.func @sums(
    %w: tensor<3x8xf32> {dist.sharding = #dist.sharding<@mesh, [{?}, {"model", ?}]>, loom.name = "w", loom.role = "parameter", loom.state = "w"},
    %m: tensor<3x8xf32> {loom.name = "w/m", loom.role = "moment", loom.state = "w/m"},
    %a: tensor<3x8xf32>, %b: tensor<3x8xf32>) -> tensor<3x8xf32> attributes {loom.entry = "train_step", loom.dims = {}} {
  %0 = loom.add %a, %b {dist.shardings = [#dist.sharding<@mesh, [{?}, {?}]>], loom.accumulates = "w"} : tensor<3x8xf32>
  %2 = loom.add %0, %a {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], loom.accumulates = "w"} : tensor<3x8xf32>
  %1 = loom.add %2, %m : tensor<3x8xf32>
  return %1 : tensor<3x8xf32>
}
