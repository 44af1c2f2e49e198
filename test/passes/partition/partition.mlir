// RUN: gridloom-opt %s --split-input-file --dist-apply-strategy="dp=data tp=model" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded --dist-insert-reshards --dist-lower-reshards --dist-localize --canonicalize | FileCheck %s

// Split by column, then by row: one all_reduce, nothing else.
dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @w1 : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
loom.weight @w2 : tensor<64x16xf32> from <"", offset = 4096, bytes = 4096>
loom.weight @b1 : tensor<64xf32> from <"", offset = 8192, bytes = 256>
// CHECK-LABEL: func.func @mlp
// CHECK-SAME: tensor<4x16xf32>
// CHECK-NOT: = dist.all_
// CHECK: %[[Y:.*]] = loom.dot_general {{.*}} (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
// CHECK-NEXT: dist.all_reduce %[[Y]] over ["model"] sum
// CHECK-NOT: = dist.{{all|reduce|shard}}
// CHECK: return
func.func @mlp(%x: tensor<8x16xf32> {loom.name = "x"}) -> (tensor<8x16xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<16x64xf32>
  %w2 = loom.get_weight @w2 : tensor<64x16xf32>
  %b1 = loom.get_weight @b1 : tensor<64xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x64xf32>) -> tensor<8x64xf32>
  %1 = loom.broadcast %b1 dims = [1] : (tensor<64xf32>) -> tensor<8x64xf32>
  %2 = loom.add %0, %1 : tensor<8x64xf32>
  %3 = loom.gelu erf %2 : tensor<8x64xf32>
  %4 = loom.dot_general %3, %w2 batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
  %5 = loom.add %4, %x : tensor<8x16xf32>
  return %5 : tensor<8x16xf32>
}

// -----

// With the sequence split between the contractions: one all_gather before the column, one
// reduce_scatter after the row.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @w1 : tensor<64x256xf32> from <"", offset = 0, bytes = 65536>
loom.weight @w2 : tensor<256x64xf32> from <"", offset = 0, bytes = 65536>
// CHECK-LABEL: func.func @sequence
// CHECK: %[[G:.*]] = dist.all_gather %{{.*}} over ["model"] dim = 1 {{.*}}: (tensor<2x8x64xf32>) -> tensor<2x16x64xf32>
// CHECK: loom.dot_general %[[G]], {{.*}} -> tensor<2x16x128xf32>
// CHECK: %[[P:.*]] = loom.dot_general {{.*}} -> tensor<2x16x64xf32>
// CHECK-NEXT: dist.reduce_scatter %[[P]] over ["model"] dim = 1 sum {{.*}}-> tensor<2x8x64xf32>
// CHECK-NOT: = dist.{{all|reduce|shard}}
// CHECK: return
func.func @sequence(%x: tensor<2x16x64xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {"model"}, {}]>})
    -> (tensor<2x16x64xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {"model"}, {}]>}) {
  %w1 = loom.get_weight @w1 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]} : tensor<64x256xf32>
  %w2 = loom.get_weight @w2 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"model"}, {}]>]} : tensor<256x64xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [2] x [0] : (tensor<2x16x64xf32>, tensor<64x256xf32>) -> tensor<2x16x256xf32>
  %1 = loom.gelu erf %0 : tensor<2x16x256xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [2] x [0] : (tensor<2x16x256xf32>, tensor<256x64xf32>) -> tensor<2x16x64xf32>
  %3 = loom.add %2, %x : tensor<2x16x64xf32>
  return %3 : tensor<2x16x64xf32>
}

// -----

// Two partial sums added are reduced once.
dist.mesh @mesh <["data" = 1, "model" = 2]>
// CHECK-LABEL: func.func @partial_sums
// CHECK-COUNT-1: dist.all_reduce
// CHECK-NOT: = dist.{{all|reduce|shard}}
// CHECK: return
func.func @partial_sums(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                        %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>},
                        %b: tensor<8x4xf32> {loom.name = "b", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.dot_general %x, %b batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %2 = loom.add %0, %1 : tensor<4x4xf32>
  %3 = loom.exp %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// A table split by rows: each device looks up its own rows, and the sum is the result.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @t : tensor<65536x16xf32> from <"", offset = 0, bytes = 4194304>
// CHECK-LABEL: func.func @table
// CHECK: dist.axis_index ["model"]
// CHECK: loom.gather {{.*}}(tensor<32768x16xf32>, tensor<4x2xi64>)
// CHECK: %[[S:.*]] = loom.select
// CHECK: dist.all_reduce %[[S]] over ["model"] sum
func.func @table(%i: tensor<4x2xi64> {loom.name = "i"}) -> (tensor<4x2x16xf32> {loom.name = "y"}) {
  %t = loom.get_weight @t : tensor<65536x16xf32>
  %0 = loom.gather %t, %i dim = 0 : (tensor<65536x16xf32>, tensor<4x2xi64>) -> tensor<4x2x16xf32>
  %1 = loom.exp %0 : tensor<4x2x16xf32>
  return %1 : tensor<4x2x16xf32>
}

// -----

// Ten over four: shards of three, the last with one real row. Their sum masks the padding.
dist.mesh @mesh <["data" = 4, "model" = 1]>
// CHECK-LABEL: func.func @uneven
// CHECK-SAME: tensor<3x6xf32> {{{.*}}loom.global_type = tensor<10x6xf32>
// CHECK: %[[I:.*]] = loom.compare lt %{{.*}} : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
// CHECK: %[[M:.*]] = loom.broadcast %[[I]] dims = [0] {{.*}}: (tensor<3xi1>) -> tensor<3x6xi1>
// CHECK: %[[S:.*]] = loom.select %[[M]], {{.*}} : tensor<3x6xi1>, tensor<3x6xf32>
// CHECK: %[[R:.*]] = loom.reduce sum %[[S]] dims = [0] {{.*}}: (tensor<3x6xf32>) -> tensor<6xf32>
// CHECK: dist.all_reduce %[[R]] over ["data"] sum
func.func @uneven(%x: tensor<10x6xf32> {loom.name = "x"}) -> (tensor<6xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<10x6xf32>
  %1 = loom.reduce sum %0 dims = [0] : (tensor<10x6xf32>) -> tensor<6xf32>
  %2 = loom.exp %1 : tensor<6xf32>
  return %2 : tensor<6xf32>
}

// -----

// Splits are between heads: three heads of eight over two devices are shards of two heads.
dist.mesh @mesh <["data" = 1, "model" = 2]>
// CHECK-LABEL: func.func @granule
// CHECK: dist.shardings = [#dist.sharding<@mesh, [{}, {"model"} * 8]>]
// CHECK-SAME: -> tensor<4x16xf32>
func.func @granule(%x: tensor<4x3x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}, {}]>})
    -> (tensor<4x24xf32> {loom.name = "y"}) {
  %0 = loom.reshape %x : (tensor<4x3x8xf32>) -> tensor<4x24xf32>
  %1 = loom.exp %0 : tensor<4x24xf32>
  return %1 : tensor<4x24xf32>
}

// -----

// Attention, heads split: one all_reduce, after the output projection.
dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @q : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @k : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @v : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
loom.weight @o : tensor<32x32xf32> from <"", offset = 0, bytes = 4096>
// CHECK-LABEL: func.func @attention
// CHECK-NOT: = dist.
// CHECK: loom.softmax {{.*}} : tensor<4x2x6x6xf32>
// CHECK-NOT: = dist.
// CHECK: %[[O:.*]] = loom.dot_general {{.*}} (tensor<4x6x16xf32>, tensor<16x32xf32>) -> tensor<4x6x32xf32>
// CHECK-NEXT: dist.all_reduce %[[O]] over ["model"] sum
// CHECK-NOT: = dist.
// CHECK: return
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

// Rows move from the devices along one axis to those along the other: half of them swap, none gathers.
dist.mesh @mesh <["data" = 2, "model" = 2]>
// CHECK-LABEL: func.func @permuted
// CHECK: dist.permute %{{.*}} over ["data", "model"] [0, 2, 1, 3]
// CHECK-NOT: = dist.
func.func @permuted(%x: tensor<8x4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
    -> (tensor<8x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>}) {
  return %x : tensor<8x4xf32>
}

// -----

// The result is needed by rows and the product is partial over both axes: one reduce_scatter, then
// the remaining sum on a quarter.
dist.mesh @mesh <["data" = 4, "model" = 2]>
// CHECK-LABEL: func.func @partial_over_two_axes
// CHECK: dist.reduce_scatter %{{.*}} over ["data"] dim = 0 sum {{.*}}(tensor<512x128xf32>) -> tensor<128x128xf32>
// CHECK-NEXT: dist.all_reduce %{{.*}} over ["model"] sum {{.*}}tensor<128x128xf32>
// CHECK-NOT: = dist.
func.func @partial_over_two_axes(%x: tensor<512x16xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"data", "model"}]>},
                                 %w: tensor<16x128xf32> {loom.name = "w", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data", "model"}, {}]>})
    -> (tensor<512x128xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<512x16xf32>, tensor<16x128xf32>) -> tensor<512x128xf32>
  return %0 : tensor<512x128xf32>
}

// -----

// The same for a result of 128 bytes: one collective of three exchanges starts sooner than two collectives.
dist.mesh @mesh <["data" = 4, "model" = 2]>
// CHECK-LABEL: func.func @short_over_two_axes
// CHECK: dist.all_reduce %{{.*}} over ["data", "model"] sum {{.*}}tensor<8x4xf32>
// CHECK-NEXT: dist.shard_slice %{{.*}} over ["data"] dim = 0 {{.*}}(tensor<8x4xf32>) -> tensor<2x4xf32>
// CHECK-NOT: = dist.
func.func @short_over_two_axes(%x: tensor<8x16xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"data", "model"}]>},
                                 %w: tensor<16x4xf32> {loom.name = "w", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data", "model"}, {}]>})
    -> (tensor<8x4xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// Rows read one by one, as in a scan's steps: the sum is reduced once, not for each row.
dist.mesh @mesh <["data" = 1, "model" = 2]>
loom.weight @w : tensor<8x4xf32> from <"", offset = 0, bytes = 128>
// CHECK-LABEL: func.func @rows
// CHECK: %[[P:.*]] = loom.dot_general
// CHECK-NEXT: %[[R:.*]] = dist.all_reduce %[[P]] over ["model"] sum
// CHECK-NOT: dist.all_reduce
// CHECK: return
func.func @rows(%x: tensor<2x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>})
    -> (tensor<1x4xf32> {loom.name = "a"}, tensor<1x4xf32> {loom.name = "b"}) {
  %w = loom.get_weight @w : tensor<8x4xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x4xf32>) -> tensor<2x4xf32>
  %1 = loom.slice %0 [0, 0] to [1, 4] by [1, 1] : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %2 = loom.slice %0 [1, 0] to [2, 4] by [1, 1] : (tensor<2x4xf32>) -> tensor<1x4xf32>
  %3 = loom.exp %1 : tensor<1x4xf32>
  %4 = loom.exp %2 : tensor<1x4xf32>
  return %3, %4 : tensor<1x4xf32>, tensor<1x4xf32>
}
