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

// All_gathers of one unit are a group: they start and end together. The cause says how many travel.
// CHECK-LABEL: func.func @unit
// CHECK: %[[F:.*]] = dist.start {
// CHECK-NEXT: %[[A:.*]] = dist.all_gather %arg0
// CHECK-NEXT: %[[B:.*]] = dist.all_gather %arg1
// CHECK-NEXT: dist.yield %[[A]], %[[B]] : tensor<8xf32>, tensor<4xbf16>
// CHECK-NEXT: } {dist.because = "a bucket of 2: 'x' needs the whole; 'y' needs the whole"} : <tensor<8xf32>, tensor<4xbf16>>
// CHECK-NEXT: dist.done %[[F]]
// CHECK-NEXT: dist.start {
// CHECK-NEXT: dist.all_gather %arg2
// CHECK-NEXT: dist.yield
func.func @unit(%a: tensor<4xf32>, %b: tensor<2xbf16>, %c: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xbf16>, tensor<8xf32>) {
  %0 = dist.all_gather %a over ["model"] dim = 0 {dist.because = "'x' needs the whole", dist.gathered = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  %1 = dist.all_gather %b over ["model"] dim = 0 {dist.because = "'y' needs the whole", dist.gathered = 0 : i64} : (tensor<2xbf16>) -> tensor<4xbf16>
  %2 = dist.all_gather %c over ["model"] dim = 0 {dist.because = "'z' needs the whole", dist.gathered = 1 : i64} : (tensor<4xf32>) -> tensor<8xf32>
  return %0, %1, %2 : tensor<8xf32>, tensor<4xbf16>, tensor<8xf32>
}
