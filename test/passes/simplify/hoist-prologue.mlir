// RUN: gridloom-opt %s --loom-hoist-prologue --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// CHECK: loom.weight @positions
// CHECK-NOT: loom.weight @unused
loom.weight @positions : tensor<64x8xf32> from <"", offset = 0, bytes = 2048>
loom.weight @unused : tensor<64x8xf32> from <"", offset = 0, bytes = 2048>
loom.weight @bias : tensor<8xf32> from <"", offset = 2048, bytes = 32>

// CHECK: loom.derived @"/embeddings/Slice" : tensor<16x8xf32> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @positions
// CHECK-NEXT: %[[S:.*]] = loom.slice %[[W]]
// CHECK-NEXT: loom.yield %[[S]]

// CHECK: loom.derived @Mul : tensor<8xf32> {
// CHECK-NEXT: loom.get_weight @bias
// CHECK-NEXT: loom.constant
// CHECK-NEXT: loom.multiply

// The other specialisation has its own derived tensor, and shares the product.
// CHECK: loom.derived @"/embeddings/Slice_0" : tensor<32x8xf32> {

// A value computed from a derived tensor is computed again from weights.
// CHECK: loom.derived @Factor : tensor<8xf32> {
// CHECK: loom.derived @Offset : tensor<8xf32> {
// CHECK-NEXT: loom.get_weight @bias
// CHECK-NEXT: loom.sqrt
// CHECK-NEXT: loom.negate
// CHECK-NOT: loom.derived

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:[^:]*]]:
func.func @main(%x: tensor<16x8xf32>) -> (tensor<16x8xf32>, tensor<1x8xf32>) {
  // CHECK: %[[P:.*]] = loom.get_weight @"/embeddings/Slice" : tensor<16x8xf32> loc("/embeddings/Slice")
  %w = loom.get_weight @positions : tensor<64x8xf32> loc("positions")
  %s = loom.slice %w [0, 0] to [16, 8] by [1, 1] : (tensor<64x8xf32>) -> tensor<16x8xf32> loc("/embeddings/Slice")
  // CHECK: %[[A:.*]] = loom.add %[[X]], %[[P]]
  %0 = loom.add %x, %s : tensor<16x8xf32> loc("Add")
  // Broadcasts stay with their users.
  // CHECK: %[[M:.*]] = loom.get_weight @Mul : tensor<8xf32>
  // CHECK: %[[B:.*]] = loom.broadcast %[[M]]
  // CHECK: loom.add %[[A]], %[[B]]
  %b = loom.get_weight @bias : tensor<8xf32> loc("bias")
  %two = loom.constant dense<2.0> : tensor<8xf32> loc("Constant")
  %m = loom.multiply %b, %two : tensor<8xf32> loc("Mul")
  %r = loom.broadcast %m dims = [1] : (tensor<8xf32>) -> tensor<16x8xf32> loc("Add_1")
  %1 = loom.add %0, %r : tensor<16x8xf32> loc("Add_1")
  // So do reshapes.
  // CHECK: loom.reshape %{{.*}} : (tensor<8xf32>) -> tensor<1x8xf32>
  %2 = loom.reshape %b : (tensor<8xf32>) -> tensor<1x8xf32> loc("Reshape")
  return %1, %2 : tensor<16x8xf32>, tensor<1x8xf32>
}

// CHECK-LABEL: func.func @main_sequence32(
// CHECK: loom.get_weight @"/embeddings/Slice_0" : tensor<32x8xf32>
// CHECK: loom.get_weight @Mul : tensor<8xf32>
func.func @main_sequence32(%x: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %w = loom.get_weight @positions : tensor<64x8xf32> loc("positions")
  %s = loom.slice %w [0, 0] to [32, 8] by [1, 1] : (tensor<64x8xf32>) -> tensor<32x8xf32> loc("/embeddings/Slice")
  %0 = loom.add %x, %s : tensor<32x8xf32> loc("Add")
  %b = loom.get_weight @bias : tensor<8xf32> loc("bias")
  %two = loom.constant dense<2.0> : tensor<8xf32> loc("Constant")
  %m = loom.multiply %b, %two : tensor<8xf32> loc("Mul")
  %r = loom.broadcast %m dims = [1] : (tensor<8xf32>) -> tensor<32x8xf32> loc("Add_1")
  %1 = loom.add %0, %r : tensor<32x8xf32> loc("Add_1")
  return %1 : tensor<32x8xf32>
}

// CHECK-LABEL: func.func @nested(
// CHECK: loom.get_weight @Factor : tensor<8xf32>
// CHECK: loom.get_weight @Offset : tensor<8xf32>
func.func @nested(%x: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %b = loom.get_weight @bias : tensor<8xf32> loc("bias")
  %f = loom.sqrt %b : tensor<8xf32> loc("Factor")
  %o = loom.negate %f : tensor<8xf32> loc("Offset")
  %fr = loom.broadcast %f dims = [1] : (tensor<8xf32>) -> tensor<16x8xf32> loc("Mul")
  %0 = loom.multiply %x, %fr : tensor<16x8xf32> loc("Mul")
  %or = loom.broadcast %o dims = [1] : (tensor<8xf32>) -> tensor<16x8xf32> loc("Add")
  %1 = loom.add %0, %or : tensor<16x8xf32> loc("Add")
  return %1 : tensor<16x8xf32>
}

// The branch that ran them is removed: its bodies and the values that they read go too.
// CHECK-NOT: @orphan
func.func @orphan(%x: tensor<8xf32>) -> tensor<8xf32> attributes {loom.body} {
  %w = loom.get_weight @unused : tensor<64x8xf32> loc("unused")
  %s = loom.slice %w [0, 0] to [1, 8] by [1, 1] : (tensor<64x8xf32>) -> tensor<1x8xf32> loc("Slice")
  %r = loom.reshape %s : (tensor<1x8xf32>) -> tensor<8xf32> loc("Reshape")
  %0 = loom.add %x, %r : tensor<8xf32> loc("Add")
  return %0 : tensor<8xf32>
}
func.func @orphan_inner(%x: tensor<8xf32>) -> tensor<8xf32> attributes {loom.body} {
  return %x : tensor<8xf32>
}

// CHECK-LABEL: func.func @branch(
// CHECK: func.func @used(
func.func @branch(%c: tensor<i1>, %x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = loom.if %c then @used else @used read %x : (tensor<i1>, tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @used(%x: tensor<8xf32>) -> tensor<8xf32> attributes {loom.body} {
  %0 = loom.exp %x : tensor<8xf32> loc("Exp")
  return %0 : tensor<8xf32>
}
