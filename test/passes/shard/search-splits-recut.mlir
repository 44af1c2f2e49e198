// RUN: gridloom-opt %s --dist-assign-stages | FileCheck %s --check-prefix=UNSPLIT
// RUN: gridloom-opt %s --dist-search-splits="axes=x" | FileCheck %s --check-prefix=SPLIT

// Products are split eight ways, the sum over all elements before each is not: what was half of the
// work is little of what is left.
// UNSPLIT: loom.dot_general {{.*}}dist.stage = 0
// UNSPLIT: loom.dot_general {{.*}}dist.stage = 1
// UNSPLIT: loom.cumulative {{.*}}dist.stage = 1
// SPLIT: loom.dot_general {{.*}}dist.stage = 0
// SPLIT: loom.dot_general {{.*}}dist.stage = 0
// SPLIT: loom.cumulative {{.*}}dist.stage = 1
dist.mesh @mesh <["pipe" = 2, "x" = 8]>
loom.weight @w1 : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
loom.weight @w2 : tensor<1024x1024xf32> from <"", offset = 0, bytes = 4194304>
func.func @main(%x: tensor<1024x1024xf32> {loom.name = "x"}) -> (tensor<1048576xf32> {loom.name = "y"}) {
  %w1 = loom.get_weight @w1 : tensor<1024x1024xf32>
  %w2 = loom.get_weight @w2 : tensor<1024x1024xf32>
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %1 = loom.dot_general %0, %w2 batch = [] x [] contract = [1] x [0] : (tensor<1024x1024xf32>, tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %2 = loom.reshape %1 : (tensor<1024x1024xf32>) -> tensor<1048576xf32>
  %3 = loom.cumulative sum %2 dim = 0 : tensor<1048576xf32>
  return %3 : tensor<1048576xf32>
}
