// RUN: gridloom-opt %s --plan-form-attention --mlir-print-local-scope | FileCheck %s

// Heads are expressed as strides, before and after; the scale becomes part of the call.
// CHECK-LABEL: func.func @heads
// CHECK-NEXT: %[[O:.*]] = plan.attention %arg0, %arg1, %arg2
// CHECK-SAME: <sizes = [2, 4, 8, 8, 16, 16], query = [512, 16, 64, 1], key = [512, 16, 64, 1], value = [512, 16, 64, 1],
// CHECK-SAME: out = [512, 16, 64, 1], scale = 2.500000e-01 : f64> : {{.*}} -> tensor<2x8x4x16xf16>
// CHECK-NEXT: loom.reshape %[[O]]
// CHECK-NEXT: return
func.func @heads(%q: tensor<2x8x64xf16>, %k: tensor<2x8x64xf16>, %v: tensor<2x8x64xf16>) -> tensor<2x8x64xf16> {
  %0 = loom.reshape %q : (tensor<2x8x64xf16>) -> tensor<2x8x4x16xf16>
  %1 = loom.transpose %0 [0, 2, 1, 3] : (tensor<2x8x4x16xf16>) -> tensor<2x4x8x16xf16>
  %2 = loom.reshape %k : (tensor<2x8x64xf16>) -> tensor<2x8x4x16xf16>
  %3 = loom.transpose %2 [0, 2, 3, 1] : (tensor<2x8x4x16xf16>) -> tensor<2x4x16x8xf16>
  %4 = loom.reshape %v : (tensor<2x8x64xf16>) -> tensor<2x8x4x16xf16>
  %5 = loom.transpose %4 [0, 2, 1, 3] : (tensor<2x8x4x16xf16>) -> tensor<2x4x8x16xf16>
  %scale = loom.constant dense<0.25> : tensor<2x4x8x8xf16>
  %6 = loom.dot_general %1, %3 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x16xf16>, tensor<2x4x16x8xf16>) -> tensor<2x4x8x8xf16>
  %7 = loom.multiply %6, %scale : tensor<2x4x8x8xf16>
  %8 = loom.softmax %7 dim = 3 : tensor<2x4x8x8xf16>
  %9 = loom.dot_general %8, %5 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x8xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  %10 = loom.transpose %9 [0, 2, 1, 3] : (tensor<2x4x8x16xf16>) -> tensor<2x8x4x16xf16>
  %11 = loom.reshape %10 : (tensor<2x8x4x16xf16>) -> tensor<2x8x64xf16>
  return %11 : tensor<2x8x64xf16>
}

// Transposes that the products have absorbed become strides too.
// CHECK-LABEL: func.func @dims
// CHECK: plan.attention %arg0, %arg1, %arg2 <sizes = [2, 4, 8, 6, 16, 16], query = [512, 16, 64, 1], key = [384, 16, 64, 1], value = [384, 16, 64, 1],
// CHECK-SAME: out = [512, 128, 16, 1], scale = 1.000000e+00 : f64>
func.func @dims(%q: tensor<2x8x4x16xf16>, %k: tensor<2x6x4x16xf16>, %v: tensor<2x6x4x16xf16>) -> tensor<2x4x8x16xf16> {
  %0 = loom.dot_general %q, %k batch = [0, 2] x [0, 2] contract = [3] x [3] : (tensor<2x8x4x16xf16>, tensor<2x6x4x16xf16>) -> tensor<2x4x8x6xf16>
  %1 = loom.softmax %0 dim = 3 : tensor<2x4x8x6xf16>
  %2 = loom.dot_general %1, %v batch = [0, 1] x [0, 2] contract = [3] x [1] : (tensor<2x4x8x6xf16>, tensor<2x6x4x16xf16>) -> tensor<2x4x8x16xf16>
  return %2 : tensor<2x4x8x16xf16>
}

// Scores and their softmax in f32; the mask is broadcast, and masks by a finite number in 16 bits.
// CHECK-LABEL: func.func @mask
// CHECK: %[[FLOOR:.*]] = loom.constant dense<-6.550400e+04> : tensor<2x8xf32>
// CHECK: %[[RAISED:.*]] = loom.maximum %arg3, %[[FLOOR]]
// CHECK: %[[MASK:.*]] = loom.convert %[[RAISED]] : (tensor<2x8xf32>) -> tensor<2x8xf16>
// CHECK: plan.attention %arg0, %arg1, %arg2 mask %[[MASK]] <{{.*}} scale = 5.000000e-01 : f64 mask = [8, 0, 0, 1]>
// CHECK-NEXT: return
func.func @mask(%q: tensor<2x4x8x16xf16>, %k: tensor<2x4x8x16xf16>, %v: tensor<2x4x8x16xf16>, %m: tensor<2x8xf32>) -> tensor<2x4x8x16xf16> {
  %two = loom.constant dense<2.0> : tensor<2x4x8x8xf32>
  %0 = loom.dot_general %q, %k batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x8xf32>
  %1 = loom.divide %0, %two : tensor<2x4x8x8xf32>
  %2 = loom.broadcast %m dims = [0, 3] : (tensor<2x8xf32>) -> tensor<2x4x8x8xf32>
  %3 = loom.add %1, %2 : tensor<2x4x8x8xf32>
  %4 = loom.softmax %3 dim = 3 : tensor<2x4x8x8xf32>
  %5 = loom.convert %4 : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf16>
  %6 = loom.dot_general %5, %v batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x8xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
  return %6 : tensor<2x4x8x16xf16>
}

// The lowest bf16 times log2(e) is infinite in f32, and rows that see nothing would be NaN.
// CHECK-LABEL: func.func @lowest
// CHECK: %[[FLOOR:.*]] = loom.constant dense<-1.00{{.*}}e+30> : tensor<2x8xbf16>
// CHECK: %[[RAISED:.*]] = loom.maximum %arg3, %[[FLOOR]]
// CHECK: plan.attention %arg0, %arg1, %arg2 mask %[[RAISED]]
func.func @lowest(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x4x8x16xbf16>, %v: tensor<2x4x8x16xbf16>, %m: tensor<2x8xbf16>) -> tensor<2x4x8x16xbf16> {
  %0 = loom.dot_general %q, %k batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<2x4x8x16xbf16>, tensor<2x4x8x16xbf16>) -> tensor<2x4x8x8xbf16>
  %1 = loom.broadcast %m dims = [0, 3] : (tensor<2x8xbf16>) -> tensor<2x4x8x8xbf16>
  %2 = loom.add %0, %1 : tensor<2x4x8x8xbf16>
  %3 = loom.softmax %2 dim = 3 : tensor<2x4x8x8xbf16>
  %4 = loom.dot_general %3, %v batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x8xbf16>, tensor<2x4x8x16xbf16>) -> tensor<2x4x8x16xbf16>
  return %4 : tensor<2x4x8x16xbf16>
}

// A triangular mask needs no tensor, nor does a constant choice; other choices become a mask.
// CHECK-LABEL: func.func @hidden
// CHECK: plan.attention %arg0, %arg0, %arg0 <sizes = [1, 2, 3, 3, 8, 8], {{.*}} scale = 5.000000e-01 : f64 causal = true>
// CHECK: plan.attention %arg0, %arg0, %arg0 <sizes = [1, 2, 3, 3, 8, 8], {{.*}} scale = 1.000000e+00 : f64>
// CHECK: %[[HIDES:.*]] = loom.select %arg1, %{{.*}}, %{{.*}} : tensor<3x3xi1>, tensor<3x3xf32>
// CHECK: %[[MASK:.*]] = loom.convert %{{.*}} : (tensor<3x3xf32>) -> tensor<3x3xf16>
// CHECK: plan.attention %arg0, %arg0, %arg0 mask %[[MASK]] <{{.*}} scale = 1.000000e+00 : f64 mask = [0, 0, 3, 1]>
func.func @hidden(%q: tensor<2x3x8xf16>, %seen: tensor<3x3xi1>) -> (tensor<2x3x8xf16>, tensor<2x3x8xf16>, tensor<2x3x8xf16>) {
  %half = loom.constant dense<0.5> : tensor<2x3x3xf16>
  %least = loom.constant dense<-6.550400e+04> : tensor<2x3x3xf16>
  %triangle = loom.constant dense<[[[true, false, false], [true, true, false], [true, true, true]], [[true, false, false], [true, true, false], [true, true, true]]]> : tensor<2x3x3xi1>
  %all = loom.constant dense<true> : tensor<2x3x3xi1>
  %any = loom.broadcast %seen dims = [1, 2] : (tensor<3x3xi1>) -> tensor<2x3x3xi1>
  %0 = loom.dot_general %q, %q batch = [0] x [0] contract = [2] x [2] : (tensor<2x3x8xf16>, tensor<2x3x8xf16>) -> tensor<2x3x3xf16>
  %1 = loom.multiply %0, %half : tensor<2x3x3xf16>
  %2 = loom.select %triangle, %1, %least : tensor<2x3x3xi1>, tensor<2x3x3xf16>
  %3 = loom.softmax %2 dim = 2 : tensor<2x3x3xf16>
  %4 = loom.dot_general %3, %q batch = [0] x [0] contract = [2] x [1] : (tensor<2x3x3xf16>, tensor<2x3x8xf16>) -> tensor<2x3x8xf16>
  %5 = loom.dot_general %q, %q batch = [0] x [0] contract = [2] x [2] : (tensor<2x3x8xf16>, tensor<2x3x8xf16>) -> tensor<2x3x3xf16>
  %6 = loom.select %all, %5, %least : tensor<2x3x3xi1>, tensor<2x3x3xf16>
  %7 = loom.softmax %6 dim = 2 : tensor<2x3x3xf16>
  %8 = loom.dot_general %7, %q batch = [0] x [0] contract = [2] x [1] : (tensor<2x3x3xf16>, tensor<2x3x8xf16>) -> tensor<2x3x8xf16>
  %9 = loom.dot_general %q, %q batch = [0] x [0] contract = [2] x [2] : (tensor<2x3x8xf16>, tensor<2x3x8xf16>) -> tensor<2x3x3xf16>
  %10 = loom.select %any, %9, %least : tensor<2x3x3xi1>, tensor<2x3x3xf16>
  %11 = loom.softmax %10 dim = 2 : tensor<2x3x3xf16>
  %12 = loom.dot_general %11, %q batch = [0] x [0] contract = [2] x [1] : (tensor<2x3x3xf16>, tensor<2x3x8xf16>) -> tensor<2x3x8xf16>
  return %4, %8, %12 : tensor<2x3x8xf16>, tensor<2x3x8xf16>, tensor<2x3x8xf16>
}

// Operands converted to f32 only for the products are passed unconverted.
// CHECK-LABEL: func.func @widened
// CHECK-NEXT: plan.attention %arg0, %arg1, %arg2 <sizes = [1, 2, 8, 4, 16, 8], {{.*}} scale = 1.000000e+00 : f64> : {{.*}} -> tensor<2x8x8xbf16>
// CHECK-NEXT: return
func.func @widened(%q: tensor<2x8x16xbf16>, %k: tensor<2x4x16xbf16>, %v: tensor<2x4x8xbf16>) -> tensor<2x8x8xbf16> {
  %0 = loom.convert %q : (tensor<2x8x16xbf16>) -> tensor<2x8x16xf32>
  %1 = loom.convert %k : (tensor<2x4x16xbf16>) -> tensor<2x4x16xf32>
  %2 = loom.convert %v : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
  %3 = loom.dot_general %0, %1 batch = [0] x [0] contract = [2] x [2] : (tensor<2x8x16xf32>, tensor<2x4x16xf32>) -> tensor<2x8x4xf32>
  %4 = loom.softmax %3 dim = 2 : tensor<2x8x4xf32>
  %5 = loom.dot_general %4, %2 batch = [0] x [0] contract = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x8xf32>) -> tensor<2x8x8xf32>
  %6 = loom.convert %5 : (tensor<2x8x8xf32>) -> tensor<2x8x8xbf16>
  return %6 : tensor<2x8x8xbf16>
}

// f32, a depth of 12, and scores with other readers stay.
// CHECK-LABEL: func.func @stay
// CHECK-NOT: plan.attention
// CHECK: return
func.func @stay(%q: tensor<2x8x16xf32>, %h: tensor<2x8x12xf16>, %x: tensor<2x8x16xf16>) -> (tensor<2x8x16xf32>, tensor<2x8x12xf16>, tensor<2x8x16xf16>, tensor<2x8x8xf16>) {
  %0 = loom.dot_general %q, %q batch = [0] x [0] contract = [2] x [2] : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x8xf32>
  %1 = loom.softmax %0 dim = 2 : tensor<2x8x8xf32>
  %2 = loom.dot_general %1, %q batch = [0] x [0] contract = [2] x [1] : (tensor<2x8x8xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
  %3 = loom.dot_general %h, %h batch = [0] x [0] contract = [2] x [2] : (tensor<2x8x12xf16>, tensor<2x8x12xf16>) -> tensor<2x8x8xf16>
  %4 = loom.softmax %3 dim = 2 : tensor<2x8x8xf16>
  %5 = loom.dot_general %4, %h batch = [0] x [0] contract = [2] x [1] : (tensor<2x8x8xf16>, tensor<2x8x12xf16>) -> tensor<2x8x12xf16>
  %6 = loom.dot_general %x, %x batch = [0] x [0] contract = [2] x [2] : (tensor<2x8x16xf16>, tensor<2x8x16xf16>) -> tensor<2x8x8xf16>
  %7 = loom.softmax %6 dim = 2 : tensor<2x8x8xf16>
  %8 = loom.dot_general %7, %x batch = [0] x [0] contract = [2] x [1] : (tensor<2x8x8xf16>, tensor<2x8x16xf16>) -> tensor<2x8x16xf16>
  return %2, %5, %8, %6 : tensor<2x8x16xf32>, tensor<2x8x12xf16>, tensor<2x8x16xf16>, tensor<2x8x8xf16>
}

// Parts of one product, split into heads, are read in place.
// CHECK-LABEL: func.func @parts
// CHECK-NEXT: %[[X:.*]] = loom.dot_general
// CHECK-DAG: %[[K:.*]] = loom.slice %{{.*}} [16] to [192] by [1] : (tensor<192xbf16>) -> tensor<176xbf16>
// CHECK-DAG: %[[V:.*]] = loom.slice %{{.*}} [32] to [192] by [1] : (tensor<192xbf16>) -> tensor<160xbf16>
// CHECK: plan.attention %[[X]], %[[K]], %[[V]] <sizes = [1, 2, 4, 4, 8, 8], query = [1, 8, 48, 1], key = [1, 8, 48, 1], value = [1, 8, 48, 1], out = [1, 8, 16, 1]
func.func @parts(%x: tensor<4x8xbf16>, %w: tensor<8x48xbf16>) -> tensor<4x2x8xbf16> {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x8xbf16>, tensor<8x48xbf16>) -> tensor<4x48xbf16>
  %1 = loom.slice %0 [0, 0] to [4, 16] by [1, 1] : (tensor<4x48xbf16>) -> tensor<4x16xbf16>
  %2 = loom.slice %0 [0, 16] to [4, 32] by [1, 1] : (tensor<4x48xbf16>) -> tensor<4x16xbf16>
  %3 = loom.slice %0 [0, 32] to [4, 48] by [1, 1] : (tensor<4x48xbf16>) -> tensor<4x16xbf16>
  %4 = loom.reshape %1 : (tensor<4x16xbf16>) -> tensor<4x2x8xbf16>
  %5 = loom.reshape %2 : (tensor<4x16xbf16>) -> tensor<4x2x8xbf16>
  %6 = loom.reshape %3 : (tensor<4x16xbf16>) -> tensor<4x2x8xbf16>
  %7 = loom.dot_general %4, %5 batch = [1] x [1] contract = [2] x [2] : (tensor<4x2x8xbf16>, tensor<4x2x8xbf16>) -> tensor<2x4x4xbf16>
  %8 = loom.softmax %7 dim = 2 : tensor<2x4x4xbf16>
  %9 = loom.dot_general %8, %6 batch = [0] x [1] contract = [2] x [0] : (tensor<2x4x4xbf16>, tensor<4x2x8xbf16>) -> tensor<2x4x8xbf16>
  %10 = loom.transpose %9 [1, 0, 2] : (tensor<2x4x8xbf16>) -> tensor<4x2x8xbf16>
  return %10 : tensor<4x2x8xbf16>
}

// Two heads with shared keys and a query each become two queries of one head, which reads keys in the cache.
// CHECK-LABEL: func.func @shared
// CHECK-NOT: loom.broadcast
// CHECK: plan.attention %arg0, %arg1, %arg2 mask %{{.*}} <sizes = [2, 3, 2, 8, 16, 16], query = [96, 32, 16, 1], key = [384, 128, 16, 1],
// CHECK-SAME: value = [384, 128, 16, 1], out = [96, 32, 16, 1], scale = 1.000000e+00 : f64 mask = [8, 0, 0, 1]>
// CHECK-SAME: -> tensor<2x1x6x16xf16>
// CHECK-LABEL: func.func @more_queries
// CHECK: plan.attention %arg0, %{{.*}}, %{{.*}} <sizes = [2, 6, 4, 8, 16, 16]
func.func @shared(%q: tensor<2x6x1x16xf16>, %k: tensor<2x3x8x16xf16>, %v: tensor<2x3x8x16xf16>, %m: tensor<2x8xf16>) -> tensor<2x1x6x16xf16> {
  %0 = loom.broadcast %k dims = [0, 1, 3, 4] : (tensor<2x3x8x16xf16>) -> tensor<2x3x2x8x16xf16>
  %1 = loom.reshape %0 : (tensor<2x3x2x8x16xf16>) -> tensor<2x6x8x16xf16>
  %2 = loom.broadcast %v dims = [0, 1, 3, 4] : (tensor<2x3x8x16xf16>) -> tensor<2x3x2x8x16xf16>
  %3 = loom.reshape %2 : (tensor<2x3x2x8x16xf16>) -> tensor<2x6x8x16xf16>
  %4 = loom.dot_general %q, %1 batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<2x6x1x16xf16>, tensor<2x6x8x16xf16>) -> tensor<2x6x1x8xf16>
  %5 = loom.broadcast %m dims = [0, 3] : (tensor<2x8xf16>) -> tensor<2x6x1x8xf16>
  %6 = loom.add %4, %5 : tensor<2x6x1x8xf16>
  %7 = loom.softmax %6 dim = 3 : tensor<2x6x1x8xf16>
  %8 = loom.dot_general %7, %3 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x6x1x8xf16>, tensor<2x6x8x16xf16>) -> tensor<2x6x1x16xf16>
  %9 = loom.transpose %8 [0, 2, 1, 3] : (tensor<2x6x1x16xf16>) -> tensor<2x1x6x16xf16>
  return %9 : tensor<2x1x6x16xf16>
}
func.func @more_queries(%q: tensor<2x6x4x16xf16>, %k: tensor<2x3x8x16xf16>) -> tensor<2x6x4x16xf16> {
  %0 = loom.broadcast %k dims = [0, 1, 3, 4] : (tensor<2x3x8x16xf16>) -> tensor<2x3x2x8x16xf16>
  %1 = loom.reshape %0 : (tensor<2x3x2x8x16xf16>) -> tensor<2x6x8x16xf16>
  %2 = loom.dot_general %q, %1 batch = [0, 1] x [0, 1] contract = [3] x [3] : (tensor<2x6x4x16xf16>, tensor<2x6x8x16xf16>) -> tensor<2x6x4x8xf16>
  %3 = loom.softmax %2 dim = 3 : tensor<2x6x4x8xf16>
  %4 = loom.dot_general %3, %1 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x6x4x8xf16>, tensor<2x6x8x16xf16>) -> tensor<2x6x4x16xf16>
  return %4 : tensor<2x6x4x16xf16>
}
