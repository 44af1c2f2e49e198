// RUN: gridloom-opt %s --dist-join-partial-sums | FileCheck %s

dist.mesh @mesh <["model" = 2, "data" = 2]>
// CHECK-LABEL: func.func @two
// CHECK-SAME: (%[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>)
// CHECK: %[[S:.*]] = loom.add %[[A]], %[[B]]
// CHECK: %[[R:.*]] = dist.all_reduce %[[S]] over ["model"] sum
// CHECK-NOT: dist.all_reduce
// CHECK: return %[[R]]
func.func @two(%a: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
  %2 = loom.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// A chain: three sums, one reduction.
// CHECK-LABEL: func.func @chain
// CHECK: loom.add
// CHECK: loom.subtract
// CHECK-COUNT-1: dist.all_reduce
// CHECK-NOT: dist.all_reduce
func.func @chain(%a: tensor<8xf32>, %b: tensor<8xf32>, %c: tensor<8xf32>) -> tensor<8xf32> {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
  %2 = loom.add %0, %1 : tensor<8xf32>
  %3 = dist.all_reduce %c over ["model"] sum : tensor<8xf32>
  %4 = loom.subtract %2, %3 : tensor<8xf32>
  return %4 : tensor<8xf32>
}

// Other axes, another reduction, another use of an operand: nothing changes.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-6: dist.all_reduce
func.func @apart(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %b over ["data"] sum : tensor<8xf32>
  %2 = loom.add %0, %1 : tensor<8xf32>
  %3 = dist.all_reduce %a over ["model"] max : tensor<8xf32>
  %4 = dist.all_reduce %b over ["model"] max : tensor<8xf32>
  %5 = loom.add %3, %4 : tensor<8xf32>
  %6 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %7 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
  %8 = loom.add %6, %7 : tensor<8xf32>
  return %2, %5, %8, %7 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
