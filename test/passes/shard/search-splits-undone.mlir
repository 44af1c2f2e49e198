// RUN: gridloom-opt %s --dist-search-splits="axes=x" 2>/dev/null | FileCheck %s
// RUN: gridloom-opt %s --dist-assign-stages | FileCheck %s --check-prefix=ONCE

// The program is cut into stages twice, and the first cut is restored, since the second is slower.
// Each stage's copy of a weight keeps the split found for it: the last product, in the second
// stage, reads columns. Copies are in the order of stages, however often these were cut.
// CHECK: loom.get_weight @w {{.*}}dist.stage = 0
// CHECK: loom.get_weight @w {{.*}}dist.stage = 1
// CHECK: loom.get_weight @v {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0
// CHECK: loom.get_weight @v {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}]>], dist.stage = 1
// ONCE: loom.get_weight @w {{.*}}dist.stage = 0
// ONCE: loom.get_weight @w {{.*}}dist.stage = 1
// ONCE: loom.get_weight @v {{.*}}dist.stage = 0
// ONCE: loom.get_weight @v {{.*}}dist.stage = 1
dist.mesh @mesh <["pipe" = 2, "x" = 8]>
loom.weight @w : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
loom.weight @v : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
func.func @main(%x: tensor<4x65536x64xf32> {loom.name = "x"}) -> (tensor<4x65536x64xf32> {loom.name = "y"}, tensor<4x8x64xf32> {loom.name = "z"}) {
  %w = loom.get_weight @w : tensor<64x64xf32>
  %v = loom.get_weight @v : tensor<64x64xf32>
  %a = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u1 = loom.dot_general %a, %v batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %r = loom.reshape %u1 : (tensor<4x65536x64xf32>) -> tensor<4x4194304xf32>
  %s = loom.argsort %r dim = 1 : (tensor<4x4194304xf32>) -> tensor<4x4194304xi64>
  %c = loom.convert %s : (tensor<4x4194304xi64>) -> tensor<4x4194304xf32>
  %b = loom.reshape %c : (tensor<4x4194304xf32>) -> tensor<4x65536x64xf32>
  %u2 = loom.dot_general %b, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u3 = loom.dot_general %u2, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u4 = loom.dot_general %u3, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u5 = loom.dot_general %u4, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u6 = loom.dot_general %u5, %v batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u7 = loom.dot_general %u6, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u8 = loom.dot_general %u7, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u9 = loom.dot_general %u8, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u10 = loom.dot_general %u9, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u11 = loom.dot_general %u10, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u12 = loom.dot_general %u11, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u13 = loom.dot_general %u12, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u14 = loom.dot_general %u13, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u15 = loom.dot_general %u14, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u16 = loom.dot_general %u15, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u17 = loom.dot_general %u16, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u18 = loom.dot_general %u17, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %u19 = loom.dot_general %u18, %w batch = [] x [] contract = [2] x [0] {dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %sl = loom.slice %u19 [0, 0, 0] to [4, 8, 64] by [1, 1, 1] : (tensor<4x65536x64xf32>) -> tensor<4x8x64xf32>
  %z = loom.dot_general %sl, %v batch = [] x [] contract = [2] x [0] {dist.splits = #dist.splits<[{}, {}, {"x"}, {}]>, dist.shardings = [#dist.sharding<@mesh, [{}, {}, {"x"}]>], dist.origins = [#dist.origin<"user">]} : (tensor<4x8x64xf32>, tensor<64x64xf32>) -> tensor<4x8x64xf32>
  return %u19, %z : tensor<4x65536x64xf32>, tensor<4x8x64xf32>
}
