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

// Not combined: one depends on the other, another axis, too large together.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-4: dist.all_reduce %{{[^,]*}} over
func.func @apart(%a: tensor<8xf32>, %b: tensor<30xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<30xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = dist.all_reduce %0 over ["model"] sum : tensor<8xf32>
  %2 = dist.all_reduce %a over ["data"] sum : tensor<8xf32>
  %3 = dist.all_reduce %b over ["data"] sum : tensor<30xf32>
  return %1, %2, %3 : tensor<8xf32>, tensor<8xf32>, tensor<30xf32>
}

// Between two of one group there is one of another: each combines only with its own group.
// CHECK-LABEL: func.func @interleaved
// CHECK-COUNT-2: dist.all_reduce %{{.*}}, %{{.*}} over
// CHECK-NOT: dist.all_reduce
func.func @interleaved(%a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<4xf32>
  %1 = dist.all_reduce %a over ["data"] sum : tensor<4xf32>
  %2 = dist.all_reduce %b over ["model"] sum : tensor<4xf32>
  %3 = dist.all_reduce %b over ["data"] sum : tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The first could travel during the matmul that the second waits for, and is needed right after it.
// CHECK-LABEL: func.func @needed_early
// CHECK: dist.all_reduce %{{[^,]*}} over
// CHECK: loom.dot_general
// CHECK: dist.all_reduce %{{[^,]*}} over
func.func @needed_early(%a: tensor<8xf32>, %x: tensor<8x65536xf32>, %w: tensor<65536x1xf32>) -> (tensor<8xf32>, tensor<8x1xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x65536xf32>, tensor<65536x1xf32>) -> tensor<8x1xf32>
  %2 = dist.all_reduce %1 over ["model"] sum : tensor<8x1xf32>
  %3 = loom.exp %0 : tensor<8xf32>
  %4 = loom.exp %2 : tensor<8x1xf32>
  return %3, %4 : tensor<8xf32>, tensor<8x1xf32>
}

// The same, but the first is needed only after another matmul: waiting costs nothing.
// CHECK-LABEL: func.func @needed_late
// CHECK: loom.dot_general
// CHECK: dist.all_reduce %{{.*}}, %{{.*}} over
// CHECK: loom.dot_general
func.func @needed_late(%a: tensor<8xf32>, %x: tensor<8x65536xf32>, %w: tensor<65536x1xf32>) -> (tensor<8xf32>, tensor<8x1xf32>, tensor<8x1xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
  %1 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x65536xf32>, tensor<65536x1xf32>) -> tensor<8x1xf32>
  %2 = dist.all_reduce %1 over ["model"] sum : tensor<8x1xf32>
  %3 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x65536xf32>, tensor<65536x1xf32>) -> tensor<8x1xf32>
  %4 = loom.exp %0 : tensor<8xf32>
  %5 = loom.exp %2 : tensor<8x1xf32>
  return %4, %5, %3 : tensor<8xf32>, tensor<8x1xf32>, tensor<8x1xf32>
}

// Chunks are sent one by one.
// CHECK-LABEL: func.func @chunks
// CHECK-COUNT-2: dist.all_reduce %{{[^,]*}} over
func.func @chunks(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum {dist.chunk} : tensor<8xf32>
  %1 = dist.all_reduce %b over ["model"] sum {dist.chunk} : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// A combined collective has the causes of all.
// CHECK-LABEL: func.func @causes
// CHECK: dist.all_reduce %{{.*}}, %{{.*}} over ["model"] sum {dist.because = "'p' needs the whole; 'q' needs the whole"}
func.func @causes(%a: tensor<8xf32>, %b: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = dist.all_reduce %a over ["model"] sum {dist.because = "'p' needs the whole"} : tensor<8xf32>
  %1 = dist.all_reduce %b over ["model"] sum {dist.because = "'q' needs the whole"} : tensor<4xf32>
  return %0, %1 : tensor<8xf32>, tensor<4xf32>
}
