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
