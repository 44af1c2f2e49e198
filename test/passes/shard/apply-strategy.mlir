// RUN: gridloom-opt %s --split-input-file --verify-diagnostics --dist-apply-strategy="dp=data tp=model microbatches=4" | FileCheck %s

// Attention: Q is seeded by column; heads, K, V and the output projection follow.
dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @q : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @k : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @v : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @o : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
// CHECK-LABEL: func.func @attention
// CHECK-SAME: {dist.origin = #dist.origin<"data" = "strategy dp: batch", "micro" = "micro-batches">, dist.sharding = #dist.sharding<@mesh, [{"data", "micro", ?}, {?}, {?}]>
// CHECK: loom.get_weight @q {{.*}}dist.origins = [#dist.origin<"model" = "strategy tp: column of ">], dist.shardings = [#dist.sharding<@mesh, [{?}, {"model", ?}]>]
// CHECK: loom.get_weight @k {{.*}}[{?}, {"model", ?}]
// CHECK: loom.get_weight @v {{.*}}[{?}, {"model", ?}]
// CHECK: loom.get_weight @o {{.*}}[{"model", ?}, {?}]
func.func @attention(%x: tensor<8x6x32xf32> {loom.name = "x"}) -> (tensor<8x6x32xf32> {loom.name = "y"}) {
  %q = loom.get_weight @q : tensor<32x32xf32>
  %k = loom.get_weight @k : tensor<32x32xf32>
  %v = loom.get_weight @v : tensor<32x32xf32>
  %o = loom.get_weight @o : tensor<32x32xf32>
  %0 = loom.dot_general %x, %q batch = [] x [] contract = [2] x [0] : (tensor<8x6x32xf32>, tensor<32x32xf32>) -> tensor<8x6x32xf32>
  %1 = loom.dot_general %x, %k batch = [] x [] contract = [2] x [0] : (tensor<8x6x32xf32>, tensor<32x32xf32>) -> tensor<8x6x32xf32>
  %2 = loom.dot_general %x, %v batch = [] x [] contract = [2] x [0] : (tensor<8x6x32xf32>, tensor<32x32xf32>) -> tensor<8x6x32xf32>
  %3 = loom.reshape %0 : (tensor<8x6x32xf32>) -> tensor<8x6x4x8xf32>
  %4 = loom.reshape %1 : (tensor<8x6x32xf32>) -> tensor<8x6x4x8xf32>
  %5 = loom.reshape %2 : (tensor<8x6x32xf32>) -> tensor<8x6x4x8xf32>
  %6 = loom.dot_general %3, %4 batch = [0, 2] x [0, 2] contract = [3] x [3] : (tensor<8x6x4x8xf32>, tensor<8x6x4x8xf32>) -> tensor<8x4x6x6xf32>
  %7 = loom.softmax %6 dim = 3 : tensor<8x4x6x6xf32>
  %8 = loom.dot_general %7, %5 batch = [0, 1] x [0, 2] contract = [3] x [1] : (tensor<8x4x6x6xf32>, tensor<8x6x4x8xf32>) -> tensor<8x4x6x8xf32>
  %9 = loom.transpose %8 [0, 2, 1, 3] : (tensor<8x4x6x8xf32>) -> tensor<8x6x4x8xf32>
  %10 = loom.reshape %9 : (tensor<8x6x4x8xf32>) -> tensor<8x6x32xf32>
  %11 = loom.dot_general %10, %o batch = [] x [] contract = [2] x [0] : (tensor<8x6x32xf32>, tensor<32x32xf32>) -> tensor<8x6x32xf32>
  return %11 : tensor<8x6x32xf32>
}

// -----

// Three rows are too few for four devices: the input stays whole, and a remark says so.
dist.mesh @mesh <["data" = 4, "model" = 1]>
// expected-remark @below {{input "x" is not split over "data": its leading dimension of 3 is smaller than the axis, which has 4 devices}}
func.func @odd(%x: tensor<3x4xf32> {loom.name = "x"}) -> (tensor<3x4xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// A batch that is normalised over cannot be split into micro-batches.
dist.mesh @mesh <["data" = 1, "model" = 1]>
func.func @whole(%x: tensor<8x4xf32> {loom.name = "x"}) -> (tensor<8x4xf32> {loom.name = "y"}) {
  // expected-remark @below {{the batch is not cut into micro-batches: '' needs all of it}}
  %0 = loom.softmax %x dim = 0 : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// The batch is found by its name when the sequence is the first dimension.
dist.mesh @mesh <["data" = 2, "model" = 1]>
// CHECK-LABEL: func.func @named
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{?}, {"data", ?}]>
func.func @named(%x: tensor<6x4xf32> {loom.name = "x", loom.dim_names = ["sequence", "batch"]}) -> (tensor<6x4xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<6x4xf32>
  return %0 : tensor<6x4xf32>
}

// -----

// Experts are split among devices: two contractions share the reduction over the experts.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @up : tensor<4x16x32xf32> from <"", offset = 0, bytes = 8192>
loom.weight @down : tensor<4x32x16xf32> from <"", offset = 0, bytes = 8192>
// CHECK-LABEL: func.func @experts
// CHECK: loom.get_weight @up {dist.origins = [#dist.origin<"model" = "strategy tp: column of ">], dist.shardings = [#dist.sharding<@mesh, [{"model", ?}, {?}, {?}]>]}
// CHECK: loom.get_weight @down {{.*}}[{"model", ?}, {?}, {?}]
func.func @experts(%x: tensor<8x16xf32> {loom.name = "x"}) -> (tensor<8x16xf32> {loom.name = "y"}) {
  %up = loom.get_weight @up : tensor<4x16x32xf32>
  %down = loom.get_weight @down : tensor<4x32x16xf32>
  %0 = loom.dot_general %x, %up batch = [] x [] contract = [1] x [1] : (tensor<8x16xf32>, tensor<4x16x32xf32>) -> tensor<8x4x32xf32>
  %1 = loom.gelu erf %0 : tensor<8x4x32xf32>
  %2 = loom.dot_general %1, %down batch = [1] x [0] contract = [2] x [1] : (tensor<8x4x32xf32>, tensor<4x32x16xf32>) -> tensor<4x8x16xf32>
  %3 = loom.reduce sum %2 dims = [0] : (tensor<4x8x16xf32>) -> tensor<8x16xf32>
  return %3 : tensor<8x16xf32>
}

// -----

// The features of a residual stream stay whole: otherwise every contraction that reads them, and
// the norm, would need a reduction.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @in : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>
loom.weight @s : tensor<16xf32> from <"", offset = 0, bytes = 64>
loom.weight @out : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>
// CHECK-LABEL: func.func @residual
// CHECK: loom.get_weight @in {{.*}}[{?}, {?}]
func.func @residual(%x: tensor<8x16xf32> {loom.name = "x"}) -> (tensor<8x16xf32> {loom.name = "y"}) {
  %in = loom.get_weight @in : tensor<16x16xf32>
  %s = loom.get_weight @s : tensor<16xf32>
  %out = loom.get_weight @out : tensor<16x16xf32>
  %0 = loom.dot_general %x, %in batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %1 = loom.layer_norm %0, %s epsilon = 1.0e-5 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
  %2 = loom.dot_general %1, %out batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}

// -----

// A cache that is an input, and an output with one more row, is split by heads like the rest; the
// result of the last product is no cache and stays whole.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @q : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @k : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @o : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @head : tensor<32x64xf32> from <"", offset = 0, bytes = 8192>
// CHECK-LABEL: func.func @cache
// CHECK-SAME: %arg1: tensor<2x4x5x8xf32> {dist.origin = #dist.origin<{{.*}}"model" = "strategy tp: column of ">, dist.sharding = #dist.sharding<@mesh, [{"data", "micro", ?}, {"model", ?}, {?}, {?}]>
// CHECK: loom.get_weight @q {{.*}}[{?}, {"model", ?}]
// CHECK: loom.get_weight @k {{.*}}[{?}, {"model", ?}]
// CHECK: loom.get_weight @o {{.*}}[{"model", ?}, {?}]
// CHECK: loom.get_weight @head {{.*}}[{?}, {?}]
func.func @cache(%x: tensor<2x1x32xf32> {loom.name = "x"}, %past: tensor<2x4x5x8xf32> {loom.name = "past"})
    -> (tensor<2x1x64xf32> {loom.name = "y"}, tensor<2x4x6x8xf32> {loom.name = "present"}) {
  %q = loom.get_weight @q : tensor<32x32xf32>
  %k = loom.get_weight @k : tensor<32x32xf32>
  %o = loom.get_weight @o : tensor<32x32xf32>
  %head = loom.get_weight @head : tensor<32x64xf32>
  %0 = loom.dot_general %x, %q batch = [] x [] contract = [2] x [0] : (tensor<2x1x32xf32>, tensor<32x32xf32>) -> tensor<2x1x32xf32>
  %1 = loom.dot_general %x, %k batch = [] x [] contract = [2] x [0] : (tensor<2x1x32xf32>, tensor<32x32xf32>) -> tensor<2x1x32xf32>
  %2 = loom.reshape %0 : (tensor<2x1x32xf32>) -> tensor<2x1x4x8xf32>
  %3 = loom.reshape %1 : (tensor<2x1x32xf32>) -> tensor<2x1x4x8xf32>
  %4 = loom.transpose %3 [0, 2, 1, 3] : (tensor<2x1x4x8xf32>) -> tensor<2x4x1x8xf32>
  %5 = loom.concatenate %past, %4 dim = 2 : (tensor<2x4x5x8xf32>, tensor<2x4x1x8xf32>) -> tensor<2x4x6x8xf32>
  %6 = loom.dot_general %2, %5 batch = [0, 2] x [0, 1] contract = [3] x [3] : (tensor<2x1x4x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x1x6xf32>
  %7 = loom.softmax %6 dim = 3 : tensor<2x4x1x6xf32>
  %8 = loom.dot_general %7, %5 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x1x6xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x1x8xf32>
  %9 = loom.transpose %8 [0, 2, 1, 3] : (tensor<2x4x1x8xf32>) -> tensor<2x1x4x8xf32>
  %10 = loom.reshape %9 : (tensor<2x1x4x8xf32>) -> tensor<2x1x32xf32>
  %11 = loom.dot_general %10, %o batch = [] x [] contract = [2] x [0] : (tensor<2x1x32xf32>, tensor<32x32xf32>) -> tensor<2x1x32xf32>
  %12 = loom.dot_general %11, %head batch = [] x [] contract = [2] x [0] : (tensor<2x1x32xf32>, tensor<32x64xf32>) -> tensor<2x1x64xf32>
  return %12, %5 : tensor<2x1x64xf32>, tensor<2x4x6x8xf32>
}

// -----

// The reasons that stop a split are noted on the weight: here normalised rows, and a result.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @w : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @head : tensor<32x64xf32> from <"", offset = 0, bytes = 8192>
// CHECK-LABEL: func.func @obstacles
// CHECK: loom.get_weight @w {dist.obstacle = #dist.origin<replicated = "split by columns over 'model', its product would have to be gathered for 'flatten'" tried "model">
// CHECK: loom.get_weight @head {dist.obstacle = #dist.origin<replicated = "split by columns over 'model', a result of the model would be split" tried "model">
func.func @obstacles(%x: tensor<5x32xf32> {loom.name = "x"}) -> (tensor<3x160xf32> {loom.name = "y"}, tensor<5x64xf32> {loom.name = "z"}) {
  %w = loom.get_weight @w : tensor<32x32xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<5x32xf32>, tensor<32x32xf32>) -> tensor<5x32xf32> loc("project")
  %1 = loom.reshape %0 : (tensor<5x32xf32>) -> tensor<160xf32> loc("flatten")
  %2 = loom.broadcast %1 dims = [1] : (tensor<160xf32>) -> tensor<3x160xf32> loc("repeat")
  %3 = loom.softmax %2 dim = 1 : tensor<3x160xf32> loc("norm")
  %head = loom.get_weight @head : tensor<32x64xf32>
  %4 = loom.dot_general %x, %head batch = [] x [] contract = [1] x [0] : (tensor<5x32xf32>, tensor<32x64xf32>) -> tensor<5x64xf32> loc("head")
  return %3, %4 : tensor<3x160xf32>, tensor<5x64xf32>
}
