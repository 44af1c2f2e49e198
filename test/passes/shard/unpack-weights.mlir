// RUN: gridloom-opt %s --dist-unpack-weights --loom-hoist-prologue | FileCheck %s
// RUN: gridloom-opt %s --dist-unpack-weights=only=/attention.* | FileCheck %s --check-prefix=ONLY

// ONLY: dist.unpacked = ["/attention.0"]
// ONLY-LABEL: func.func @columns
// ONLY: loom.slice %{{.*}} : (tensor<2x8xf32>)
// ONLY-LABEL: func.func @named
// ONLY: loom.dot_general {{.*}} -> tensor<2x3xf32>

// CHECK-DAG: loom.derived @"w[0:4]" : tensor<8x4xf32>
// CHECK-DAG: loom.derived @"w[4:6]" : tensor<8x2xf32>
// A part of a derived tensor is derived from the weight itself.
// CHECK: loom.derived @"w.bf16[0:4]" : tensor<8x4xbf16> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @w : tensor<8x8xf32>
// CHECK-NEXT: %[[C:.*]] = loom.convert %[[W]] : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[C]]
// CHECK-NEXT: loom.yield %[[S]]
loom.weight @w : tensor<8x8xf32> from <"", offset = 0, bytes = 256>
loom.weight @b : tensor<8xf32> from <"", offset = 256, bytes = 32>
loom.weight @p : tensor<3x8x4xf32> from <"", offset = 288, bytes = 384>
loom.derived @w.bf16 : tensor<8x8xbf16> {
  %w = loom.get_weight @w : tensor<8x8xf32>
  %0 = loom.convert %w : (tensor<8x8xf32>) -> tensor<8x8xbf16>
  loom.yield %0 : tensor<8x8xbf16>
}
dist.mesh @mesh <["model" = 2]>

// Query, key and value of different sizes, sliced after a bias.
// CHECK-LABEL: func.func @columns
// CHECK-DAG: %[[W0:.*]] = loom.get_weight @"w[0:4]"
// CHECK-DAG: %[[B0:.*]] = loom.get_weight @"b[0:4]"
// CHECK-DAG: %[[D0:.*]] = loom.dot_general %arg0, %[[W0]] {{.*}} -> tensor<2x4xf32>
// CHECK-DAG: %[[C0:.*]] = loom.broadcast %[[B0]] dims = [1] {{.*}} -> tensor<2x4xf32>
// CHECK-DAG: %[[A0:.*]] = loom.add %[[D0]], %[[C0]] {dist.part} : tensor<2x4xf32>
// CHECK-NOT: loom.slice
// CHECK: return %[[A0]], %{{.*}}, %{{.*}} : tensor<2x4xf32>, tensor<2x2xf32>, tensor<2x2xf32>
func.func @columns(%x: tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %w = loom.get_weight @w : tensor<8x8xf32>
  %b = loom.get_weight @b : tensor<8xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<8xf32>) -> tensor<2x8xf32>
  %2 = loom.add %0, %1 : tensor<2x8xf32>
  %3 = loom.slice %2 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %4 = loom.slice %2 [0, 4] to [2, 6] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x2xf32>
  %5 = loom.slice %2 [0, 6] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x2xf32>
  return %3, %4, %5 : tensor<2x4xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// nn.MultiheadAttention: a dimension for the parts, moved to the front.
// CHECK-LABEL: func.func @unsqueezed
// CHECK-COUNT-2: loom.dot_general {{.*}} -> tensor<2x4xf32>
// CHECK-NOT: loom.slice
// CHECK: return
func.func @unsqueezed(%x: tensor<2x8xf32>) -> (tensor<1x2x4xf32>, tensor<1x2x4xf32>) {
  %w = loom.get_weight @w : tensor<8x8xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %1 = loom.reshape %0 : (tensor<2x8xf32>) -> tensor<2x2x4xf32>
  %2 = loom.transpose %1 [1, 0, 2] : (tensor<2x2x4xf32>) -> tensor<2x2x4xf32>
  %3 = loom.slice %2 [0, 0, 0] to [1, 2, 4] by [1, 1, 1] : (tensor<2x2x4xf32>) -> tensor<1x2x4xf32>
  %4 = loom.slice %2 [1, 0, 0] to [2, 2, 4] by [1, 1, 1] : (tensor<2x2x4xf32>) -> tensor<1x2x4xf32>
  return %3, %4 : tensor<1x2x4xf32>, tensor<1x2x4xf32>
}

// Gate and up projections of each token's expert, multiplied from the left.
// CHECK-LABEL: func.func @experts
// CHECK-DAG: %[[G:.*]] = loom.gather %{{.*}}, %arg1 dim = 0 {{.*}}(tensor<3x4x4xf32>, tensor<5xi64>) -> tensor<5x4x4xf32>
// CHECK-DAG: loom.dot_general %[[G]], %arg0 {{.*}} -> tensor<5x4xf32>
// CHECK-NOT: tensor<5x8x4xf32>
// CHECK: return
func.func @experts(%x: tensor<5x4xf32>, %e: tensor<5xi64>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %p = loom.get_weight @p : tensor<3x8x4xf32>
  %0 = loom.gather %p, %e dim = 0 : (tensor<3x8x4xf32>, tensor<5xi64>) -> tensor<5x8x4xf32>
  %1 = loom.dot_general %0, %x batch = [0] x [0] contract = [2] x [1] : (tensor<5x8x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  %2 = loom.slice %1 [0, 0] to [5, 4] by [1, 1] : (tensor<5x8xf32>) -> tensor<5x4xf32>
  %3 = loom.slice %1 [0, 4] to [5, 8] by [1, 1] : (tensor<5x8xf32>) -> tensor<5x4xf32>
  return %2, %3 : tensor<5x4xf32>, tensor<5x4xf32>
}

// These stay: also read whole, sliced twice, sliced once, with gaps, or pinned.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-5: loom.get_weight @w
// CHECK: return
func.func @stays(%x: tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x8xf32>, tensor<2x5xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %w0 = loom.get_weight @w : tensor<8x8xf32>
  %0 = loom.dot_general %x, %w0 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %1 = loom.slice %0 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %2 = loom.slice %0 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %w1 = loom.get_weight @w : tensor<8x8xf32>
  %3 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %4 = loom.slice %3 [0, 0] to [2, 5] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x5xf32>
  %5 = loom.slice %3 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %w2 = loom.get_weight @w : tensor<8x8xf32>
  %6 = loom.dot_general %x, %w2 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %7 = loom.slice %6 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %w3 = loom.get_weight @w : tensor<8x8xf32>
  %8 = loom.dot_general %x, %w3 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %9 = loom.slice %8 [0, 0] to [2, 8] by [1, 2] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %10 = loom.slice %8 [0, 1] to [2, 8] by [1, 2] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %w4 = loom.get_weight @w {dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>], dist.origins = [#dist.origin<"user">]} : tensor<8x8xf32>
  %11 = loom.dot_general %x, %w4 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %12 = loom.slice %11 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %13 = loom.slice %11 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  return %1, %2, %0, %4, %5, %7, %9, %10, %12, %13 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x8xf32>, tensor<2x5xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// Pinned: where the weight is stored, and the bias.
// CHECK-LABEL: func.func @pinned
// CHECK: loom.get_weight @w {dist.storage
// CHECK-COUNT-2: loom.slice
// CHECK: loom.get_weight @w :
// CHECK: loom.get_weight @b {
// CHECK-COUNT-2: loom.slice
// CHECK: return
func.func @pinned(%x: tensor<2x8xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {
  %w0 = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<8x8xf32>
  %0 = loom.dot_general %x, %w0 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %1 = loom.slice %0 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %2 = loom.slice %0 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %w1 = loom.get_weight @w : tensor<8x8xf32>
  %3 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %b = loom.get_weight @b {dist.shardings = [#dist.sharding<@mesh, [{"model"}]>], dist.origins = [#dist.origin<"user">]} : tensor<8xf32>
  %4 = loom.broadcast %b dims = [1] : (tensor<8xf32>) -> tensor<2x8xf32>
  %5 = loom.add %3, %4 : tensor<2x8xf32>
  %6 = loom.slice %5 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  %7 = loom.slice %5 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x4xf32>
  return %1, %2, %6, %7 : tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
}

// CHECK-LABEL: func.func @narrow
// CHECK: loom.get_weight @"w.bf16[0:4]"
func.func @narrow(%x: tensor<2x8xbf16>) -> (tensor<2x4xbf16>, tensor<2x4xbf16>) {
  %w = loom.get_weight @w.bf16 : tensor<8x8xbf16>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x8xbf16>, tensor<8x8xbf16>) -> tensor<2x8xbf16>
  %1 = loom.slice %0 [0, 0] to [2, 4] by [1, 1] : (tensor<2x8xbf16>) -> tensor<2x4xbf16>
  %2 = loom.slice %0 [0, 4] to [2, 8] by [1, 1] : (tensor<2x8xbf16>) -> tensor<2x4xbf16>
  return %1, %2 : tensor<2x4xbf16>, tensor<2x4xbf16>
}

// CHECK-LABEL: func.func @named
func.func @named(%x: tensor<2x8xf32>) -> (tensor<2x3xf32>, tensor<2x5xf32>) {
  %w = loom.get_weight @w : tensor<8x8xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32> loc("/attention.0")
  %1 = loom.slice %0 [0, 0] to [2, 3] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x3xf32>
  %2 = loom.slice %0 [0, 3] to [2, 8] by [1, 1] : (tensor<2x8xf32>) -> tensor<2x5xf32>
  return %1, %2 : tensor<2x3xf32>, tensor<2x5xf32>
}
