// RUN: gridloom-opt %s --loom-raise-composites --loom-canonicalize --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// CHECK-LABEL: func.func @gelu_erf
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>
// CHECK-NEXT: loom.gelu erf %[[X]] : tensor<4xf32> loc(fused["Mul", "Div", "Erf", "Add", "Mul_1"])
// CHECK-NEXT: return
func.func @gelu_erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  %sqrt2 = loom.constant dense<1.41421354> : tensor<4xf32>
  %one = loom.constant dense<1.0> : tensor<4xf32>
  %half = loom.constant dense<0.5> : tensor<4xf32>
  %0 = loom.divide %x, %sqrt2 : tensor<4xf32> loc("Div")
  %1 = loom.erf %0 : tensor<4xf32> loc("Erf")
  %2 = loom.add %1, %one : tensor<4xf32> loc("Add")
  %3 = loom.multiply %x, %2 : tensor<4xf32> loc("Mul_1")
  %4 = loom.multiply %3, %half : tensor<4xf32> loc("Mul")
  return %4 : tensor<4xf32>
}

// In another order: x (0.5 + 0.5 erf(0.7071 x)).
// CHECK-LABEL: func.func @gelu_erf_sum
// CHECK-NEXT: loom.gelu erf
func.func @gelu_erf_sum(%x: tensor<4xf32>) -> tensor<4xf32> {
  %scale = loom.constant dense<0.707106769> : tensor<4xf32>
  %half = loom.constant dense<0.5> : tensor<4xf32>
  %0 = loom.multiply %scale, %x : tensor<4xf32>
  %1 = loom.erf %0 : tensor<4xf32>
  %2 = loom.multiply %half, %1 : tensor<4xf32>
  %3 = loom.add %half, %2 : tensor<4xf32>
  %4 = loom.multiply %3, %x : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: func.func @gelu_tanh
// CHECK-SAME: %[[X:[^:]*]]: tensor<4xf32>
// CHECK-NEXT: loom.gelu tanh %[[X]]
// CHECK-NEXT: return
func.func @gelu_tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = loom.constant dense<0.044715> : tensor<4xf32>
  %s = loom.constant dense<0.797884583> : tensor<4xf32>
  %one = loom.constant dense<1.0> : tensor<4xf32>
  %half = loom.constant dense<0.5> : tensor<4xf32>
  %0 = loom.multiply %x, %x : tensor<4xf32>
  %1 = loom.multiply %0, %x : tensor<4xf32>
  %2 = loom.multiply %c, %1 : tensor<4xf32>
  %3 = loom.add %x, %2 : tensor<4xf32>
  %4 = loom.multiply %s, %3 : tensor<4xf32>
  %5 = loom.tanh %4 : tensor<4xf32>
  %6 = loom.add %one, %5 : tensor<4xf32>
  %7 = loom.multiply %half, %x : tensor<4xf32>
  %8 = loom.multiply %7, %6 : tensor<4xf32>
  return %8 : tensor<4xf32>
}

// The scale of the argument is not GELU's.
// CHECK-LABEL: func.func @not_gelu
// CHECK-NOT: loom.gelu
// CHECK: return
func.func @not_gelu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %scale = loom.constant dense<0.7071> : tensor<4xf32>
  %one = loom.constant dense<1.0> : tensor<4xf32>
  %half = loom.constant dense<0.5> : tensor<4xf32>
  %0 = loom.multiply %x, %scale : tensor<4xf32>
  %1 = loom.erf %0 : tensor<4xf32>
  %2 = loom.add %1, %one : tensor<4xf32>
  %3 = loom.multiply %x, %2 : tensor<4xf32>
  %4 = loom.multiply %3, %half : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: func.func @softmax
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x4xf32>
// CHECK-NEXT: loom.softmax %[[X]] dim = 1
// CHECK-NEXT: return
func.func @softmax(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = loom.reduce max %x dims = [1] : (tensor<2x4xf32>) -> tensor<2xf32>
  %1 = loom.reshape %0 : (tensor<2xf32>) -> tensor<2x1xf32>
  %2 = loom.broadcast %1 dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x4xf32>
  %3 = loom.subtract %x, %2 : tensor<2x4xf32>
  %4 = loom.exp %3 : tensor<2x4xf32>
  %5 = loom.reduce sum %4 dims = [1] : (tensor<2x4xf32>) -> tensor<2xf32>
  %6 = loom.broadcast %5 dims = [0] : (tensor<2xf32>) -> tensor<2x4xf32>
  %7 = loom.divide %4, %6 : tensor<2x4xf32>
  return %7 : tensor<2x4xf32>
}

// Sums of 16-bit floats are computed in f32.
// CHECK-LABEL: func.func @softmax_of_16_bits
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x4xf16>
// CHECK-NEXT: loom.softmax %[[X]] dim = 1
// CHECK-NEXT: return
func.func @softmax_of_16_bits(%x: tensor<2x4xf16>) -> tensor<2x4xf16> {
  %0 = loom.exp %x : tensor<2x4xf16>
  %1 = loom.convert %0 : (tensor<2x4xf16>) -> tensor<2x4xf32>
  %2 = loom.reduce sum %1 dims = [1] : (tensor<2x4xf32>) -> tensor<2xf32>
  %3 = loom.convert %2 : (tensor<2xf32>) -> tensor<2xf16>
  %4 = loom.broadcast %3 dims = [0] : (tensor<2xf16>) -> tensor<2x4xf16>
  %5 = loom.divide %0, %4 : tensor<2x4xf16>
  return %5 : tensor<2x4xf16>
}

// The sum is broadcast along the wrong dimension, which a square shape hides.
// CHECK-LABEL: func.func @not_softmax
// CHECK-NOT: loom.softmax
// CHECK: return
func.func @not_softmax(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = loom.exp %x : tensor<4x4xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<4x4xf32>) -> tensor<4xf32>
  %2 = loom.broadcast %1 dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %3 = loom.divide %0, %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @layer_norm
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[S:[^:]*]]: tensor<4xf32>{{.*}}, %[[B:[^:]*]]: tensor<4xf32>
// CHECK-NEXT: loom.layer_norm %[[X]], %[[S]], %[[B]] epsilon = {{.*}} loc(fused["Add_1"
// CHECK-NEXT: return
func.func @layer_norm(%x: tensor<2x3x4xf32>, %scale: tensor<4xf32>, %bias: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %n = loom.constant dense<4.0> : tensor<2x3x1xf32>
  %e = loom.constant dense<1.0e-5> : tensor<2x3x1xf32>
  %0 = loom.reduce sum %x dims = [2] : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %1 = loom.reshape %0 : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
  %2 = loom.divide %1, %n : tensor<2x3x1xf32>
  %3 = loom.broadcast %2 dims = [0, 1, 2] : (tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
  %4 = loom.subtract %x, %3 : tensor<2x3x4xf32>
  %5 = loom.multiply %4, %4 : tensor<2x3x4xf32>
  %6 = loom.reduce sum %5 dims = [2] : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %7 = loom.reshape %6 : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
  %8 = loom.divide %7, %n : tensor<2x3x1xf32>
  %9 = loom.add %8, %e : tensor<2x3x1xf32>
  %10 = loom.sqrt %9 : tensor<2x3x1xf32>
  %11 = loom.broadcast %10 dims = [0, 1, 2] : (tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
  %12 = loom.divide %4, %11 : tensor<2x3x4xf32>
  %13 = loom.broadcast %scale dims = [2] : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %14 = loom.multiply %12, %13 : tensor<2x3x4xf32>
  %15 = loom.broadcast %bias dims = [2] : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %16 = loom.add %14, %15 : tensor<2x3x4xf32> loc("Add_1")
  return %16 : tensor<2x3x4xf32>
}

// Without scale and bias, and with a reciprocal square root.
// CHECK-LABEL: func.func @layer_norm_plain
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4xf32>
// CHECK: %[[S:.*]] = loom.constant dense<1.000000e+00> : tensor<4xf32>
// CHECK: loom.layer_norm %[[X]], %[[S]] epsilon
func.func @layer_norm_plain(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %n = loom.constant dense<0.25> : tensor<8xf32>
  %e = loom.constant dense<1.0e-5> : tensor<8xf32>
  %0 = loom.reduce sum %x dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %1 = loom.multiply %0, %n : tensor<8xf32>
  %2 = loom.broadcast %1 dims = [0] : (tensor<8xf32>) -> tensor<8x4xf32>
  %3 = loom.subtract %x, %2 : tensor<8x4xf32>
  %4 = loom.multiply %3, %3 : tensor<8x4xf32>
  %5 = loom.reduce sum %4 dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %6 = loom.multiply %5, %n : tensor<8xf32>
  %7 = loom.add %6, %e : tensor<8xf32>
  %8 = loom.rsqrt %7 : tensor<8xf32>
  %9 = loom.broadcast %8 dims = [0] : (tensor<8xf32>) -> tensor<8x4xf32>
  %10 = loom.multiply %3, %9 : tensor<8x4xf32>
  return %10 : tensor<8x4xf32>
}

// Means of 16-bit floats are computed in f32.
// CHECK-LABEL: func.func @layer_norm_of_16_bits
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4xf16>
// CHECK: %[[S:.*]] = loom.constant dense<1.000000e+00> : tensor<4xf16>
// CHECK-NEXT: loom.layer_norm %[[X]], %[[S]] epsilon
// CHECK-NEXT: return
func.func @layer_norm_of_16_bits(%x: tensor<8x4xf16>) -> tensor<8x4xf16> {
  %n = loom.constant dense<4.0> : tensor<8xf32>
  %e = loom.constant dense<1.0e-3> : tensor<8xf16>
  %0 = loom.convert %x : (tensor<8x4xf16>) -> tensor<8x4xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %2 = loom.divide %1, %n : tensor<8xf32>
  %3 = loom.convert %2 : (tensor<8xf32>) -> tensor<8xf16>
  %4 = loom.broadcast %3 dims = [0] : (tensor<8xf16>) -> tensor<8x4xf16>
  %5 = loom.subtract %x, %4 : tensor<8x4xf16>
  %6 = loom.multiply %5, %5 : tensor<8x4xf16>
  %7 = loom.convert %6 : (tensor<8x4xf16>) -> tensor<8x4xf32>
  %8 = loom.reduce sum %7 dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %9 = loom.divide %8, %n : tensor<8xf32>
  %10 = loom.convert %9 : (tensor<8xf32>) -> tensor<8xf16>
  %11 = loom.add %10, %e : tensor<8xf16>
  %12 = loom.sqrt %11 : tensor<8xf16>
  %13 = loom.broadcast %12 dims = [0] : (tensor<8xf16>) -> tensor<8x4xf16>
  %14 = loom.divide %5, %13 : tensor<8x4xf16>
  return %14 : tensor<8x4xf16>
}

// Means that are written as sums and quotients of 16 bits.
// CHECK-LABEL: func.func @rms_norm_of_16_bit_sums
// CHECK-SAME: %[[X:[^:]*]]: tensor<8x4xf16>
// CHECK: loom.rms_norm %[[X]]
// CHECK-NEXT: return
func.func @rms_norm_of_16_bit_sums(%x: tensor<8x4xf16>) -> tensor<8x4xf16> {
  %n = loom.constant dense<4.0> : tensor<8xf16>
  %e = loom.constant dense<1.0e-3> : tensor<8xf16>
  %0 = loom.multiply %x, %x : tensor<8x4xf16>
  %1 = loom.convert %0 : (tensor<8x4xf16>) -> tensor<8x4xf32>
  %2 = loom.reduce sum %1 dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %3 = loom.convert %2 : (tensor<8xf32>) -> tensor<8xf16>
  %4 = loom.divide %3, %n : tensor<8xf16>
  %5 = loom.add %4, %e : tensor<8xf16>
  %6 = loom.sqrt %5 : tensor<8xf16>
  %7 = loom.broadcast %6 dims = [0] : (tensor<8xf16>) -> tensor<8x4xf16>
  %8 = loom.divide %x, %7 : tensor<8x4xf16>
  return %8 : tensor<8x4xf16>
}

// In the form of Llama's exporters: the square by pow or multiply, a reciprocal, the weight first.
// CHECK-LABEL: func.func @rms_norm
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[S:[^:]*]]: tensor<4xf32>
// CHECK-NEXT: loom.rms_norm %[[X]], %[[S]] epsilon = {{.*}} loc(fused["Mul_1"
// CHECK-NEXT: return
func.func @rms_norm(%x: tensor<2x3x4xf32>, %scale: tensor<4xf32>) -> tensor<2x3x4xf32> {
  %n = loom.constant dense<4.0> : tensor<2x3x1xf32>
  %e = loom.constant dense<1.0e-5> : tensor<2x3x1xf32>
  %one = loom.constant dense<1.0> : tensor<2x3x1xf32>
  %0 = loom.multiply %x, %x : tensor<2x3x4xf32>
  %1 = loom.reduce sum %0 dims = [2] : (tensor<2x3x4xf32>) -> tensor<2x3xf32>
  %2 = loom.reshape %1 : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
  %3 = loom.divide %2, %n : tensor<2x3x1xf32>
  %4 = loom.add %3, %e : tensor<2x3x1xf32>
  %5 = loom.sqrt %4 : tensor<2x3x1xf32>
  %6 = loom.divide %one, %5 : tensor<2x3x1xf32>
  %7 = loom.broadcast %6 dims = [0, 1, 2] : (tensor<2x3x1xf32>) -> tensor<2x3x4xf32>
  %8 = loom.multiply %x, %7 : tensor<2x3x4xf32>
  %9 = loom.broadcast %scale dims = [2] : (tensor<4xf32>) -> tensor<2x3x4xf32>
  %10 = loom.multiply %9, %8 : tensor<2x3x4xf32> loc("Mul_1")
  return %10 : tensor<2x3x4xf32>
}

// The squares are of a different value.
// CHECK-LABEL: func.func @not_rms_norm
// CHECK-NOT: loom.rms_norm
// CHECK: return
func.func @not_rms_norm(%x: tensor<8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %n = loom.constant dense<0.25> : tensor<8xf32>
  %e = loom.constant dense<1.0e-5> : tensor<8xf32>
  %0 = loom.multiply %x, %y : tensor<8x4xf32>
  %1 = loom.reduce sum %0 dims = [1] : (tensor<8x4xf32>) -> tensor<8xf32>
  %2 = loom.multiply %1, %n : tensor<8xf32>
  %3 = loom.add %2, %e : tensor<8xf32>
  %4 = loom.rsqrt %3 : tensor<8xf32>
  %5 = loom.broadcast %4 dims = [0] : (tensor<8xf32>) -> tensor<8x4xf32>
  %6 = loom.multiply %x, %5 : tensor<8x4xf32>
  return %6 : tensor<8x4xf32>
}

// The mean is over another dimension than the variance: only the mean of squares matches.
// CHECK-LABEL: func.func @not_layer_norm
// CHECK-NOT: loom.layer_norm
// CHECK: loom.rms_norm
// CHECK: return
func.func @not_layer_norm(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %n = loom.constant dense<4.0> : tensor<4xf32>
  %e = loom.constant dense<1.0e-5> : tensor<4xf32>
  %0 = loom.reduce sum %x dims = [0] : (tensor<4x4xf32>) -> tensor<4xf32>
  %1 = loom.divide %0, %n : tensor<4xf32>
  %2 = loom.broadcast %1 dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %3 = loom.subtract %x, %2 : tensor<4x4xf32>
  %4 = loom.multiply %3, %3 : tensor<4x4xf32>
  %5 = loom.reduce sum %4 dims = [1] : (tensor<4x4xf32>) -> tensor<4xf32>
  %6 = loom.divide %5, %n : tensor<4xf32>
  %7 = loom.add %6, %e : tensor<4xf32>
  %8 = loom.sqrt %7 : tensor<4xf32>
  %9 = loom.broadcast %8 dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %10 = loom.divide %3, %9 : tensor<4x4xf32>
  return %10 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @divisions
// CHECK: %[[C:.*]] = loom.constant dense<1.250000e-01>
// CHECK: loom.multiply %{{.*}}, %[[C]]
// CHECK: loom.divide
// CHECK: loom.divide
func.func @divisions(%x: tensor<4xf32>, %i: tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi64>) {
  %c8 = loom.constant dense<8.0> : tensor<4xf32>
  %c6 = loom.constant dense<6.0> : tensor<4xf32>
  %i8 = loom.constant dense<8> : tensor<4xi64>
  %0 = loom.divide %x, %c8 : tensor<4xf32>
  %1 = loom.divide %x, %c6 : tensor<4xf32>
  %2 = loom.divide %i, %i8 : tensor<4xi64>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xi64>
}

// A cache's new rows, selected for every position: only they are written.
// CHECK-LABEL: func.func @update(
// CHECK-SAME: %[[PAST:[^:]*]]: tensor<2x8x4xf32>{{.*}}, %[[NEW:[^:]*]]: tensor<2x3x4xf32>{{.*}}, %[[AT:[^:]*]]: tensor<1xi64>
// CHECK-DAG: %[[STEPS:.*]] = loom.constant dense<[0, 1, 2]> : tensor<3xi64>
// CHECK-DAG: %[[START:.*]] = loom.broadcast %[[AT]] dims = [0] : (tensor<1xi64>) -> tensor<3xi64>
// CHECK: %[[PLACES:.*]] = loom.add %{{.*}}, %{{.*}} : tensor<3xi64>
// CHECK-NEXT: %[[R:.*]] = loom.scatter %[[PAST]], %[[PLACES]], %[[NEW]] dim = 1
// CHECK-NEXT: return %[[R]]
func.func @update(%past: tensor<2x8x4xf32>, %new: tensor<2x3x4xf32>, %at: tensor<1xi64>) -> tensor<2x8x4xf32> {
  %slots = loom.constant dense<[0, 1, 2, 3, 4, 5, 6, 7]> : tensor<8xi64>
  %begin = loom.broadcast %at dims = [0] : (tensor<1xi64>) -> tensor<8xi64>
  %source = loom.subtract %slots, %begin : tensor<8xi64>
  %zero = loom.constant dense<0> : tensor<8xi64>
  %two = loom.constant dense<2> : tensor<8xi64>
  %three = loom.constant dense<3> : tensor<8xi64>
  %low = loom.compare ge %source, %zero : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %high = loom.compare lt %source, %three : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %fresh = loom.and %low, %high : tensor<8xi1>
  %max = loom.maximum %source, %zero : tensor<8xi64>
  %row = loom.minimum %max, %two : tensor<8xi64>
  // The negative index of a Gather counts from the end.
  %end = loom.add %row, %three : tensor<8xi64>
  %negative = loom.compare lt %row, %zero : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %index = loom.select %negative, %end, %row : tensor<8xi1>, tensor<8xi64>
  %taken = loom.gather %new, %index dim = 1 : (tensor<2x3x4xf32>, tensor<8xi64>) -> tensor<2x8x4xf32>
  %where = loom.broadcast %fresh dims = [1] : (tensor<8xi1>) -> tensor<2x8x4xi1>
  %r = loom.select %where, %taken, %past : tensor<2x8x4xi1>, tensor<2x8x4xf32>
  return %r : tensor<2x8x4xf32>
}

// Comparisons with swapped operands, and a single row that is written at one position.
// CHECK-LABEL: func.func @one_row(
// CHECK: %[[ROW:.*]] = loom.reshape %{{.*}} : (tensor<4xf32>) -> tensor<1x4xf32>
// CHECK: loom.scatter %{{.*}}, %{{.*}}, %[[ROW]] dim = 0 : (tensor<8x4xf32>, tensor<1xi64>, tensor<1x4xf32>) -> tensor<8x4xf32>
func.func @one_row(%past: tensor<8x4xf32>, %new: tensor<4xf32>, %at: tensor<i64>) -> tensor<8x4xf32> {
  %slots = loom.iota dim = 0 : tensor<8xi64>
  %begin = loom.broadcast %at dims = [] : (tensor<i64>) -> tensor<8xi64>
  %fresh = loom.compare eq %begin, %slots : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %where = loom.broadcast %fresh dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
  %all = loom.broadcast %new dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
  %r = loom.select %where, %all, %past : tensor<8x4xi1>, tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// CHECK-LABEL: func.func @bounds_apart(
// CHECK: loom.scatter {{.*}} dim = 0 : (tensor<8x4xf32>, tensor<2xi64>, tensor<2x4xf32>) -> tensor<8x4xf32>
func.func @bounds_apart(%past: tensor<8x4xf32>, %new: tensor<2x4xf32>, %at: tensor<1xi64>) -> tensor<8x4xf32> {
  %slots = loom.iota dim = 0 : tensor<8xi64>
  %one = loom.constant dense<1> : tensor<1xi64>
  %last = loom.add %at, %one : tensor<1xi64>
  %begin = loom.broadcast %at dims = [0] : (tensor<1xi64>) -> tensor<8xi64>
  %end = loom.broadcast %last dims = [0] : (tensor<1xi64>) -> tensor<8xi64>
  %low = loom.compare le %begin, %slots : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %high = loom.compare le %slots, %end : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %fresh = loom.and %low, %high : tensor<8xi1>
  %index = loom.subtract %slots, %begin : tensor<8xi64>
  %taken = loom.gather %new, %index dim = 0 : (tensor<2x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  %where = loom.broadcast %fresh dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
  %r = loom.select %where, %taken, %past : tensor<8x4xi1>, tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// A scatter does not take 16-bit positions, and a position beyond 32 bits cannot be expressed in theirs.
// CHECK-LABEL: func.func @narrow_positions(
// CHECK-NOT: loom.scatter
// CHECK: return
func.func @narrow_positions(%past: tensor<8x4xf32>, %new: tensor<4xf32>, %at: tensor<i16>, %from: tensor<i32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %slots = loom.iota dim = 0 : tensor<8xi16>
  %begin = loom.broadcast %at dims = [] : (tensor<i16>) -> tensor<8xi16>
  %fresh = loom.compare eq %begin, %slots : (tensor<8xi16>, tensor<8xi16>) -> tensor<8xi1>
  %where = loom.broadcast %fresh dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
  %all = loom.broadcast %new dims = [1] : (tensor<4xf32>) -> tensor<8x4xf32>
  %r = loom.select %where, %all, %past : tensor<8x4xi1>, tensor<8x4xf32>

  %places = loom.iota dim = 0 : tensor<8xi32>
  %start = loom.broadcast %from dims = [] : (tensor<i32>) -> tensor<8xi32>
  %most = loom.constant dense<2147483647> : tensor<8xi32>
  %far = loom.add %start, %most : tensor<8xi32>
  %farther = loom.add %far, %most : tensor<8xi32>
  %there = loom.compare eq %farther, %places : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
  %at_there = loom.broadcast %there dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
  %s = loom.select %at_there, %all, %past : tensor<8x4xi1>, tensor<8x4xf32>
  return %r, %s : tensor<8x4xf32>, tensor<8x4xf32>
}

// An index with 2^40 paths has only 80 values.
// CHECK-LABEL: func.func @shared_values(
// CHECK: loom.scatter {{.*}} dim = 0 : (tensor<8x4xf32>, tensor<2xi64>, tensor<2x4xf32>) -> tensor<8x4xf32>
func.func @shared_values(%past: tensor<8x4xf32>, %new: tensor<2x4xf32>, %at: tensor<1xi64>) -> tensor<8x4xf32> {
  %slots = loom.iota dim = 0 : tensor<8xi64>
  %begin = loom.broadcast %at dims = [0] : (tensor<1xi64>) -> tensor<8xi64>
  %source = loom.subtract %slots, %begin : tensor<8xi64>
  %zero = loom.constant dense<0> : tensor<8xi64>
  %one = loom.constant dense<1> : tensor<8xi64>
  %low = loom.compare ge %source, %zero : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %high = loom.compare le %source, %one : (tensor<8xi64>, tensor<8xi64>) -> tensor<8xi1>
  %fresh = loom.and %low, %high : tensor<8xi1>
  %m0 = loom.maximum %source, %zero : tensor<8xi64>
  %n0 = loom.minimum %source, %zero : tensor<8xi64>
  %m1 = loom.maximum %m0, %n0 : tensor<8xi64>
  %n1 = loom.minimum %m0, %n0 : tensor<8xi64>
  %m2 = loom.maximum %m1, %n1 : tensor<8xi64>
  %n2 = loom.minimum %m1, %n1 : tensor<8xi64>
  %m3 = loom.maximum %m2, %n2 : tensor<8xi64>
  %n3 = loom.minimum %m2, %n2 : tensor<8xi64>
  %m4 = loom.maximum %m3, %n3 : tensor<8xi64>
  %n4 = loom.minimum %m3, %n3 : tensor<8xi64>
  %m5 = loom.maximum %m4, %n4 : tensor<8xi64>
  %n5 = loom.minimum %m4, %n4 : tensor<8xi64>
  %m6 = loom.maximum %m5, %n5 : tensor<8xi64>
  %n6 = loom.minimum %m5, %n5 : tensor<8xi64>
  %m7 = loom.maximum %m6, %n6 : tensor<8xi64>
  %n7 = loom.minimum %m6, %n6 : tensor<8xi64>
  %m8 = loom.maximum %m7, %n7 : tensor<8xi64>
  %n8 = loom.minimum %m7, %n7 : tensor<8xi64>
  %m9 = loom.maximum %m8, %n8 : tensor<8xi64>
  %n9 = loom.minimum %m8, %n8 : tensor<8xi64>
  %m10 = loom.maximum %m9, %n9 : tensor<8xi64>
  %n10 = loom.minimum %m9, %n9 : tensor<8xi64>
  %m11 = loom.maximum %m10, %n10 : tensor<8xi64>
  %n11 = loom.minimum %m10, %n10 : tensor<8xi64>
  %m12 = loom.maximum %m11, %n11 : tensor<8xi64>
  %n12 = loom.minimum %m11, %n11 : tensor<8xi64>
  %m13 = loom.maximum %m12, %n12 : tensor<8xi64>
  %n13 = loom.minimum %m12, %n12 : tensor<8xi64>
  %m14 = loom.maximum %m13, %n13 : tensor<8xi64>
  %n14 = loom.minimum %m13, %n13 : tensor<8xi64>
  %m15 = loom.maximum %m14, %n14 : tensor<8xi64>
  %n15 = loom.minimum %m14, %n14 : tensor<8xi64>
  %m16 = loom.maximum %m15, %n15 : tensor<8xi64>
  %n16 = loom.minimum %m15, %n15 : tensor<8xi64>
  %m17 = loom.maximum %m16, %n16 : tensor<8xi64>
  %n17 = loom.minimum %m16, %n16 : tensor<8xi64>
  %m18 = loom.maximum %m17, %n17 : tensor<8xi64>
  %n18 = loom.minimum %m17, %n17 : tensor<8xi64>
  %m19 = loom.maximum %m18, %n18 : tensor<8xi64>
  %n19 = loom.minimum %m18, %n18 : tensor<8xi64>
  %m20 = loom.maximum %m19, %n19 : tensor<8xi64>
  %n20 = loom.minimum %m19, %n19 : tensor<8xi64>
  %m21 = loom.maximum %m20, %n20 : tensor<8xi64>
  %n21 = loom.minimum %m20, %n20 : tensor<8xi64>
  %m22 = loom.maximum %m21, %n21 : tensor<8xi64>
  %n22 = loom.minimum %m21, %n21 : tensor<8xi64>
  %m23 = loom.maximum %m22, %n22 : tensor<8xi64>
  %n23 = loom.minimum %m22, %n22 : tensor<8xi64>
  %m24 = loom.maximum %m23, %n23 : tensor<8xi64>
  %n24 = loom.minimum %m23, %n23 : tensor<8xi64>
  %m25 = loom.maximum %m24, %n24 : tensor<8xi64>
  %n25 = loom.minimum %m24, %n24 : tensor<8xi64>
  %m26 = loom.maximum %m25, %n25 : tensor<8xi64>
  %n26 = loom.minimum %m25, %n25 : tensor<8xi64>
  %m27 = loom.maximum %m26, %n26 : tensor<8xi64>
  %n27 = loom.minimum %m26, %n26 : tensor<8xi64>
  %m28 = loom.maximum %m27, %n27 : tensor<8xi64>
  %n28 = loom.minimum %m27, %n27 : tensor<8xi64>
  %m29 = loom.maximum %m28, %n28 : tensor<8xi64>
  %n29 = loom.minimum %m28, %n28 : tensor<8xi64>
  %m30 = loom.maximum %m29, %n29 : tensor<8xi64>
  %n30 = loom.minimum %m29, %n29 : tensor<8xi64>
  %m31 = loom.maximum %m30, %n30 : tensor<8xi64>
  %n31 = loom.minimum %m30, %n30 : tensor<8xi64>
  %m32 = loom.maximum %m31, %n31 : tensor<8xi64>
  %n32 = loom.minimum %m31, %n31 : tensor<8xi64>
  %m33 = loom.maximum %m32, %n32 : tensor<8xi64>
  %n33 = loom.minimum %m32, %n32 : tensor<8xi64>
  %m34 = loom.maximum %m33, %n33 : tensor<8xi64>
  %n34 = loom.minimum %m33, %n33 : tensor<8xi64>
  %m35 = loom.maximum %m34, %n34 : tensor<8xi64>
  %n35 = loom.minimum %m34, %n34 : tensor<8xi64>
  %m36 = loom.maximum %m35, %n35 : tensor<8xi64>
  %n36 = loom.minimum %m35, %n35 : tensor<8xi64>
  %m37 = loom.maximum %m36, %n36 : tensor<8xi64>
  %n37 = loom.minimum %m36, %n36 : tensor<8xi64>
  %m38 = loom.maximum %m37, %n37 : tensor<8xi64>
  %n38 = loom.minimum %m37, %n37 : tensor<8xi64>
  %m39 = loom.maximum %m38, %n38 : tensor<8xi64>
  %n39 = loom.minimum %m38, %n38 : tensor<8xi64>
  %m40 = loom.maximum %m39, %n39 : tensor<8xi64>
  %n40 = loom.minimum %m39, %n39 : tensor<8xi64>
  %taken = loom.gather %new, %m40 dim = 0 : (tensor<2x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  %where = loom.broadcast %fresh dims = [0] : (tensor<8xi1>) -> tensor<8x4xi1>
  %r = loom.select %where, %taken, %past : tensor<8x4xi1>, tensor<8x4xf32>
  return %r : tensor<8x4xf32>
}

// No row updates: a position too many; rows in another order; a row whose values differ by position.
// CHECK-LABEL: func.func @no_updates(
// CHECK-NOT: loom.scatter
// CHECK: return
func.func @no_updates(%past: tensor<4x4xf32>, %new: tensor<2x4xf32>, %row: tensor<4xf32>, %at: tensor<1xi64>)
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  %slots = loom.iota dim = 0 : tensor<4xi64>
  %begin = loom.broadcast %at dims = [0] : (tensor<1xi64>) -> tensor<4xi64>
  %source = loom.subtract %slots, %begin : tensor<4xi64>
  %zero = loom.constant dense<0> : tensor<4xi64>
  %one = loom.constant dense<1> : tensor<4xi64>
  %two = loom.constant dense<2> : tensor<4xi64>
  %low = loom.compare ge %source, %zero : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %most = loom.compare le %source, %two : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %three = loom.and %low, %most : tensor<4xi1>
  %max = loom.maximum %source, %zero : tensor<4xi64>
  %index = loom.minimum %max, %one : tensor<4xi64>
  %taken = loom.gather %new, %index dim = 0 : (tensor<2x4xf32>, tensor<4xi64>) -> tensor<4x4xf32>
  %where3 = loom.broadcast %three dims = [0] : (tensor<4xi1>) -> tensor<4x4xi1>
  %a = loom.select %where3, %taken, %past : tensor<4x4xi1>, tensor<4x4xf32>

  %high = loom.compare le %source, %one : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %pair = loom.and %low, %high : tensor<4xi1>
  %back = loom.subtract %one, %index : tensor<4xi64>
  %turned = loom.gather %new, %back dim = 0 : (tensor<2x4xf32>, tensor<4xi64>) -> tensor<4x4xf32>
  %where2 = loom.broadcast %pair dims = [0] : (tensor<4xi1>) -> tensor<4x4xi1>
  %b = loom.select %where2, %turned, %past : tensor<4x4xi1>, tensor<4x4xf32>

  %here = loom.compare eq %source, %zero : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xi1>
  %where1 = loom.broadcast %here dims = [0] : (tensor<4xi1>) -> tensor<4x4xi1>
  %column = loom.broadcast %row dims = [0] : (tensor<4xf32>) -> tensor<4x4xf32>
  %c = loom.select %where1, %column, %past : tensor<4x4xi1>, tensor<4x4xf32>
  return %a, %b, %c : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// Rows of the third dimension, written as those of the first: the transposes disappear.
// CHECK-LABEL: func.func @turned(
// CHECK-NEXT: %[[R:.*]] = loom.scatter %arg0, %arg2, %arg1 dim = 2 : (tensor<2x4x8x3xf32>, tensor<1xi64>, tensor<2x4x1x3xf32>)
// CHECK-NEXT: return %[[R]]
func.func @turned(%past: tensor<2x4x8x3xf32>, %new: tensor<2x4x1x3xf32>, %at: tensor<1xi64>) -> tensor<2x4x8x3xf32> {
  %first = loom.transpose %past [2, 0, 1, 3] : (tensor<2x4x8x3xf32>) -> tensor<8x2x4x3xf32>
  %rows = loom.transpose %new [2, 0, 1, 3] : (tensor<2x4x1x3xf32>) -> tensor<1x2x4x3xf32>
  %s = loom.scatter %first, %at, %rows dim = 0 : (tensor<8x2x4x3xf32>, tensor<1xi64>, tensor<1x2x4x3xf32>) -> tensor<8x2x4x3xf32>
  %r = loom.transpose %s [1, 2, 0, 3] : (tensor<8x2x4x3xf32>) -> tensor<2x4x8x3xf32>
  return %r : tensor<2x4x8x3xf32>
}
