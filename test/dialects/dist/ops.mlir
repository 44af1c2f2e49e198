// RUN: gridloom-opt %s | gridloom-opt | FileCheck %s

// CHECK: dist.mesh @mesh <["data" = 2, "model" = 4]>
dist.mesh @mesh <["data" = 2, "model" = 4]>
// CHECK-LABEL: func.func @shardings
// CHECK-SAME: #dist.sharding<@mesh, [{"data"}, {}, {"model", ?}]>
// CHECK-SAME: #dist.sharding<@mesh, [{"data"} * 64], unreduced = {"model" = max}>
func.func @shardings(%a: tensor<2x3x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}, {"model", ?}]>},
                     %b: tensor<128xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"} * 64], unreduced = {"model" = max}>}) {
  // CHECK: dist.permute %{{.*}} over ["data"] [1, 0]
  %2 = dist.permute %b over ["data"] [1, 0] : (tensor<128xf32>) -> tensor<128xf32>
  // CHECK: dist.all_to_all %{{.*}} over ["data"] split = 0 concat = 2 : (tensor<2x3x4xf32>) -> tensor<1x3x8xf32>
  %3 = dist.all_to_all %a over ["data"] split = 0 concat = 2 : (tensor<2x3x4xf32>) -> tensor<1x3x8xf32>
  return
}

// CHECK-LABEL: func.func @origins
// CHECK-SAME: dist.origin = #dist.origin<"user">
// CHECK-SAME: dist.origin = #dist.origin<"data" = "strategy dp: batch", "micro" = "micro-batches">
// CHECK-SAME: dist.origin = #dist.origin<"micro" = "micro-batches", replicated = "it is one element">
// CHECK-SAME: dist.origin = #dist.origin<replicated = "a result would be split" tried "model">
func.func @origins(%a: tensor<4xf32> {dist.origin = #dist.origin<"user">},
                   %b: tensor<4xf32> {dist.origin = #dist.origin<"data" = "strategy dp: batch", "micro" = "micro-batches">},
                   %c: tensor<f32> {dist.origin = #dist.origin<"micro" = "micro-batches", replicated = "it is one element">},
                   %d: tensor<4xf32> {dist.origin = #dist.origin<replicated = "a result would be split" tried "model">}) {
  return
}

// CHECK-LABEL: func.func @splits
// CHECK: dist.splits = #dist.splits<[{"data", "model"} * 64, {}]>
// CHECK: dist.splits = #dist.splits<[{}, {"data"}], unreduced = {"model"}>
func.func @splits(%a: tensor<512x4xf32>) {
  %0 = loom.abs %a {dist.splits = #dist.splits<[{"data", "model"} * 64, {}]>} : tensor<512x4xf32>
  %1 = loom.negate %a {dist.splits = #dist.splits<[{}, {"data"}], unreduced = {"model"}>} : tensor<512x4xf32>
  return
}

// CHECK-LABEL: func.func @reshards
// CHECK: dist.reshard %{{.*}} from <@mesh, [{"data"}, {}], unreduced = {"model" = sum}> to <@mesh, [{}, {}]> {dist.because = "it is read"} : tensor<4x8xf32>
// CHECK: dist.on_shards %{{.*}} from <@mesh, [{"data"}, {}]> to <@mesh, [{}, {}]> {
// CHECK-NEXT: ^bb0(%[[SHARD:.*]]: tensor<2x8xf32>):
// CHECK-NEXT: dist.all_gather %[[SHARD]] over ["data"] dim = 0
// CHECK-NEXT: dist.yield %{{.*}} : tensor<4x8xf32>
// CHECK-NEXT: } : (tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @reshards(%a: tensor<4x8xf32>) {
  %0 = dist.reshard %a from <@mesh, [{"data"}, {}], unreduced = {"model" = sum}> to <@mesh, [{}, {}]> {dist.because = "it is read"} : tensor<4x8xf32>
  %1 = dist.on_shards %a from <@mesh, [{"data"}, {}]> to <@mesh, [{}, {}]> {
  ^bb0(%shard: tensor<2x8xf32>):
    %2 = dist.all_gather %shard over ["data"] dim = 0 : (tensor<2x8xf32>) -> tensor<4x8xf32>
    dist.yield %2 : tensor<4x8xf32>
  } : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
