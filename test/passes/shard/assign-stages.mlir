// RUN: gridloom-opt %s --dist-assign-stages | FileCheck %s

// Both stages get equal work; the weight is in its reader's stage, the constant in both.
dist.mesh @mesh <["pipe" = 2]>
loom.weight @w : tensor<256x256xf32> from <"", offset = 0, bytes = 262144>
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<8x256xf32> {loom.name = "x"}) -> (tensor<8x256xf32> {loom.name = "y"}) {
  // CHECK-DAG: loom.constant dense<2.000000e+00> : tensor<8x256xf32> {dist.stage = 0
  // CHECK-DAG: loom.constant dense<2.000000e+00> : tensor<8x256xf32> {dist.stage = 1
  %c = loom.constant dense<2.0> : tensor<8x256xf32>
  %w = loom.get_weight @w : tensor<256x256xf32>
  // CHECK: loom.dot_general {{.*}}dist.stage = 0
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  // CHECK: loom.multiply {{.*}}dist.stage = 0
  %1 = loom.multiply %0, %c : tensor<8x256xf32>
  // CHECK: loom.dot_general {{.*}}dist.stage = 1
  %2 = loom.dot_general %1, %w batch = [] x [] contract = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  // CHECK: loom.multiply {{.*}}dist.stage = 1
  %3 = loom.multiply %2, %c : tensor<8x256xf32>
  return %3 : tensor<8x256xf32>
}
