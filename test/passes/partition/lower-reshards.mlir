// RUN: gridloom-opt %s --split-input-file --dist-lower-reshards --verify-diagnostics | FileCheck %s

// Only communication gets the cause, every operation the stage.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @gather
// CHECK: %[[Y:.*]] = dist.on_shards %{{.*}} from <@mesh, [{"model"}]> to <@mesh, [{}]> {
// CHECK-NEXT: ^bb0(%[[S:.*]]: tensor<3xf32>):
// CHECK-NEXT: %[[G:.*]] = dist.all_gather %[[S]] over ["model"] dim = 0 {dist.because = "it is read", dist.stage = 1 : i64} : (tensor<3xf32>) -> tensor<6xf32>
// CHECK-NEXT: %[[T:.*]] = loom.slice %[[G]] [0] to [5] by [1] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.stage = 1 : i64} : (tensor<6xf32>) -> tensor<5xf32>
// CHECK-NEXT: dist.yield %[[T]] : tensor<5xf32>
// CHECK: return %[[Y]]
func.func @gather(%x: tensor<5xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>}) -> tensor<5xf32> {
  %0 = dist.reshard %x from <@mesh, [{"model"}]> to <@mesh, [{}]> {dist.because = "it is read", dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @nothing
// CHECK: ^bb0(%[[S:.*]]: tensor<2xf32>):
// CHECK-NEXT: dist.yield %[[S]]
func.func @nothing(%x: tensor<4xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>}) -> tensor<4xf32> {
  %0 = dist.reshard %x from <@mesh, [{"model"}]> to <@mesh, [{"model"}]> : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @elsewhere(%x: tensor<4xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  // expected-error @below {{starts from #dist.sharding<@mesh, [{"model"}]>, but its input is #dist.sharding<@mesh, [{}]>}}
  %0 = dist.reshard %x from <@mesh, [{"model"}]> to <@mesh, [{}]> : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["micro" = 2]>
func.func @in_time(%x: tensor<4xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"micro"}]>}) {
  // expected-error @below {{cannot go from #dist.sharding<@mesh, [{"micro"}]> to #dist.sharding<@mesh, [{}]>; micro-batches do not communicate}}
  %0 = dist.reshard %x from <@mesh, [{"micro"}]> to <@mesh, [{}]> : tensor<4xf32>
  return
}

// -----

// Messages that take too long to count are compared by their bytes.
module attributes {dist.cluster = {kinds = [{name = "cpu", target = "cpu", memory_bytes = 0 : i64, memory_bytes_per_second = 8.0e9, launch_seconds = 2.0e-6, collective_launch_seconds = 40.0e-6, flops_per_second = {contraction = {f32 = 35.0e9}, other = {f32 = 35.0e9}}, efficiency = {}}], levels = [{block = 4 : i64, latency_seconds = 1.0e-6, bytes_per_second = 1.0}]}} {
  dist.mesh @mesh <["x" = 2, "y" = 2]>
  // CHECK-LABEL: func.func @slow
  // CHECK-NOT: dist.all_gather
  // CHECK: dist.all_to_all {{.*}} over ["x", "y"]
  func.func @slow(%x: tensor<8192x8192xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"x", "y"}, {}]>}) -> tensor<8192x8192xf32> {
    %0 = dist.reshard %x from <@mesh, [{"x", "y"}, {}]> to <@mesh, [{}, {"x", "y"}]> {dist.because = "it is read", dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"x", "y"}]>]} : tensor<8192x8192xf32>
    return %0 : tensor<8192x8192xf32>
  }
}

// -----

// Nothing is sent of a value without elements.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @empty
// CHECK-NOT: dist.all_gather
// CHECK: %[[E:.*]] = loom.constant {{.*}}tensor<4x0xf32>
// CHECK: dist.yield %[[E]]
func.func @empty(%x: tensor<4x0xf32> {dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>}) -> tensor<4x0xf32> {
  %0 = dist.reshard %x from <@mesh, [{}, {"model"}]> to <@mesh, [{}, {}]> {dist.because = "it is read", dist.stage = 1 : i64, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x0xf32>
  return %0 : tensor<4x0xf32>
}
