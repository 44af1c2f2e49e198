// RUN: gridloom-opt %s --dist-gather-again --canonicalize | FileCheck %s
// RUN: gridloom-opt %s --dist-gather-again="bucket-size=32" --canonicalize | FileCheck %s
// RUN: gridloom-opt %s --dist-gather-again="ahead=2" --canonicalize | FileCheck %s --check-prefix=AHEAD
// RUN: gridloom-opt %s --dist-gather-again="bucket-size=512" --canonicalize | FileCheck %s --check-prefix=UNITS

dist.mesh @mesh <["data" = 2, "model" = 2]>

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
// The first parameter and its bias, which is used next, are a unit: with both copies of the first 544 bytes, half of the window. A second one
// of 512 bytes has no room in it.
// UNITS-LABEL: func.func @train_step
// UNITS-SAME: dist.gather_window = 1088 : i64
// UNITS: dist.all_gather %arg1 {{.*}}dist.gathered = 0 : i64
// UNITS-NEXT: dist.all_gather %arg2 {{.*}}dist.gathered = 0 : i64
// UNITS: dist.all_gather %arg3 {{.*}}dist.gathered = 1 : i64
// UNITS: dist.all_gather %arg4 {{.*}}dist.gathered = 2 : i64
// UNITS: dist.all_gather %arg1 {{.*}}dist.gathered = 3 : i64
// UNITS-NOT: dist.all_gather
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
// UNITS-LABEL: func.func @activation
// CHECK-NOT: dist.gather_window
// CHECK: dist.all_gather
// CHECK-NOT: dist.gathered
func.func @activation(%x: tensor<4x8xf32>) -> tensor<8x8xf32> attributes {loom.entry = "main"} {
  %0 = dist.all_gather %x over ["data"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %1 = loom.exp %0 : tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}

// Of 512, 320, 256 and 256 bytes the last two would be a unit, but the first two are there for a second use: there is room for one more only.
// CHECK-LABEL: func.func @room
// AHEAD-LABEL: func.func @room
// UNITS-LABEL: func.func @room
// UNITS: dist.all_gather %arg0 {{.*}}dist.gathered = 0 : i64
// UNITS: dist.all_gather %arg1 {{.*}}dist.gathered = 1 : i64
// UNITS: dist.all_gather %arg2 {{.*}}dist.gathered = 2 : i64
// UNITS: loom.tanh
// UNITS: dist.all_gather %arg3 {{.*}}dist.gathered = 3 : i64
// UNITS-NOT: dist.all_gather
func.func @room(%w: tensor<8x8xf32> {loom.role = "parameter", loom.state = "w"}, %v: tensor<5x8xf32> {loom.role = "parameter", loom.state = "v"},
    %u: tensor<4x8xf32> {loom.role = "parameter", loom.state = "u"}, %t: tensor<4x8xf32> {loom.role = "parameter", loom.state = "t"})
    -> (tensor<16x8xf32>, tensor<10x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>, tensor<10x8xf32>, tensor<8x8xf32>) attributes {loom.entry = "main"} {
  %w0 = dist.all_gather %w over ["data"] dim = 0 : (tensor<8x8xf32>) -> tensor<16x8xf32>
  %0 = loom.exp %w0 : tensor<16x8xf32>
  %v0 = dist.all_gather %v over ["data"] dim = 0 : (tensor<5x8xf32>) -> tensor<10x8xf32>
  %1 = loom.exp %v0 : tensor<10x8xf32>
  %u0 = dist.all_gather %u over ["data"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %2 = loom.exp %u0 : tensor<8x8xf32>
  %3 = loom.tanh %w0 : tensor<16x8xf32>
  %4 = loom.tanh %v0 : tensor<10x8xf32>
  %t0 = dist.all_gather %t over ["data"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %5 = loom.exp %t0 : tensor<8x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<16x8xf32>, tensor<10x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>, tensor<10x8xf32>, tensor<8x8xf32>
}

// What makes a later one's shard comes before the unit. One over other devices, and one that is as large as a bucket, travel by themselves.
// CHECK-LABEL: func.func @types
// AHEAD-LABEL: func.func @types
// UNITS-LABEL: func.func @types
// UNITS-NEXT: %[[C:.*]] = loom.convert %arg1
// UNITS-NEXT: dist.all_gather %arg0 {{.*}}dist.gathered = 0 : i64
// UNITS-NEXT: dist.all_gather %[[C]] {{.*}}dist.gathered = 0 : i64
// UNITS-NEXT: loom.exp
// UNITS-NEXT: loom.exp
// UNITS-NEXT: dist.all_gather %arg2 over ["data", "model"] {{.*}}dist.gathered = 1 : i64
// UNITS: dist.all_gather %arg3 {{.*}}dist.gathered = 2 : i64
// UNITS-NOT: dist.all_gather
func.func @types(%w: tensor<4xf32> {loom.role = "parameter", loom.state = "w"}, %v: tensor<4xf32> {loom.role = "parameter", loom.state = "v"},
    %u: tensor<4xf32> {loom.role = "parameter", loom.state = "u"}, %t: tensor<64xf32> {loom.role = "parameter", loom.state = "t"})
    -> (tensor<8xf32>, tensor<8xbf16>, tensor<16xf32>, tensor<128xf32>, tensor<8xf32>) attributes {loom.entry = "main"} {
  %w0 = dist.all_gather %w over ["data"] dim = 0 : (tensor<4xf32>) -> tensor<8xf32>
  %0 = loom.exp %w0 : tensor<8xf32>
  %c = loom.convert %v : (tensor<4xf32>) -> tensor<4xbf16>
  %v0 = dist.all_gather %c over ["data"] dim = 0 : (tensor<4xbf16>) -> tensor<8xbf16>
  %1 = loom.exp %v0 : tensor<8xbf16>
  %u0 = dist.all_gather %u over ["data", "model"] dim = 0 : (tensor<4xf32>) -> tensor<16xf32>
  %2 = loom.exp %u0 : tensor<16xf32>
  %t0 = dist.all_gather %t over ["data"] dim = 0 : (tensor<64xf32>) -> tensor<128xf32>
  %3 = loom.exp %t0 : tensor<128xf32>
  %4 = loom.tanh %w0 : tensor<8xf32>
  return %0, %1, %2, %3, %4 : tensor<8xf32>, tensor<8xbf16>, tensor<16xf32>, tensor<128xf32>, tensor<8xf32>
}
