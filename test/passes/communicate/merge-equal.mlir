// RUN: gridloom-opt %s --split-input-file --dist-merge-equal | FileCheck %s

dist.mesh @mesh <["model" = 2]>
// One collective for two readers, with both causes; operations after it are merged too.
// CHECK-LABEL: func.func @two_readers
// CHECK: %[[R:.*]] = dist.all_reduce %arg0 over ["model"] sum {dist.because = "'p' needs the whole; 'q' needs the whole"}
// CHECK-NEXT: %[[E:.*]] = loom.exp %[[R]]
// CHECK-NEXT: return %[[E]], %[[E]]
func.func @two_readers(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum {dist.because = "'p' needs the whole"} : tensor<8xf32>
  %1 = dist.all_reduce %a over ["model"] sum {dist.because = "'q' needs the whole"} : tensor<8xf32>
  %2 = loom.exp %0 : tensor<8xf32>
  %3 = loom.exp %1 : tensor<8xf32>
  return %2, %3 : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @origins
// CHECK: %[[E:.*]] = loom.exp %arg0 {dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<8xf32>
// CHECK-NEXT: return %[[E]], %[[E]]
func.func @origins(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = loom.exp %a {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<8xf32>
  %1 = loom.exp %a {dist.origins = [#dist.origin<"strategy file">], dist.shardings = [#dist.sharding<@mesh, [{}]>]} : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @different
// CHECK: dist.all_reduce %arg0 over ["model"] sum {dist.because = "'p' needs the whole"}
// CHECK: dist.all_reduce %arg0 over ["model"] max {dist.because = "'p' takes the max over what 'model' splits"}
func.func @different(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum {dist.because = "'p' needs the whole"} : tensor<8xf32>
  %1 = dist.all_reduce %a over ["model"] max {dist.because = "'p' takes the max over what 'model' splits"} : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}
