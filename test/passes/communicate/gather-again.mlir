// RUN: gridloom-opt %s --dist-gather-again --canonicalize | FileCheck %s
// RUN: gridloom-opt %s --dist-gather-again="ahead=2" --canonicalize | FileCheck %s --check-prefix=AHEAD

dist.mesh @mesh <["data" = 2]>

// Three parameters of 512 bytes, the first with its copy in another order, forward and backward. The last two are still there when the backward part begins; the first is gathered again,
// and so is what reads it in another order. The bias, of 32 bytes, fits beside them. With two ahead all stay.
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: dist.gather_window = 1088 : i64
// CHECK: %[[W:.*]] = dist.all_gather %arg1 {{.*}}dist.gathered = 0 : i64
// CHECK: %[[T:.*]] = loom.transpose %[[W]] [1, 0]
// CHECK: loom.dot_general %arg0, %[[T]]
// CHECK: dist.all_gather %arg2 {{.*}}dist.gathered = 1 : i64
// CHECK: dist.all_gather %arg3 {{.*}}dist.gathered = 2 : i64
// CHECK: dist.all_gather %arg4 {{.*}}dist.gathered = 3 : i64
// CHECK-NOT: dist.all_gather
// CHECK: %[[W2:.*]] = dist.all_gather %arg1 {{.*}}dist.because = "'first' needs the whole; again, since it was dropped after its last use", dist.gathered = 4 : i64
// CHECK-NEXT: %[[T2:.*]] = loom.transpose %[[W2]] [1, 0]
// CHECK-NEXT: loom.dot_general %{{.*}}, %[[T2]]
// CHECK-NOT: dist.all_gather
// AHEAD-LABEL: func.func @train_step
// AHEAD-SAME: dist.gather_window = 1600 : i64
// AHEAD-COUNT-4: dist.all_gather
// AHEAD-NOT: dist.all_gather
func.func @train_step(%x: tensor<8x8xf32>, %w: tensor<4x8xf32> {loom.role = "parameter", loom.state = "w"}, %b: tensor<4xf32> {loom.role = "parameter", loom.state = "b"},
    %v: tensor<8x8xf32> {loom.role = "parameter", loom.state = "v"}, %u: tensor<8x8xf32> {loom.role = "parameter", loom.state = "u"}) -> tensor<8x8xf32> attributes {loom.entry = "train_step"} {
  %w0 = dist.all_gather %w over ["data"] dim = 0 {dist.because = "'first' needs the whole"} : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %t = loom.transpose %w0 [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = loom.dot_general %x, %t batch = [] x [] contract = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b0 = dist.all_gather %b over ["data"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
  %wide = loom.broadcast %b0 dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>
  %1 = loom.add %0, %wide : tensor<8x8xf32>
  %v0 = dist.all_gather %v over ["data"] dim = 0 : (tensor<8x8xf32>) -> tensor<16x8xf32>
  %2 = loom.dot_general %1, %v0 batch = [] x [] contract = [1] x [1] : (tensor<8x8xf32>, tensor<16x8xf32>) -> tensor<8x16xf32>
  %u0 = dist.all_gather %u over ["data"] dim = 0 : (tensor<8x8xf32>) -> tensor<16x8xf32>
  %3 = loom.dot_general %2, %u0 batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %4 = loom.dot_general %3, %u0 batch = [] x [] contract = [1] x [1] : (tensor<8x8xf32>, tensor<16x8xf32>) -> tensor<8x16xf32>
  %5 = loom.dot_general %4, %v0 batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32>
  %6 = loom.dot_general %5, %t batch = [] x [] contract = [1] x [1] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %6 : tensor<8x8xf32>
}

// What is no parameter is not gathered twice.
// CHECK-LABEL: func.func @activation
// AHEAD-LABEL: func.func @activation
// CHECK-NOT: dist.gather_window
// CHECK: dist.all_gather
// CHECK-NOT: dist.gathered
func.func @activation(%x: tensor<4x8xf32>) -> tensor<8x8xf32> attributes {loom.entry = "main"} {
  %0 = dist.all_gather %x over ["data"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %1 = loom.exp %0 : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
