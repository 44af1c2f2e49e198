// RUN: gridloom-opt %s --split-input-file --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded --dist-insert-reshards --dist-lower-reshards --dist-localize --canonicalize | FileCheck %s

// Layouts that people write by hand follow from the sharding of inputs and weights alone.

// Data parallel: with a split batch, inference needs no collective.
dist.mesh @mesh <["data" = 4]>
loom.weight @w1 : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
loom.weight @b1 : tensor<64xf32> from <"", offset = 0, bytes = 256>
loom.weight @w2 : tensor<64x16xf32> from <"", offset = 0, bytes = 4096>
// CHECK-LABEL: func.func @data_parallel_mlp
// CHECK-SAME: tensor<2x16xf32>
// CHECK-NOT: = dist.
// CHECK: loom.dot_general {{.*}} (tensor<2x16xf32>, tensor<16x64xf32>) -> tensor<2x64xf32>
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<2x16xf32>
func.func @data_parallel_mlp(%x: tensor<8x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8x16xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<16x64xf32>
  %b1 = loom.get_weight @b1 : tensor<64xf32>
  %w2 = loom.get_weight @w2 : tensor<64x16xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  %1 = loom.broadcast %b1 dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
  %2 = loom.add %0, %1 : tensor<8x64xf32>
  %3 = loom.gelu erf %2 : tensor<8x64xf32>
  %4 = loom.dot_general %3, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
  return %4 : tensor<8x16xf32>
}

// -----

// The same for a convolutional network with a pool and a classifier.
dist.mesh @mesh <["data" = 4]>
loom.weight @k : tensor<8x3x3x3xf32> from <"", offset = 0, bytes = 864>
loom.weight @w : tensor<8x10xf32> from <"", offset = 0, bytes = 320>
// CHECK-LABEL: func.func @data_parallel_cnn
// CHECK-NOT: = dist.
// CHECK: loom.convolution {{.*}} -> tensor<2x8x16x16xf32>
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<2x10xf32>
func.func @data_parallel_cnn(%x: tensor<8x3x16x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}, {}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8x10xf32> {loom.name = "y"}) {
  %k = loom.get_weight @k : tensor<8x3x3x3xf32>
  %w = loom.get_weight @w : tensor<8x10xf32>
  %0 = loom.convolution %x, %k strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<8x3x16x16xf32>, tensor<8x3x3x3xf32>) -> tensor<8x8x16x16xf32>
  %1 = loom.reduce_window max %0 dims = [2, 3] sizes = [2, 2] strides = [2, 2] low = [0, 0] high = [0, 0] dilations = [1, 1] : (tensor<8x8x16x16xf32>) -> tensor<8x8x8x8xf32>
  %2 = loom.reduce sum %1 dims = [2, 3] : (tensor<8x8x8x8xf32>) -> tensor<8x8xf32>
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [1] x [0] : (tensor<8x8xf32>, tensor<8x10xf32>) -> tensor<8x10xf32>
  return %3 : tensor<8x10xf32>
}

// -----

// Megatron's MLP: the first weight by column; the second follows by row. One all_reduce.
dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @w1 : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
loom.weight @b1 : tensor<64xf32> from <"", offset = 0, bytes = 256>
loom.weight @w2 : tensor<64x16xf32> from <"", offset = 0, bytes = 4096>
loom.weight @b2 : tensor<16xf32> from <"", offset = 0, bytes = 64>
// CHECK-LABEL: func.func @megatron_mlp
// CHECK-NOT: = dist.
// CHECK: loom.get_weight @b1 {{.*}} : tensor<32xf32>
// CHECK: %[[P:.*]] = loom.dot_general {{.*}} (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
// CHECK: dist.all_reduce %[[P]] over ["model"] sum
// CHECK-NOT: = dist.
// CHECK: return
func.func @megatron_mlp(%x: tensor<8x16xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8x16xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]} : tensor<16x64xf32>
  %b1 = loom.get_weight @b1 : tensor<64xf32>
  %w2 = loom.get_weight @w2 : tensor<64x16xf32>
  %b2 = loom.get_weight @b2 : tensor<16xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  %1 = loom.broadcast %b1 dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
  %2 = loom.add %0, %1 : tensor<8x64xf32>
  %3 = loom.gelu erf %2 : tensor<8x64xf32>
  %4 = loom.dot_general %3, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
  %5 = loom.broadcast %b2 dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
  %6 = loom.add %4, %5 : tensor<8x16xf32>
  %7 = loom.add %6, %x : tensor<8x16xf32>
  return %7 : tensor<8x16xf32>
}

// -----

// Megatron's attention: the queries' projection by column; heads, keys, values and the output
// projection follow. One all_reduce.
dist.mesh @mesh <["model" = 2]>
loom.weight @q : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @k : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @v : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @o : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
// CHECK-LABEL: func.func @megatron_attention
// CHECK-DAG: loom.get_weight @k {{.*}} : tensor<32x16xf32>
// CHECK-DAG: loom.get_weight @v {{.*}} : tensor<32x16xf32>
// CHECK-DAG: loom.get_weight @o {{.*}} : tensor<16x32xf32>
// CHECK-NOT: = dist.
// CHECK: loom.softmax {{.*}} : tensor<8x2x6x6xf32>
// CHECK-NOT: = dist.
// CHECK: %[[O:.*]] = loom.dot_general {{.*}} (tensor<8x6x16xf32>, tensor<16x32xf32>) -> tensor<8x6x32xf32>
// CHECK-NEXT: dist.all_reduce %[[O]] over ["model"] sum
// CHECK-NOT: = dist.
// CHECK: return
func.func @megatron_attention(%x: tensor<8x6x32xf32> {loom.name = "x"}) -> (tensor<8x6x32xf32> {loom.name = "y"}) {
  %q = loom.get_weight @q {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]} : tensor<32x32xf32>
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

// Sequence parallel: with the sequence split at the input and the first weight by column, the norm is
// computed on pieces of the sequence; one all_gather before the column, one reduce_scatter after the row.
dist.mesh @mesh <["model" = 2]>
loom.weight @s : tensor<64xf32> from <"", offset = 0, bytes = 256>
loom.weight @w1 : tensor<64x128xf32> from <"", offset = 0, bytes = 32768>
loom.weight @w2 : tensor<128x64xf32> from <"", offset = 0, bytes = 32768>
// CHECK-LABEL: func.func @sequence_parallel
// CHECK-SAME: tensor<2x8x64xf32>
// CHECK: loom.layer_norm {{.*}} -> tensor<2x8x64xf32>
// CHECK-NEXT: %[[G:.*]] = dist.all_gather %{{.*}} over ["model"] dim = 1
// CHECK-NEXT: loom.dot_general %[[G]], {{.*}} -> tensor<2x16x64xf32>
// CHECK: %[[P:.*]] = loom.dot_general {{.*}} (tensor<2x16x64xf32>, tensor<64x64xf32>) -> tensor<2x16x64xf32>
// CHECK-NEXT: dist.reduce_scatter %[[P]] over ["model"] dim = 1 sum
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<2x8x64xf32>
func.func @sequence_parallel(%x: tensor<2x16x64xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {"model"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<2x16x64xf32> {loom.name = "y"}) {
  %s = loom.get_weight @s : tensor<64xf32>
  %w1 = loom.get_weight @w1 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]} : tensor<64x128xf32>
  %w2 = loom.get_weight @w2 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<128x64xf32>
  %0 = loom.layer_norm %x, %s epsilon = 1.0e-5 : (tensor<2x16x64xf32>, tensor<64xf32>) -> tensor<2x16x64xf32>
  %1 = loom.dot_general %0, %w1 batch = [] x [] contract = [2] x [0] : (tensor<2x16x64xf32>, tensor<64x128xf32>) -> tensor<2x16x128xf32>
  %2 = loom.gelu erf %1 : tensor<2x16x128xf32>
  %3 = loom.dot_general %2, %w2 batch = [] x [] contract = [2] x [0] : (tensor<2x16x128xf32>, tensor<128x64xf32>) -> tensor<2x16x64xf32>
  %4 = loom.add %3, %x : tensor<2x16x64xf32>
  return %4 : tensor<2x16x64xf32>
}

// -----

// The vocabulary is split: lookups of the parts are summed; the logits, by the same table, stay split.
dist.mesh @mesh <["model" = 4]>
loom.weight @t : tensor<1024x16xf32> from <"", offset = 0, bytes = 65536>
// CHECK-LABEL: func.func @vocabulary
// CHECK: loom.gather {{.*}} (tensor<256x16xf32>, tensor<4x2xi64>)
// CHECK: %[[S:.*]] = loom.select
// CHECK: %[[E:.*]] = dist.all_reduce %[[S]] over ["model"] sum
// CHECK: loom.dot_general {{.*}} (tensor<4x2x16xf32>, tensor<256x16xf32>) -> tensor<4x2x256xf32>
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<4x2x256xf32>
func.func @vocabulary(%ids: tensor<4x2xi64> {loom.name = "ids"}) -> (tensor<4x2x1024xf32> {loom.name = "logits"}) {
  %t = loom.get_weight @t {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<1024x16xf32>
  %0 = loom.gather %t, %ids dim = 0 : (tensor<1024x16xf32>, tensor<4x2xi64>) -> tensor<4x2x16xf32>
  %1 = loom.gelu erf %0 : tensor<4x2x16xf32>
  %2 = loom.dot_general %1, %t batch = [] x [] contract = [2] x [1] : (tensor<4x2x16xf32>, tensor<1024x16xf32>) -> tensor<4x2x1024xf32>
  return %2 : tensor<4x2x1024xf32>
}

// -----

// A U-Net of two levels, split in space: halos around the convolutions, no gathers and no reductions.
dist.mesh @mesh <["space" = 2]>
loom.weight @k1 : tensor<8x3x3x3xf32> from <"", offset = 0, bytes = 864>
loom.weight @k2 : tensor<8x8x3x3xf32> from <"", offset = 0, bytes = 2304>
loom.weight @k3 : tensor<4x16x3x3xf32> from <"", offset = 0, bytes = 2304>
// CHECK-LABEL: func.func @unet
// CHECK-SAME: tensor<1x3x16x32xf32>
// CHECK-NOT: = dist.{{all|reduce}}
// CHECK-COUNT-2: dist.permute
// CHECK: loom.convolution {{.*}} -> tensor<1x8x16x32xf32>
// CHECK: loom.reduce_window {{.*}} -> tensor<1x8x8x16xf32>
// CHECK-COUNT-2: dist.permute
// CHECK: loom.convolution {{.*}} -> tensor<1x8x8x16xf32>
// CHECK: loom.concatenate {{.*}} -> tensor<1x16x16x32xf32>
// CHECK-COUNT-2: dist.permute
// CHECK: loom.convolution {{.*}} -> tensor<1x4x16x32xf32>
// CHECK-NOT: = dist.
// CHECK: return {{.*}} : tensor<1x4x16x32xf32>
func.func @unet(%x: tensor<1x3x32x32xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {}, {"space"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<1x4x32x32xf32> {loom.name = "y"}) {
  %k1 = loom.get_weight @k1 : tensor<8x3x3x3xf32>
  %k2 = loom.get_weight @k2 : tensor<8x8x3x3xf32>
  %k3 = loom.get_weight @k3 : tensor<4x16x3x3xf32>
  %0 = loom.convolution %x, %k1 strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<1x3x32x32xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x32x32xf32>
  %1 = loom.gelu erf %0 : tensor<1x8x32x32xf32>
  %2 = loom.reduce_window max %1 dims = [2, 3] sizes = [2, 2] strides = [2, 2] low = [0, 0] high = [0, 0] dilations = [1, 1] : (tensor<1x8x32x32xf32>) -> tensor<1x8x16x16xf32>
  %3 = loom.convolution %2, %k2 strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<1x8x16x16xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x16x16xf32>
  %4 = loom.broadcast %3 dims = [0, 1, 2, 4] : (tensor<1x8x16x16xf32>) -> tensor<1x8x16x2x16x2xf32>
  %5 = loom.reshape %4 : (tensor<1x8x16x2x16x2xf32>) -> tensor<1x8x32x32xf32>
  %6 = loom.concatenate %5, %1 dim = 1 : (tensor<1x8x32x32xf32>, tensor<1x8x32x32xf32>) -> tensor<1x16x32x32xf32>
  %7 = loom.convolution %6, %k3 strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] groups = 1 : (tensor<1x16x32x32xf32>, tensor<4x16x3x3xf32>) -> tensor<1x4x32x32xf32>
  return %7 : tensor<1x4x32x32xf32>
}
