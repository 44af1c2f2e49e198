// RUN: gridloom-opt %s --loom-canonicalize | FileCheck %s

loom.weight @w : tensor<32x16xf32> from <"", offset = 0, bytes = 2048>

// CHECK-LABEL: func.func @transpose_into_dot
// CHECK: %[[W:.*]] = loom.get_weight @w
// CHECK-NEXT: loom.dot_general %{{.*}}, %[[W]] batch = [] x [] contract = [1] x [1]
func.func @transpose_into_dot(%x: tensor<8x16xf32>) -> tensor<8x32xf32> {
  %w = loom.get_weight @w : tensor<32x16xf32>
  %t = loom.transpose %w [1, 0] : (tensor<32x16xf32>) -> tensor<16x32xf32>
  %y = loom.dot_general %x, %t batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  return %y : tensor<8x32xf32>
}

// CHECK-LABEL: func.func @transpose_into_tf32
// CHECK-NEXT: loom.dot_general %{{.*}}, %{{.*}} batch = [] x [] contract = [1] x [1] tf32
func.func @transpose_into_tf32(%x: tensor<8x16xf32>, %y: tensor<32x16xf32>) -> tensor<8x32xf32> {
  %t = loom.transpose %y [1, 0] : (tensor<32x16xf32>) -> tensor<16x32xf32>
  %z = loom.dot_general %x, %t batch = [] x [] contract = [1] x [0] tf32 : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  return %z : tensor<8x32xf32>
}

// The product would have its free dimensions in another order.
// CHECK-LABEL: func.func @transpose_stays
// CHECK: loom.transpose
func.func @transpose_stays(%x: tensor<8x4x16xf32>, %y: tensor<16x2xf32>) -> tensor<4x8x2xf32> {
  %t = loom.transpose %x [1, 0, 2] : (tensor<8x4x16xf32>) -> tensor<4x8x16xf32>
  %z = loom.dot_general %t, %y batch = [] x [] contract = [2] x [0] : (tensor<4x8x16xf32>, tensor<16x2xf32>) -> tensor<4x8x2xf32>
  return %z : tensor<4x8x2xf32>
}

// Attention's heads become batch dimensions where they are.
// CHECK-LABEL: func.func @heads
// CHECK-NEXT: loom.dot_general %{{.*}}, %{{.*}} batch = [0, 2] x [0, 2] contract = [3] x [3]
func.func @heads(%q: tensor<2x8x4x16xf32>, %k: tensor<2x8x4x16xf32>) -> tensor<2x4x8x8xf32> {
  %0 = loom.transpose %q [0, 2, 1, 3] : (tensor<2x8x4x16xf32>) -> tensor<2x4x8x16xf32>
  %1 = loom.transpose %k [0, 2, 3, 1] : (tensor<2x8x4x16xf32>) -> tensor<2x4x16x8xf32>
  %2 = loom.dot_general %0, %1 batch = [0, 1] x [0, 1] contract = [3] x [2] : (tensor<2x4x8x16xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x8x8xf32>
  return %2 : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func.func @transposes
// CHECK-NEXT: loom.transpose %{{.*}} [2, 0, 1]
// CHECK-NEXT: return
func.func @transposes(%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> {
  %0 = loom.transpose %x [1, 2, 0] : (tensor<2x3x4xf32>) -> tensor<3x4x2xf32>
  %1 = loom.transpose %0 [1, 2, 0] : (tensor<3x4x2xf32>) -> tensor<4x2x3xf32>
  return %1 : tensor<4x2x3xf32>
}

// CHECK-LABEL: func.func @broadcasts
// CHECK-NEXT: loom.broadcast %{{.*}} dims = [2] : (tensor<4xf32>) -> tensor<2x3x4xf32>
// CHECK-NEXT: return
func.func @broadcasts(%x: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %0 = loom.reshape %x : (tensor<4xf32>) -> tensor<1x4xf32>
  %1 = loom.broadcast %0 dims = [0, 1] : (tensor<1x4xf32>) -> tensor<3x4xf32>
  %2 = loom.broadcast %1 dims = [1, 2] : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
  return %2 : tensor<2x3x4xf32>
}

// CHECK-LABEL: func.func @broadcast_of_a_real_reshape
// CHECK-NEXT: loom.reshape
// CHECK-NEXT: loom.broadcast
func.func @broadcast_of_a_real_reshape(%x: tensor<4x2xf32>) -> tensor<3x8xf32> {
  %0 = loom.reshape %x : (tensor<4x2xf32>) -> tensor<8xf32>
  %1 = loom.broadcast %0 dims = [1] : (tensor<8xf32>) -> tensor<3x8xf32>
  return %1 : tensor<3x8xf32>
}

// CHECK-LABEL: func.func @compute_before_broadcast
// CHECK: %[[C:.*]] = loom.convert %{{.*}} : (tensor<2x1xi64>) -> tensor<2x1xf32>
// CHECK: %[[S:.*]] = loom.subtract %{{.*}}, %[[C]] : tensor<2x1xf32>
// CHECK: loom.broadcast %[[S]] dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return
func.func @compute_before_broadcast(%mask: tensor<2x1xi64>) -> tensor<2x8xf32> {
  %one = loom.constant dense<1.0> : tensor<2x8xf32>
  %0 = loom.broadcast %mask dims = [0, 1] : (tensor<2x1xi64>) -> tensor<2x8xi64>
  %1 = loom.convert %0 : (tensor<2x8xi64>) -> tensor<2x8xf32>
  %2 = loom.subtract %one, %1 : tensor<2x8xf32>
  return %2 : tensor<2x8xf32>
}

// Two pipeline stages that add one mask need not exchange the large tensor.
// CHECK-LABEL: func.func @every_user_its_own_broadcast
// CHECK: %[[A:.*]] = loom.broadcast
// CHECK-NEXT: %[[X:.*]] = loom.add %{{.*}}, %[[A]]
// CHECK-NEXT: %[[E:.*]] = loom.exp %[[X]]
// CHECK-NEXT: %[[B:.*]] = loom.broadcast
// CHECK-NEXT: loom.add %[[E]], %[[B]]
func.func @every_user_its_own_broadcast(%x: tensor<8x4xf32>, %m: tensor<4xf32>) -> tensor<8x4xf32> {
  %0 = loom.broadcast %m dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
  %1 = loom.add %x, %0 : tensor<8x4xf32>
  %2 = loom.exp %1 : tensor<8x4xf32>
  %3 = loom.add %2, %0 : tensor<8x4xf32>
  return %3 : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @powers
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>
// CHECK: %[[P2:.*]] = loom.multiply %[[X]], %[[X]]
// CHECK: %[[P3:.*]] = loom.multiply %[[P2]], %[[X]]
// CHECK: %[[A:.*]] = loom.add %[[X]]
// CHECK: %[[I:.*]] = loom.compare eq %[[X]]
// CHECK: %[[S:.*]] = loom.sqrt %[[A]]
// CHECK: %[[R:.*]] = loom.select %[[I]], %{{.*}}, %[[S]]
// CHECK: %[[T:.*]] = loom.rsqrt
// CHECK: %[[Q:.*]] = loom.select %{{.*}}, %{{.*}}, %[[T]]
// CHECK: %[[P4:.*]] = loom.power %[[X]]
// CHECK: return %[[X]], %[[P2]], %[[P3]], %[[R]], %[[Q]], %[[P4]]
func.func @powers(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c1 = loom.constant dense<1.0> : tensor<4xf32>
  %c2 = loom.constant dense<2.0> : tensor<4xf32>
  %c3 = loom.constant dense<3.0> : tensor<4xf32>
  %ch = loom.constant dense<0.5> : tensor<4xf32>
  %cm = loom.constant dense<-0.5> : tensor<4xf32>
  %c4 = loom.constant dense<4.0> : tensor<4xf32>
  %0 = loom.power %x, %c1 : tensor<4xf32>
  %1 = loom.power %x, %c2 : tensor<4xf32>
  %2 = loom.power %x, %c3 : tensor<4xf32>
  %3 = loom.power %x, %ch : tensor<4xf32>
  %4 = loom.power %x, %cm : tensor<4xf32>
  %5 = loom.power %x, %c4 : tensor<4xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// The root of a variance: neither -0 nor -inf can come.
// CHECK-LABEL: func.func @root_of_mean
// CHECK: %[[V:.*]] = loom.add
// CHECK: loom.sqrt %[[V]]
// CHECK-NOT: loom.select
// CHECK: loom.rsqrt %[[V]]
// CHECK: return
func.func @root_of_mean(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %two = loom.constant dense<2.0> : tensor<4x8xf32>
  %n = loom.constant dense<8.0> : tensor<4xf32>
  %epsilon = loom.constant dense<1.0e-05> : tensor<4xf32>
  %half = loom.constant dense<0.5> : tensor<4xf32>
  %minus = loom.constant dense<-0.5> : tensor<4xf32>
  %0 = loom.power %x, %two : tensor<4x8xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<4x8xf32>) -> tensor<4xf32>
  %2 = loom.divide %1, %n : tensor<4xf32>
  %3 = loom.add %2, %epsilon : tensor<4xf32>
  %4 = loom.power %3, %half : tensor<4xf32>
  %5 = loom.power %3, %minus : tensor<4xf32>
  return %4, %5 : tensor<4xf32>, tensor<4xf32>
}

// x + 0 is not x where x is -0.
// CHECK-LABEL: func.func @neutral
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>
// CHECK: %[[A:.*]] = loom.add %[[X]]
// CHECK: return %[[X]], %[[X]], %[[X]], %[[A]]
func.func @neutral(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %one = loom.constant dense<1.0> : tensor<4xf32>
  %zero = loom.constant dense<0.0> : tensor<4xf32>
  %0 = loom.multiply %one, %x : tensor<4xf32>
  %1 = loom.divide %x, %one : tensor<4xf32>
  %2 = loom.subtract %x, %zero : tensor<4xf32>
  %3 = loom.add %x, %zero : tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @nothing_done
// CHECK-SAME: %[[X:.*]]: tensor<4x2xf32>
// CHECK-NEXT: return %[[X]], %[[X]], %[[X]], %[[X]], %[[X]]
func.func @nothing_done(%x: tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
  %0 = loom.slice %x [0, 0] to [4, 2] by [1, 1] : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %1 = loom.concatenate %x dim = 1 : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %2 = loom.convert %x : (tensor<4x2xf32>) -> tensor<4x2xf32>
  %3 = loom.negate %x : tensor<4x2xf32>
  %4 = loom.negate %3 : tensor<4x2xf32>
  %5 = loom.reshape %x : (tensor<4x2xf32>) -> tensor<8xf32>
  %6 = loom.reshape %5 : (tensor<8xf32>) -> tensor<4x2xf32>
  return %0, %1, %2, %4, %6 : tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>
}

// CHECK-LABEL: func.func @select
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>
// CHECK: return %[[X]], %[[Y]]
func.func @select(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %t = loom.constant dense<true> : tensor<4xi1>
  %f = loom.constant dense<false> : tensor<4xi1>
  %0 = loom.select %t, %x, %y : tensor<4xi1>, tensor<4xf32>
  %1 = loom.select %f, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @common
// CHECK-COUNT-1: loom.exp
// CHECK-NOT: loom.exp
func.func @common(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = loom.exp %x : tensor<4xf32>
  %1 = loom.exp %x : tensor<4xf32>
  %2 = loom.add %0, %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Parts without elements add nothing, and would be gathered for nothing.
// CHECK-LABEL: func.func @empty_parts
// CHECK-SAME: (%[[X:.*]]: tensor<4x2xf32>
// CHECK: loom.concatenate %[[X]], %[[X]] dim = 1
func.func @empty_parts(%x: tensor<4x2xf32>, %none: tensor<4x0xf32>) -> tensor<4x4xf32> {
  %0 = loom.concatenate %x, %none, %x dim = 1 : (tensor<4x2xf32>, tensor<4x0xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// Lookups at known places in order are slices; of everything, nothing.
// CHECK-LABEL: func.func @known_places
// CHECK-DAG: %[[K:.*]] = loom.slice %arg0 [1, 0] to [2, 4] by [1, 1] : (tensor<3x4xf32>) -> tensor<1x4xf32>
// CHECK-DAG: %[[R:.*]] = loom.reshape %[[K]] : (tensor<1x4xf32>) -> tensor<4xf32>
// CHECK-DAG: %[[E:.*]] = loom.slice %arg0 [0, 1] to [3, 4] by [1, 2] : (tensor<3x4xf32>) -> tensor<3x2xf32>
// CHECK-DAG: %[[B:.*]] = loom.gather %arg0, %{{.*}} dim = 1 : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2xf32>
// CHECK: return %[[R]], %[[E]], %arg0, %[[B]]
func.func @known_places(%x: tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x2xf32>, tensor<3x4xf32>, tensor<3x2xf32>) {
  %one = loom.constant dense<1> : tensor<i64>
  %odd = loom.constant dense<[1, 3]> : tensor<2xi64>
  %all = loom.constant dense<[0, 1, 2]> : tensor<3xi32>
  %back = loom.constant dense<[3, 1]> : tensor<2xi64>
  %0 = loom.gather %x, %one dim = 0 : (tensor<3x4xf32>, tensor<i64>) -> tensor<4xf32>
  %1 = loom.gather %x, %odd dim = 1 : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  %2 = loom.gather %x, %all dim = 0 : (tensor<3x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  %3 = loom.gather %x, %back dim = 1 : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<3x2xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<3x2xf32>, tensor<3x4xf32>, tensor<3x2xf32>
}

// Where operands change places, so does the one that counts where both are equal.
// CHECK-LABEL: func.func @ties
// CHECK: loom.maximum %arg0, %{{.*}} {loom.ties = "rhs"}
func.func @ties(%x: tensor<3xf32>) -> tensor<3xf32> {
  %c = loom.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %0 = loom.maximum %c, %x {loom.ties = "lhs"} : tensor<3xf32>
  return %0 : tensor<3xf32>
}
