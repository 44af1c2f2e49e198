// RUN: gridloom-opt %s --dist-apply-strategy="microbatches=4" --dist-assign-stages | FileCheck %s --check-prefix=UNSPLIT
// RUN: gridloom-opt %s --dist-apply-strategy="microbatches=4" --dist-search-splits="axes=x" | FileCheck %s --check-prefix=SPLIT

// Products are split over eight devices, a sort is not. Before splitting, three products take as long
// as the sort; after splitting, all of them take less: they move to the other stage.
// UNSPLIT-COUNT-5: loom.dot_general {{.*}}dist.stage = 0
// UNSPLIT-COUNT-3: loom.dot_general {{.*}}dist.stage = 1
// UNSPLIT: loom.argsort {{.*}}dist.stage = 1
// SPLIT-COUNT-8: loom.dot_general {{.*}}dist.stage = 0
// SPLIT: loom.argsort {{.*}}dist.stage = 1
dist.mesh @mesh <["pipe" = 2, "x" = 8]>
loom.weight @w : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
func.func @main(%x: tensor<4x65536x64xf32> {loom.name = "x"}) -> (tensor<4x4194304xi64> {loom.name = "y"}) {
  %w = loom.get_weight @w : tensor<64x64xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %1 = loom.dot_general %0, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %2 = loom.dot_general %1, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %3 = loom.dot_general %2, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %4 = loom.dot_general %3, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %5 = loom.dot_general %4, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %6 = loom.dot_general %5, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %7 = loom.dot_general %6, %w batch = [] x [] contract = [2] x [0] : (tensor<4x65536x64xf32>, tensor<64x64xf32>) -> tensor<4x65536x64xf32>
  %8 = loom.reshape %7 : (tensor<4x65536x64xf32>) -> tensor<4x4194304xf32>
  %9 = loom.argsort %8 dim = 1 : (tensor<4x4194304xf32>) -> tensor<4x4194304xi64>
  return %9 : tensor<4x4194304xi64>
}
