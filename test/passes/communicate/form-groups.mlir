// RUN: gridloom-opt %s --dist-form-groups --dist-verify-communicated | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @groups
// CHECK: %[[F:.*]] = dist.start {
// CHECK-NEXT: %[[R:.*]] = dist.all_reduce %{{.*}} over ["model"] sum : tensor<8xf32>
// CHECK-NEXT: dist.yield %[[R]] : tensor<8xf32>
// CHECK-NEXT: } : <tensor<8xf32>>
// CHECK-NEXT: %[[D:.*]] = dist.done %[[F]] : <tensor<8xf32>> -> tensor<8xf32>
// CHECK-NEXT: %[[S:.*]] = dist.start {
// CHECK-NEXT: dist.send %[[D]] to 1 channel 0 : tensor<8xf32>
// CHECK-NEXT: } : <>
// CHECK-NEXT: dist.done %[[S]] : <>
func.func @groups(%a: tensor<8xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  dist.send %0 to 1 channel 0 : tensor<8xf32>
  return
}
