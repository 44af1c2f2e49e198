// RUN: gridloom-opt %s --dist-assign-stages | FileCheck %s

// Alone, @main would be cut before its last product, which is the largest, and @main_short after its
// first: the state would be in two stages. So the functions are cut together.
module {
dist.mesh @mesh <["pipe" = 2]>
loom.weight @a : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
loom.weight @b : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
loom.weight @c : tensor<64x64xf32> from <"", offset = 0, bytes = 16384>
loom.weight @d : tensor<64x512xf32> from <"", offset = 0, bytes = 131072>

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg1: tensor<64x64xf32> {dist.stage = [[$OWNER:[01]]] : i64, loom.name = "past", loom.state = "past"}
func.func @main(%x: tensor<64x64xf32> {loom.name = "x"}, %past: tensor<64x64xf32> {loom.name = "past", loom.state = "past"})
    -> (tensor<64x512xf32> {loom.name = "y"}, tensor<64x64xf32> {loom.name = "present", loom.state = "past"}) {
  %a = loom.get_weight @a : tensor<64x64xf32>
  %b = loom.get_weight @b : tensor<64x64xf32>
  %c = loom.get_weight @c : tensor<64x64xf32>
  %d = loom.get_weight @d : tensor<64x512xf32>
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("a")
  %1 = loom.dot_general %0, %b batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("b")
  // CHECK: loom.add %arg1, {{.*}} {dist.stage = [[$OWNER]] : i64}
  %2 = loom.add %past, %1 : tensor<64x64xf32> loc("keep")
  %3 = loom.dot_general %2, %c batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("c")
  %4 = loom.dot_general %3, %d batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x512xf32>) -> tensor<64x512xf32> loc("d")
  return %4, %2 : tensor<64x512xf32>, tensor<64x64xf32>
}

// CHECK-LABEL: func.func @main_short(
// CHECK-SAME: %arg1: tensor<64x64xf32> {dist.stage = [[$OWNER]] : i64
func.func @main_short(%x: tensor<4096x64xf32> {loom.name = "x"}, %past: tensor<64x64xf32> {loom.name = "past", loom.state = "past"})
    -> (tensor<64x512xf32> {loom.name = "y"}, tensor<64x64xf32> {loom.name = "present", loom.state = "past"}) {
  %a = loom.get_weight @a : tensor<64x64xf32>
  %b = loom.get_weight @b : tensor<64x64xf32>
  %c = loom.get_weight @c : tensor<64x64xf32>
  %d = loom.get_weight @d : tensor<64x512xf32>
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4096x64xf32>, tensor<64x64xf32>) -> tensor<4096x64xf32> loc("a")
  %5 = loom.slice %0 [0, 0] to [64, 64] by [1, 1] : (tensor<4096x64xf32>) -> tensor<64x64xf32> loc("cut")
  %1 = loom.dot_general %5, %b batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("b")
  // CHECK: loom.add %arg1, {{.*}} {dist.stage = [[$OWNER]] : i64}
  %2 = loom.add %past, %1 : tensor<64x64xf32> loc("keep")
  %3 = loom.dot_general %2, %c batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("c")
  %4 = loom.dot_general %3, %d batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x512xf32>) -> tensor<64x512xf32> loc("d")
  return %4, %2 : tensor<64x512xf32>, tensor<64x64xf32>
}

// This function only returns the state, and leaves it in the stage of the others.
// CHECK-LABEL: func.func @reset(
// CHECK-SAME: %arg1: tensor<64x64xf32> {dist.stage = [[$OWNER]] : i64
func.func @reset(%x: tensor<64x64xf32> {loom.name = "x"}, %past: tensor<64x64xf32> {loom.name = "past", loom.state = "past"})
    -> (tensor<64x64xf32> {loom.name = "y"}, tensor<64x64xf32> {loom.name = "present", loom.state = "past"}) {
  %a = loom.get_weight @a : tensor<64x64xf32>
  %c = loom.get_weight @c : tensor<64x64xf32>
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("a")
  %3 = loom.dot_general %0, %c batch = [] x [] contract = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("c")
  return %3, %past : tensor<64x64xf32>, tensor<64x64xf32>
}
}
