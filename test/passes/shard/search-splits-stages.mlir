// RUN: gridloom-opt %s --split-input-file --dist-apply-strategy="microbatches=4" --dist-search-splits="axes=x memory=48000000" --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded | FileCheck %s

// The rows are split over devices, and each part into micro-batches. A stage's two weights fit; all
// four on one device would not.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: [{"x", "micro"}, {}]
// CHECK: loom.get_weight @w1 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]{{.*}}dist.stage = 0
// CHECK: loom.get_weight @w2 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]{{.*}}dist.stage = 0
// CHECK: loom.get_weight @w3 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]{{.*}}dist.stage = 1
// CHECK: loom.get_weight @w4 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]{{.*}}dist.stage = 1
dist.mesh @mesh <["pipe" = 2, "x" = 2]>
loom.weight @w1 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w2 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w3 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w4 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
func.func @rows(%x: tensor<2048x1024xf32> {loom.name = "x"}) -> (tensor<2048x1024xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<1024x4096xf32>
  %w2 = loom.get_weight @w2 : tensor<4096x1024xf32>
  %w3 = loom.get_weight @w3 : tensor<1024x4096xf32>
  %w4 = loom.get_weight @w4 : tensor<4096x1024xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<2048x1024xf32>, tensor<1024x4096xf32>) -> tensor<2048x4096xf32>
  %1 = loom.gelu erf %0 : tensor<2048x4096xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [1] x [0] : (tensor<2048x4096xf32>, tensor<4096x1024xf32>) -> tensor<2048x1024xf32>
  %3 = loom.add %x, %2 : tensor<2048x1024xf32>
  %4 = loom.dot_general %3, %w3 batch = [] x [] contract = [1] x [0] : (tensor<2048x1024xf32>, tensor<1024x4096xf32>) -> tensor<2048x4096xf32>
  %5 = loom.gelu erf %4 : tensor<2048x4096xf32>
  %6 = loom.dot_general %5, %w4 batch = [] x [] contract = [1] x [0] : (tensor<2048x4096xf32>, tensor<4096x1024xf32>) -> tensor<2048x1024xf32>
  %7 = loom.add %3, %6 : tensor<2048x1024xf32>
  return %7 : tensor<2048x1024xf32>
}

// -----

// A micro-batch has one row, so only columns and rows of weights are left to split. A weight
// without readers does not get in the way.
// CHECK-LABEL: func.func @columns
// CHECK-SAME: [{"micro"}, {}]
// CHECK: loom.get_weight @w1 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}]>]
// CHECK: loom.get_weight @w2 {{.*}}dist.shardings = [#dist.sharding<@mesh, [{"x"}, {}]>]
dist.mesh @mesh <["pipe" = 2, "x" = 2]>
loom.weight @w1 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w2 : tensor<4096x1024xf32> from <"", offset = 0, bytes = 16777216>
loom.weight @w3 : tensor<1024x4096xf32> from <"", offset = 0, bytes = 16777216>
func.func @columns(%x: tensor<4x1024xf32> {loom.name = "x"}) -> (tensor<4x4096xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<1024x4096xf32>
  %w2 = loom.get_weight @w2 : tensor<4096x1024xf32>
  %w3 = loom.get_weight @w3 : tensor<1024x4096xf32>
  %unread = loom.get_weight @w3 : tensor<1024x4096xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<4x1024xf32>, tensor<1024x4096xf32>) -> tensor<4x4096xf32>
  %1 = loom.gelu erf %0 : tensor<4x4096xf32>
  %2 = loom.dot_general %1, %w2 batch = [] x [] contract = [1] x [0] : (tensor<4x4096xf32>, tensor<4096x1024xf32>) -> tensor<4x1024xf32>
  %3 = loom.dot_general %2, %w3 batch = [] x [] contract = [1] x [0] : (tensor<4x1024xf32>, tensor<1024x4096xf32>) -> tensor<4x4096xf32>
  return %3 : tensor<4x4096xf32>
}
