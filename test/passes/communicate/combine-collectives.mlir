// RUN: gridloom-opt %s --dist-combine-collectives="threshold=128" | FileCheck %s

dist.mesh @mesh <["model" = 2, "data" = 2]>
// CHECK-LABEL: func.func @independent
// CHECK: dist.all_reduce %{{.*}}, %{{.*}} over ["model"] sum : tensor<8xf32>, tensor<4xf32>
// CHECK-NOT: dist.all_reduce
func.func @independent(%a: tensor<8xf32>, %b: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %b over ["model"] sum : tensor<4xf32>
  return %0, %1 : tensor<8xf32>, tensor<4xf32>
}

// One needs the other; another axis; too large together.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-4: dist.all_reduce %{{[^,]*}} over
func.func @apart(%a: tensor<8xf32>, %b: tensor<30xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<30xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %0 over ["model"] sum : tensor<8xf32>
  %2 = dist.all_reduce %a over ["data"] sum : tensor<8xf32>
  %3 = dist.all_reduce %b over ["data"] sum : tensor<30xf32>
  return %1, %2, %3 : tensor<8xf32>, tensor<8xf32>, tensor<30xf32>
}
