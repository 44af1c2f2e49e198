// RUN: gridloom-opt %s --dist-combine-collectives="bucket-size=32" | FileCheck %s
// RUN: gridloom-opt %s --dist-combine-collectives="bucket-size=4096" | FileCheck %s --check-prefix=LARGE
// RUN: gridloom-opt %s --dist-combine-collectives | FileCheck %s --check-prefix=NONE

dist.mesh @mesh <["model" = 2, "data" = 2]>

// Gradients are taken in the order in which they are ready, the last layer's first, until a bucket is full: 12 + 20 bytes, then the
// rest. A gradient as large as a bucket stays alone. Each bucket is placed where its last operand is ready.
// CHECK-LABEL: func.func @order
// CHECK: %[[LATE:.*]] = loom.exp %arg0
// CHECK: %[[D2:.*]] = loom.negate %[[LATE]] : tensor<5xf32>
// CHECK-NEXT: %{{.*}}:2 = dist.all_reduce %{{.*}}, %[[D2]] over ["data"] sum {dist.because = "a bucket of 2: 'c' needs the whole; 'b' needs the whole"} : tensor<3xf32>, tensor<5xf32>
// CHECK: %[[D3:.*]] = loom.tanh %[[D2]]
// CHECK: dist.all_reduce %[[D3]] over ["data"] sum {dist.because = "'a' needs the whole"} : tensor<5xf32>
// CHECK: dist.all_reduce %{{[^,]*}} over ["data"] sum {dist.because = "'large' needs the whole"} : tensor<8xf32>
// LARGE-LABEL: func.func @order
// LARGE: dist.all_reduce %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} over ["data"] sum {dist.because = "a bucket of 4: {{.*}}"} : tensor<8xf32>, tensor<3xf32>, tensor<5xf32>, tensor<5xf32>
// LARGE-NOT: dist.all_reduce
// NONE-LABEL: func.func @order
// NONE-COUNT-4: dist.all_reduce %{{[^,]*}} over
func.func @order(%x: tensor<5xf32>, %y: tensor<3xf32>, %z: tensor<8xf32>) -> (tensor<5xf32>, tensor<5xf32>, tensor<3xf32>, tensor<8xf32>) attributes {loom.entry = "train_step"} {
  %late = loom.exp %x : tensor<5xf32>
  %d1 = loom.negate %y : tensor<3xf32>
  %d2 = loom.negate %late : tensor<5xf32>
  %d3 = loom.tanh %d2 : tensor<5xf32>
  %0 = dist.all_reduce %d3 over ["data"] sum {dist.because = "'a' needs the whole"} : tensor<5xf32>
  %a = loom.exp %0 : tensor<5xf32>
  %1 = dist.all_reduce %d2 over ["data"] sum {dist.because = "'b' needs the whole"} : tensor<5xf32>
  %b = loom.exp %1 : tensor<5xf32>
  %2 = dist.all_reduce %d1 over ["data"] sum {dist.because = "'c' needs the whole"} : tensor<3xf32>
  %c = loom.exp %2 : tensor<3xf32>
  %3 = dist.all_reduce %z over ["data"] sum {dist.because = "'large' needs the whole"} : tensor<8xf32>
  %d = loom.exp %3 : tensor<8xf32>
  return %a, %b, %c, %d : tensor<5xf32>, tensor<5xf32>, tensor<3xf32>, tensor<8xf32>
}

// No gradient: a value that another such reduction depends on, e.g. a statistic over the batch.
// LARGE-LABEL: func.func @statistic
// LARGE: dist.all_reduce %{{[^,]*}} over ["data"] sum : tensor<3xf32>
// LARGE: dist.all_reduce %{{.*}}, %{{.*}} over ["data"] sum : tensor<3xf32>, tensor<5xf32>
// LARGE-NOT: dist.all_reduce
func.func @statistic(%x: tensor<5xf32>, %y: tensor<3xf32>) -> (tensor<5xf32>, tensor<3xf32>) attributes {loom.entry = "train_step"} {
  %d1 = loom.negate %x : tensor<5xf32>
  %0 = dist.all_reduce %y over ["data"] sum : tensor<3xf32>
  %d2 = loom.tanh %0 : tensor<3xf32>
  %1 = dist.all_reduce %d1 over ["data"] sum : tensor<5xf32>
  %2 = dist.all_reduce %d2 over ["data"] sum : tensor<3xf32>
  return %1, %2 : tensor<5xf32>, tensor<3xf32>
}

// A bucket has one group, type and reduction.
// LARGE-LABEL: func.func @kinds
// LARGE-COUNT-4: dist.all_reduce %{{[^,]*}} over
func.func @kinds(%x: tensor<5xf32>, %y: tensor<3xf64>) -> (tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<3xf64>) attributes {loom.entry = "train_step"} {
  %0 = dist.all_reduce %x over ["data"] sum : tensor<5xf32>
  %1 = dist.all_reduce %x over ["model"] sum : tensor<5xf32>
  %2 = dist.all_reduce %x over ["data"] max : tensor<5xf32>
  %3 = dist.all_reduce %y over ["data"] sum : tensor<3xf64>
  return %0, %1, %2, %3 : tensor<5xf32>, tensor<5xf32>, tensor<5xf32>, tensor<3xf64>
}

// The first is used before the second is ready.
// LARGE-LABEL: func.func @used
// LARGE-COUNT-2: dist.all_reduce %{{[^,]*}} over
func.func @used(%x: tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>) attributes {loom.entry = "train_step"} {
  %0 = dist.all_reduce %x over ["data"] sum : tensor<128xf32>
  %1 = loom.exp %0 : tensor<128xf32>
  %2 = loom.exp %x : tensor<128xf32>
  %3 = dist.all_reduce %2 over ["data"] sum : tensor<128xf32>
  return %1, %3 : tensor<128xf32>, tensor<128xf32>
}

// Entries that do not train have no gradients.
// LARGE-LABEL: func.func @main
// LARGE-COUNT-2: dist.all_reduce %{{[^,]*}} over
func.func @main(%x: tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>) attributes {loom.entry = "main"} {
  %0 = dist.all_reduce %x over ["data"] sum : tensor<128xf32>
  %1 = loom.exp %0 : tensor<128xf32>
  %2 = loom.exp %x : tensor<128xf32>
  %3 = dist.all_reduce %2 over ["data"] sum : tensor<128xf32>
  return %1, %3 : tensor<128xf32>, tensor<128xf32>
}
