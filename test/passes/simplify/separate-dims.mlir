// RUN: gridloom-opt %s --loom-separate-dims --loom-canonicalize | FileCheck %s

// A transpose of keys that goes through batch times heads.
// CHECK-LABEL: func.func @keys
// CHECK-NEXT: %[[T:.*]] = loom.transpose %arg0 [0, 1, 3, 2] : (tensor<2x4x8x16xf32>) -> tensor<2x4x16x8xf32>
// CHECK-NEXT: return %[[T]]
func.func @keys(%k: tensor<2x4x8x16xf32>) -> tensor<2x4x16x8xf32> {
  %0 = loom.reshape %k : (tensor<2x4x8x16xf32>) -> tensor<8x8x16xf32>
  %1 = loom.transpose %0 [0, 2, 1] : (tensor<8x8x16xf32>) -> tensor<8x16x8xf32>
  %2 = loom.reshape %1 : (tensor<8x16x8xf32>) -> tensor<2x4x16x8xf32>
  return %2 : tensor<2x4x16x8xf32>
}

// Attention on batch times heads, and rows times batch for the last product; a mask that is broadcast
// over heads has separate dimensions already.
// CHECK-LABEL: func.func @attention
// CHECK-NOT: tensor<8x8x16xf32>
// CHECK: %[[S:.*]] = loom.dot_general {{.*}} -> tensor<2x4x8x8xf32>
// CHECK: loom.add %[[S]], %{{.*}} : tensor<2x4x8x8xf32>
// CHECK: %[[P:.*]] = loom.softmax %{{.*}} dim = 3 : tensor<2x4x8x8xf32>
// CHECK: loom.dot_general %[[P]], {{.*}} batch = [0, 1] {{.*}} -> tensor<2x4x8x16xf32>
// CHECK: loom.dot_general {{.*}} -> tensor<8x2x64xf32>
// CHECK-NOT: tensor<8x8x8xf32>
// CHECK: return
func.func @attention(%q: tensor<8x2x64xf32>, %k: tensor<8x2x64xf32>, %v: tensor<8x2x64xf32>, %m: tensor<2x8xf32>, %w: tensor<64x64xf32>)
    -> (tensor<8x2x64xf32>, tensor<2x4x8x8xf32>) {
  %0 = loom.reshape %q : (tensor<8x2x64xf32>) -> tensor<8x8x16xf32>
  %1 = loom.reshape %k : (tensor<8x2x64xf32>) -> tensor<8x8x16xf32>
  %2 = loom.reshape %v : (tensor<8x2x64xf32>) -> tensor<8x8x16xf32>
  %c = loom.constant dense<0.25> : tensor<8x8x16xf32>
  %3 = loom.multiply %0, %c : tensor<8x8x16xf32>
  %4 = loom.dot_general %3, %1 batch = [1] x [1] contract = [2] x [2] : (tensor<8x8x16xf32>, tensor<8x8x16xf32>) -> tensor<8x8x8xf32>
  %5 = loom.broadcast %m dims = [0, 3] : (tensor<2x8xf32>) -> tensor<2x4x1x8xf32>
  %6 = loom.reshape %5 : (tensor<2x4x1x8xf32>) -> tensor<8x1x8xf32>
  %7 = loom.broadcast %6 dims = [0, 1, 2] : (tensor<8x1x8xf32>) -> tensor<8x8x8xf32>
  %8 = loom.add %4, %7 : tensor<8x8x8xf32>
  %9 = loom.softmax %8 dim = 2 : tensor<8x8x8xf32>
  %10 = loom.dot_general %9, %2 batch = [0] x [1] contract = [2] x [0] : (tensor<8x8x8xf32>, tensor<8x8x16xf32>) -> tensor<8x8x16xf32>
  %11 = loom.transpose %10 [1, 0, 2] : (tensor<8x8x16xf32>) -> tensor<8x8x16xf32>
  %12 = loom.reshape %11 : (tensor<8x8x16xf32>) -> tensor<16x64xf32>
  %13 = loom.dot_general %12, %w batch = [] x [] contract = [1] x [0] : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
  %14 = loom.reshape %13 : (tensor<16x64xf32>) -> tensor<8x2x64xf32>
  %15 = loom.reshape %9 : (tensor<8x8x8xf32>) -> tensor<2x4x8x8xf32>
  return %14, %15 : tensor<8x2x64xf32>, tensor<2x4x8x8xf32>
}

// Operations along other dimensions; a reader of the merged dimension gets it merged, and nothing is computed twice.
// CHECK-LABEL: func.func @moves
// CHECK: %[[G:.*]] = loom.gather %arg0, %arg1 dim = 2 : (tensor<2x3x8x5xf32>, tensor<6xi64>) -> tensor<2x3x6x5xf32>
// CHECK: %[[L:.*]] = loom.slice %[[G]] [0, 0, 1, 0] to [2, 3, 5, 5] by [1, 1, 2, 1] : (tensor<2x3x6x5xf32>) -> tensor<2x3x2x5xf32>
// CHECK: %[[C:.*]] = loom.concatenate %[[L]], %[[L]] dim = 2 : {{.*}} -> tensor<2x3x4x5xf32>
// CHECK: %[[R:.*]] = loom.reduce sum %[[C]] dims = [2] : {{.*}} -> tensor<2x3x5xf32>
// CHECK: %[[E:.*]] = loom.exp %[[R]] : tensor<2x3x5xf32>
// CHECK: %[[M:.*]] = loom.reshape %[[E]] : (tensor<2x3x5xf32>) -> tensor<6x5xf32>
// CHECK-NOT: loom.exp
// CHECK: return %[[E]], %[[M]]
func.func @moves(%x: tensor<2x3x8x5xf32>, %i: tensor<6xi64>) -> (tensor<2x3x5xf32>, tensor<6x5xf32>) {
  %0 = loom.reshape %x : (tensor<2x3x8x5xf32>) -> tensor<6x8x5xf32>
  %1 = loom.gather %0, %i dim = 1 : (tensor<6x8x5xf32>, tensor<6xi64>) -> tensor<6x6x5xf32>
  %2 = loom.slice %1 [0, 1, 0] to [6, 5, 5] by [1, 2, 1] : (tensor<6x6x5xf32>) -> tensor<6x2x5xf32>
  %3 = loom.concatenate %2, %2 dim = 1 : (tensor<6x2x5xf32>, tensor<6x2x5xf32>) -> tensor<6x4x5xf32>
  %4 = loom.reduce sum %3 dims = [1] : (tensor<6x4x5xf32>) -> tensor<6x5xf32>
  %5 = loom.exp %4 : tensor<6x5xf32>
  %6 = loom.reshape %5 : (tensor<6x5xf32>) -> tensor<2x3x5xf32>
  return %6, %5 : tensor<2x3x5xf32>, tensor<6x5xf32>
}

// Not merged from other dimensions: columns that become heads stay columns, and a softmax over both stays one.
// CHECK-LABEL: func.func @stays
// CHECK-NEXT: loom.dot_general {{.*}} -> tensor<8x64xf32>
// CHECK-NEXT: loom.reshape {{.*}} -> tensor<8x4x16xf32>
// CHECK-NEXT: loom.reshape
// CHECK-NEXT: loom.softmax %{{.*}} dim = 0 : tensor<6xf32>
// CHECK-NEXT: loom.reshape
// CHECK-NEXT: return
func.func @stays(%x: tensor<8x32xf32>, %w: tensor<32x64xf32>, %z: tensor<2x3xf32>) -> (tensor<8x4x16xf32>, tensor<2x3xf32>) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
  %1 = loom.reshape %0 : (tensor<8x64xf32>) -> tensor<8x4x16xf32>
  %2 = loom.reshape %z : (tensor<2x3xf32>) -> tensor<6xf32>
  %3 = loom.softmax %2 dim = 0 : tensor<6xf32>
  %4 = loom.reshape %3 : (tensor<6xf32>) -> tensor<2x3xf32>
  return %1, %4 : tensor<8x4x16xf32>, tensor<2x3xf32>
}
