// RUN: gridloom-opt %s --split-input-file --dist-apply-strategy="dp=data tp=model" --dist-assign-stages --dist-propagate --dist-verify-sharded --dist-partition --canonicalize | FileCheck %s

// A column then a row: one all_reduce, nothing else.
dist.mesh @mesh <["data" = 2, "model" = 2]>
loom.weight @w1 : tensor<16x64xf32> from <"", offset = 0, bytes = 4096>
loom.weight @w2 : tensor<64x16xf32> from <"", offset = 4096, bytes = 4096>
loom.weight @b1 : tensor<64xf32> from <"", offset = 8192, bytes = 256>
// CHECK-LABEL: func.func @mlp
// CHECK-SAME: tensor<4x16xf32>
// CHECK-NOT: dist.all_
// CHECK: %[[Y:.*]] = loom.dot_general {{.*}} (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
// CHECK-NEXT: dist.all_reduce %[[Y]] over ["model"] sum
// CHECK-NOT: dist.{{all|reduce|shard}}
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
