// RUN: gridloom-opt %s --plan-channels-last --mlir-print-local-scope | FileCheck %s

// The weight is transposed at load, once for both calls; nothing is transposed between the calls.
// CHECK: loom.weight @w
// CHECK: loom.derived @w.channels_last : tensor<4x3x4xf16> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @w {{.*}} : tensor<4x4x3xf16>
// CHECK-NEXT: %[[T:.*]] = loom.transpose %[[W]] [0, 2, 1]
// CHECK-NEXT: loom.yield %[[T]]
loom.weight @w : tensor<4x4x3xf16> from <"", offset = 0, bytes = 96>

// CHECK-LABEL: func.func @chain
// CHECK-DAG: %[[X:.*]] = loom.transpose %arg0 [0, 2, 1] : (tensor<1x4x8xf16>) -> tensor<1x8x4xf16>
// CHECK-DAG: %[[W1:.*]] = loom.get_weight @w.channels_last {{.*}} : tensor<4x3x4xf16>
// CHECK: %[[A:.*]] = plan.convolution %[[X]], %[[W1]] <input = [1, 4, 8] by [32, 1, 4], weight = [4, 4, 3] by [12, 1, 4], output = [1, 4, 8] by [32, 1, 4],
// CHECK-NOT: loom.transpose
// CHECK: %[[B:.*]] = loom.broadcast %arg1 dims = [2] : (tensor<4xf16>) -> tensor<1x8x4xf16>
// CHECK: %[[S:.*]] = loom.add %[[A]], %[[B]] : tensor<1x8x4xf16>
// CHECK: %[[L:.*]] = loom.logistic %[[S]] : tensor<1x8x4xf16>
// CHECK-NOT: loom.transpose
// CHECK: %[[C:.*]] = plan.convolution %[[L]], %{{.*}} bias %arg1 residual %[[L]]
// CHECK: %[[Y:.*]] = loom.transpose %[[C]] [0, 2, 1] : (tensor<1x8x4xf16>) -> tensor<1x4x8xf16>
// CHECK: return %[[Y]]
func.func @chain(%x: tensor<1x4x8xf16>, %b: tensor<4xf16>) -> tensor<1x4x8xf16> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  %1 = loom.broadcast %b dims = [1] : (tensor<4xf16>) -> tensor<1x4x8xf16>
  %2 = loom.add %0, %1 : tensor<1x4x8xf16>
  %3 = loom.logistic %2 : tensor<1x4x8xf16>
  %4 = plan.convolution %3, %w bias %b residual %3 <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1 epilogue = <bias = true, residual = true>>
      : (tensor<1x4x8xf16>, tensor<4x4x3xf16>, tensor<4xf16>, tensor<1x4x8xf16>) -> tensor<1x4x8xf16>
  return %4 : tensor<1x4x8xf16>
}

// f32 that is not rounded stays; TF32 and computed weights do not. A shard's cuts move along.
// CHECK-LABEL: func.func @types
// CHECK: plan.convolution %arg0, %arg1 <input = [1, 4, 8, 8] by [256, 64, 8, 1]
// CHECK: plan.convolution {{.*}} tf32 = true> : (tensor<1x8x8x4xf32>, tensor<2x1x1x4xf32>) -> tensor<1x8x8x2xf32>
// CHECK: loom.get_weight @w.channels_last {{.*}}sharding = #dist.sharding<@mesh, [{"model"}, {}, {}]>{{.*}} : tensor<2x3x4xf16>
dist.mesh @mesh <["model" = 2]>
func.func @types(%x: tensor<1x4x8x8xf32>, %v: tensor<2x4x1x1xf32>, %z: tensor<1x4x8xf16>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>, tensor<1x2x8xf16>) {
  %0 = plan.convolution %x, %v <input = [1, 4, 8, 8] by [256, 64, 8, 1], weight = [2, 4, 1, 1] by [4, 1, 1, 1], output = [1, 2, 8, 8] by [128, 64, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1> : (tensor<1x4x8x8xf32>, tensor<2x4x1x1xf32>) -> tensor<1x2x8x8xf32>
  %1 = plan.convolution %x, %v <input = [1, 4, 8, 8] by [256, 64, 8, 1], weight = [2, 4, 1, 1] by [4, 1, 1, 1], output = [1, 2, 8, 8] by [128, 64, 8, 1],
      strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1 tf32 = true> : (tensor<1x4x8x8xf32>, tensor<2x4x1x1xf32>) -> tensor<1x2x8x8xf32>
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>, sharding = #dist.sharding<@mesh, [{"model"}, {}, {}]>} : tensor<2x4x3xf16>
  %2 = plan.convolution %z, %w <input = [1, 4, 8] by [32, 8, 1], weight = [2, 4, 3] by [12, 3, 1], output = [1, 2, 8] by [16, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<2x4x3xf16>) -> tensor<1x2x8xf16>
  return %0, %1, %2 : tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>, tensor<1x2x8xf16>
}

// Halos are exchanged with the channels last.
// CHECK-LABEL: func.func @halo
// CHECK: %[[X:.*]] = plan.convolution {{.*}} -> tensor<1x8x4xf16>
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[X]] {{.*}} : (tensor<1x8x4xf16>) -> tensor<1x1x4xf16>
// CHECK-NEXT: %[[F:.*]] = dist.start {
// CHECK-NEXT: dist.permute %[[S]] over ["model"] [1, 0] : (tensor<1x1x4xf16>) -> tensor<1x1x4xf16>
// CHECK: %[[H:.*]] = dist.done %[[F]] : {{.*}} -> tensor<1x1x4xf16>
// CHECK-NEXT: %[[C:.*]] = loom.concatenate %[[H]], %[[X]] dim = 1 : (tensor<1x1x4xf16>, tensor<1x8x4xf16>) -> tensor<1x9x4xf16>
// CHECK-NEXT: plan.convolution %[[C]]
func.func @halo(%x: tensor<1x4x8xf16>) -> tensor<1x4x8xf16> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  %1 = loom.slice %0 [0, 0, 7] to [1, 4, 8] by [1, 1, 1] : (tensor<1x4x8xf16>) -> tensor<1x4x1xf16>
  %f = dist.start {
    %2 = dist.permute %1 over ["model"] [1, 0] : (tensor<1x4x1xf16>) -> tensor<1x4x1xf16>
    dist.yield %2 : tensor<1x4x1xf16>
  } : !dist.future<tensor<1x4x1xf16>>
  %3 = dist.done %f : !dist.future<tensor<1x4x1xf16>> -> tensor<1x4x1xf16>
  %4 = loom.concatenate %3, %0 dim = 2 : (tensor<1x4x1xf16>, tensor<1x4x8xf16>) -> tensor<1x4x9xf16>
  %5 = plan.convolution %4, %w <input = [1, 4, 9] by [36, 9, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [0], high = [1], dilations = [1], groups = 1> : (tensor<1x4x9xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  return %5 : tensor<1x4x8xf16>
}

// Of a concatenation that a convolution reads, only the part is transposed that is not so yet; others stay.
// CHECK-LABEL: func.func @joined
// CHECK: %[[X:.*]] = plan.convolution {{.*}} -> tensor<1x8x2xf16>
// CHECK: %[[Z:.*]] = loom.transpose %arg1 [0, 2, 1] : (tensor<1x2x8xf16>) -> tensor<1x8x2xf16>
// CHECK: %[[C:.*]] = loom.concatenate %[[X]], %[[Z]] dim = 2 {{.*}} -> tensor<1x8x4xf16>
// CHECK: plan.convolution %[[C]]
// CHECK: loom.concatenate {{.*}} dim = 1 : (tensor<1x2x8xf16>, tensor<1x2x8xf16>) -> tensor<1x4x8xf16>
func.func @joined(%x: tensor<1x4x8xf16>, %z: tensor<1x2x8xf16>, %y: tensor<1x2x8xf16>) -> (tensor<1x4x8xf16>, tensor<1x4x8xf16>) {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %v = loom.slice %w [0, 0, 0] to [2, 4, 3] by [1, 1, 1] : (tensor<4x4x3xf16>) -> tensor<2x4x3xf16>
  %0 = plan.convolution %x, %v <input = [1, 4, 8] by [32, 8, 1], weight = [2, 4, 3] by [12, 3, 1], output = [1, 2, 8] by [16, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<2x4x3xf16>) -> tensor<1x2x8xf16>
  %1 = loom.concatenate %0, %z dim = 1 : (tensor<1x2x8xf16>, tensor<1x2x8xf16>) -> tensor<1x4x8xf16>
  %2 = plan.convolution %1, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  %3 = loom.concatenate %0, %y dim = 1 : (tensor<1x2x8xf16>, tensor<1x2x8xf16>) -> tensor<1x4x8xf16>
  return %2, %3 : tensor<1x4x8xf16>, tensor<1x4x8xf16>
}

// A transposed convolution with disjoint windows ends by putting its channels' windows in place. The weight gets the windows before
// the channels, so that channels stay together.
// CHECK: loom.derived @t.windows_first : tensor<1x2x4x4xf16> {
// CHECK: loom.transpose {{.*}} [0, 2, 1, 3] : (tensor<1x4x2x4xf16>) -> tensor<1x2x4x4xf16>
// CHECK-LABEL: func.func @spread
// CHECK: %[[W:.*]] = loom.get_weight @t.windows_first {layout = #loom.layout<[0, 1, 2, 3]>} : tensor<1x2x4x4xf16>
// CHECK: %[[V:.*]] = loom.reshape %[[W]] : (tensor<1x2x4x4xf16>) -> tensor<8x4x1xf16>
// CHECK: %[[L:.*]] = loom.reshape %[[V]] : (tensor<8x4x1xf16>) -> tensor<8x1x4xf16>
// CHECK: %[[X:.*]] = plan.convolution {{.*}}, %[[L]] {{.*}} -> tensor<1x8x8xf16>
// CHECK: %[[S:.*]] = loom.reshape %[[X]] : (tensor<1x8x8xf16>) -> tensor<1x8x2x4xf16>
// CHECK-NOT: loom.transpose
// CHECK: %[[R:.*]] = loom.reshape %[[S]] : (tensor<1x8x2x4xf16>) -> tensor<1x16x4xf16>
// CHECK-NEXT: plan.convolution %[[R]]
loom.derived @t : tensor<1x4x2x4xf16> {
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %1 = loom.slice %0 [0, 0, 0] to [4, 4, 2] by [1, 1, 1] : (tensor<4x4x3xf16>) -> tensor<4x4x2xf16>
  %2 = loom.reshape %1 : (tensor<4x4x2xf16>) -> tensor<1x4x4x2xf16>
  %3 = loom.transpose %2 [0, 2, 3, 1] : (tensor<1x4x4x2xf16>) -> tensor<1x4x2x4xf16>
  loom.yield %3 : tensor<1x4x2x4xf16>
}
func.func @spread(%x: tensor<1x4x8xf16>) -> tensor<1x4x16xf16> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %t = loom.get_weight @t {layout = #loom.layout<[0, 1, 2, 3]>} : tensor<1x4x2x4xf16>
  %v = loom.reshape %t : (tensor<1x4x2x4xf16>) -> tensor<8x4x1xf16>
  %0 = plan.convolution %x, %v <input = [1, 4, 8] by [32, 8, 1], weight = [8, 4, 1] by [4, 1, 1], output = [1, 8, 8] by [64, 8, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<8x4x1xf16>) -> tensor<1x8x8xf16>
  %1 = loom.reshape %0 : (tensor<1x8x8xf16>) -> tensor<1x4x2x8xf16>
  %2 = loom.transpose %1 [0, 1, 3, 2] : (tensor<1x4x2x8xf16>) -> tensor<1x4x8x2xf16>
  %3 = loom.reshape %2 : (tensor<1x4x8x2xf16>) -> tensor<1x4x16xf16>
  %4 = plan.convolution %3, %w <input = [1, 4, 16] by [64, 16, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 16] by [64, 16, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x16xf16>, tensor<4x4x3xf16>) -> tensor<1x4x16xf16>
  return %4 : tensor<1x4x16xf16>
}

// With a bias in the call, the channels keep their order.
// CHECK-LABEL: func.func @spread_with_bias
// CHECK: loom.get_weight @t {
// CHECK: %[[X:.*]] = plan.convolution {{.*}} bias {{.*}} -> tensor<1x8x8xf16>
// CHECK: %[[S:.*]] = loom.reshape %[[X]] : (tensor<1x8x8xf16>) -> tensor<1x8x4x2xf16>
// CHECK: %[[T:.*]] = loom.transpose %[[S]] [0, 1, 3, 2] : (tensor<1x8x4x2xf16>) -> tensor<1x8x2x4xf16>
// CHECK: loom.reshape %[[T]] : (tensor<1x8x2x4xf16>) -> tensor<1x16x4xf16>
func.func @spread_with_bias(%x: tensor<1x4x8xf16>, %b: tensor<8xf16>) -> tensor<1x4x16xf16> {
  %t = loom.get_weight @t {layout = #loom.layout<[0, 1, 2, 3]>} : tensor<1x4x2x4xf16>
  %v = loom.reshape %t : (tensor<1x4x2x4xf16>) -> tensor<8x4x1xf16>
  %0 = plan.convolution %x, %v bias %b <input = [1, 4, 8] by [32, 8, 1], weight = [8, 4, 1] by [4, 1, 1], output = [1, 8, 8] by [64, 8, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 1 epilogue = <bias = true>> : (tensor<1x4x8xf16>, tensor<8x4x1xf16>, tensor<8xf16>) -> tensor<1x8x8xf16>
  %1 = loom.reshape %0 : (tensor<1x8x8xf16>) -> tensor<1x4x2x8xf16>
  %2 = loom.transpose %1 [0, 1, 3, 2] : (tensor<1x4x2x8xf16>) -> tensor<1x4x8x2xf16>
  %3 = loom.reshape %2 : (tensor<1x4x8x2xf16>) -> tensor<1x4x16xf16>
  return %3 : tensor<1x4x16xf16>
}

// So they do in groups, since each group's channels read other inputs.
// CHECK-LABEL: func.func @spread_in_groups
// CHECK: loom.get_weight @t {
// CHECK: %[[X:.*]] = plan.convolution {{.*}} groups = 2{{.*}} -> tensor<1x8x8xf16>
// CHECK: loom.reshape %[[X]] : (tensor<1x8x8xf16>) -> tensor<1x8x4x2xf16>
func.func @spread_in_groups(%x: tensor<1x8x8xf16>) -> tensor<1x4x16xf16> {
  %t = loom.get_weight @t {layout = #loom.layout<[0, 1, 2, 3]>} : tensor<1x4x2x4xf16>
  %v = loom.reshape %t : (tensor<1x4x2x4xf16>) -> tensor<8x4x1xf16>
  %0 = plan.convolution %x, %v <input = [1, 8, 8] by [64, 8, 1], weight = [8, 4, 1] by [4, 1, 1], output = [1, 8, 8] by [64, 8, 1],
      strides = [1], low = [0], high = [0], dilations = [1], groups = 2> : (tensor<1x8x8xf16>, tensor<8x4x1xf16>) -> tensor<1x8x8xf16>
  %1 = loom.reshape %0 : (tensor<1x8x8xf16>) -> tensor<1x4x2x8xf16>
  %2 = loom.transpose %1 [0, 1, 3, 2] : (tensor<1x4x2x8xf16>) -> tensor<1x4x8x2xf16>
  %3 = loom.reshape %2 : (tensor<1x4x8x2xf16>) -> tensor<1x4x16xf16>
  return %3 : tensor<1x4x16xf16>
}

// Sums over devices have no order, and a device's part is cut out with the channels last.
// CHECK-LABEL: func.func @summed
// CHECK: %[[X:.*]] = plan.convolution {{.*}} -> tensor<1x8x4xf16>
// CHECK-NEXT: %[[F:.*]] = dist.start {
// CHECK-NEXT: dist.all_reduce %[[X]] over ["model"] sum : tensor<1x8x4xf16>
// CHECK: %[[S:.*]] = dist.done %[[F]] : {{.*}} -> tensor<1x8x4xf16>
// CHECK: %[[P:.*]] = loom.reshape %[[S]] : (tensor<1x8x4xf16>) -> tensor<1x8x2x2xf16>
// CHECK: %[[G:.*]] = loom.gather %[[P]], %arg1 dim = 2 : (tensor<1x8x2x2xf16>, tensor<i64>) -> tensor<1x8x2xf16>
// CHECK-NEXT: plan.convolution %[[G]]
func.func @summed(%x: tensor<1x4x8xf16>, %i: tensor<i64>) -> tensor<1x4x8xf16> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %v = loom.slice %w [0, 0, 0] to [4, 2, 3] by [1, 1, 1] : (tensor<4x4x3xf16>) -> tensor<4x2x3xf16>
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  %f = dist.start {
    %1 = dist.all_reduce %0 over ["model"] sum : tensor<1x4x8xf16>
    dist.yield %1 : tensor<1x4x8xf16>
  } : !dist.future<tensor<1x4x8xf16>>
  %2 = dist.done %f : !dist.future<tensor<1x4x8xf16>> -> tensor<1x4x8xf16>
  %3 = loom.reshape %2 : (tensor<1x4x8xf16>) -> tensor<1x2x2x8xf16>
  %4 = loom.gather %3, %i dim = 1 : (tensor<1x2x2x8xf16>, tensor<i64>) -> tensor<1x2x8xf16>
  %5 = plan.convolution %4, %v <input = [1, 2, 8] by [16, 8, 1], weight = [4, 2, 3] by [6, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x2x8xf16>, tensor<4x2x3xf16>) -> tensor<1x4x8xf16>
  return %5 : tensor<1x4x8xf16>
}

// Results of other communication are not transposed; nothing moves across it.
// CHECK-LABEL: func.func @gathered
// CHECK: plan.convolution {{.*}} -> tensor<1x8x4xf16>
// CHECK: dist.start
// CHECK: dist.all_gather {{.*}} -> tensor<2x4x8xf16>
func.func @gathered(%x: tensor<1x4x8xf16>) -> tensor<2x4x8xf16> {
  %w = loom.get_weight @w {layout = #loom.layout<[0, 1, 2]>} : tensor<4x4x3xf16>
  %0 = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1], output = [1, 4, 8] by [32, 8, 1],
      strides = [1], low = [1], high = [1], dilations = [1], groups = 1> : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
  %f = dist.start {
    %1 = dist.all_gather %0 over ["model"] dim = 0 : (tensor<1x4x8xf16>) -> tensor<2x4x8xf16>
    dist.yield %1 : tensor<2x4x8xf16>
  } : !dist.future<tensor<2x4x8xf16>>
  %2 = dist.done %f : !dist.future<tensor<2x4x8xf16>> -> tensor<2x4x8xf16>
  return %2 : tensor<2x4x8xf16>
}
