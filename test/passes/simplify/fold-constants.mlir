// RUN: gridloom-opt %s --loom-fold-constants --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[C:.*]] = loom.constant dense<[8, 16, 12, 32]> : tensor<4xi64>
// CHECK-NEXT: return %[[C]]
func.func @chain() -> tensor<4xi64> {
  %shape = loom.constant dense<[8, 16, 384]> : tensor<3xi64>
  %heads = loom.constant dense<12> : tensor<1xi64>
  %outer = loom.slice %shape [0] to [2] by [1] : (tensor<3xi64>) -> tensor<2xi64>
  %inner = loom.slice %shape [2] to [3] by [1] : (tensor<3xi64>) -> tensor<1xi64>
  %size = loom.divide %inner, %heads : tensor<1xi64>
  %all = loom.concatenate %outer, %heads, %size dim = 0 : (tensor<2xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<4xi64>
  return %all : tensor<4xi64>
}

// -----

// A value without elements is constant, though the operand is not known.
// CHECK-LABEL: func.func @empty
// CHECK-NEXT: %[[C:.*]] = loom.constant dense<> : tensor<0x4xf32>
// CHECK-NEXT: return %[[C]]
func.func @empty(%a: tensor<2x4xf32>) -> tensor<0x4xf32> {
  %0 = loom.slice %a [2, 0] to [2, 4] by [1, 1] : (tensor<2x4xf32>) -> tensor<0x4xf32>
  %1 = loom.exp %0 : tensor<0x4xf32>
  return %1 : tensor<0x4xf32>
}

// -----

// A splat stores one element, whatever its shape.
// CHECK-LABEL: func.func @splats
// CHECK-NEXT: loom.constant dense<5.000000e-01> : tensor<4096x4096xf32>
// CHECK-NEXT: return
func.func @splats() -> tensor<4096x4096xf32> {
  %two = loom.constant dense<2.0> : tensor<f32>
  %one = loom.constant dense<1.0> : tensor<4096x4096xf32>
  %0 = loom.broadcast %two dims = [] : (tensor<f32>) -> tensor<4096x4096xf32>
  %1 = loom.divide %one, %0 : tensor<4096x4096xf32>
  %2 = loom.transpose %1 [1, 0] : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %2 : tensor<4096x4096xf32>
}

// -----

// 64 KiB are folded, 128 KiB are not.
// CHECK-LABEL: func.func @limit
// CHECK-NOT: dims = [1] : (tensor<2xi64>) -> tensor<4096x2xi64>
// CHECK: dims = [1] : (tensor<2xi64>) -> tensor<8192x2xi64>
func.func @limit() -> (tensor<4096x2xi64>, tensor<8192x2xi64>) {
  %c = loom.constant dense<[1, 2]> : tensor<2xi64>
  %0 = loom.broadcast %c dims = [1] : (tensor<2xi64>) -> tensor<4096x2xi64>
  %1 = loom.broadcast %c dims = [1] : (tensor<2xi64>) -> tensor<8192x2xi64>
  return %0, %1 : tensor<4096x2xi64>, tensor<8192x2xi64>
}

// -----

loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
// CHECK-LABEL: func.func @weights_stay
// CHECK: loom.add
func.func @weights_stay() -> tensor<4xf32> {
  %w = loom.get_weight @w : tensor<4xf32>
  %c = loom.constant dense<1.0> : tensor<4xf32>
  %0 = loom.add %w, %c : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @outside() -> tensor<1xi64> {
  %c = loom.constant dense<[1, 2]> : tensor<2xi64>
  %i = loom.constant dense<5> : tensor<1xi64>
  // expected-error @below {{5}}
  %0 = loom.gather %c, %i dim = 0 : (tensor<2xi64>, tensor<1xi64>) -> tensor<1xi64>
  return %0 : tensor<1xi64>
}

// -----

// Values too large for an 8-bit float become its largest number.
// CHECK-LABEL: func.func @float8
// CHECK-NEXT: %[[C:.*]] = loom.constant dense<[3.125000e-01, 4.480000e+02, -4.480000e+02]> : tensor<3xf8E4M3FN>
// CHECK-NEXT: return %[[C]]
func.func @float8() -> tensor<3xf8E4M3FN> {
  %x = loom.constant dense<[0.3, 465.0, -1000.0]> : tensor<3xf32>
  %y = loom.convert %x : (tensor<3xf32>) -> tensor<3xf8E4M3FN>
  return %y : tensor<3xf8E4M3FN>
}

// -----

// A table compared with an iota becomes a table, as does a triangle of one; two iotas stay.
// CHECK-LABEL: func.func @counters
// CHECK-DAG: %[[H:.*]] = loom.constant dense<{{\[\[}}false, true, false], [true, false, false]]> : tensor<2x3xi1>
// CHECK-DAG: %[[T:.*]] = loom.constant dense<{{\[\[}}7, 0], [5, 4]]> : tensor<2x2xi64>
// CHECK-DAG: %[[C:.*]] = loom.compare ge
// CHECK: return %[[H]], %[[T]], %[[C]]
func.func @counters() -> (tensor<2x3xi1>, tensor<2x2xi64>, tensor<2x2xi1>) {
  %at = loom.constant dense<[[1, 1, 1], [0, 0, 0]]> : tensor<2x3xi64>
  %count = loom.iota dim = 1 : tensor<2x3xi64>
  %hot = loom.compare eq %at, %count : (tensor<2x3xi64>, tensor<2x3xi64>) -> tensor<2x3xi1>
  %row = loom.iota dim = 0 : tensor<2x2xi64>
  %column = loom.iota dim = 1 : tensor<2x2xi64>
  %low = loom.compare ge %row, %column : (tensor<2x2xi64>, tensor<2x2xi64>) -> tensor<2x2xi1>
  %table = loom.constant dense<[[7, 6], [5, 4]]> : tensor<2x2xi64>
  %zero = loom.constant dense<0> : tensor<2x2xi64>
  %triangle = loom.select %low, %table, %zero : tensor<2x2xi1>, tensor<2x2xi64>
  return %hot, %triangle, %low : tensor<2x3xi1>, tensor<2x2xi64>, tensor<2x2xi1>
}

// -----

// In training, random bits differ per iteration: neither they nor values computed from them are folded.
// CHECK-LABEL: func.func @random
// CHECK: loom.random_bits
// CHECK: loom.and
func.func @random() -> tensor<4xui32> {
  %i = loom.constant dense<[0, 1, 2, 3]> : tensor<4xi64>
  %mask = loom.constant dense<[1, 2, 4, 8]> : tensor<4xui32>
  %0 = loom.random_bits %i seed = 42 stream = 0 : (tensor<4xi64>) -> tensor<4xui32>
  %1 = loom.and %0, %mask : tensor<4xui32>
  return %1 : tensor<4xui32>
}

// -----

// A splat may stand for more elements than a machine has; a window may reach far into padding.
// CHECK-LABEL: func.func @too_much_to_read
// CHECK: loom.reduce sum
// CHECK: loom.gather
// CHECK: loom.reduce_window max
func.func @too_much_to_read() -> (tensor<f32>, tensor<1xf32>, tensor<1xf32>) {
  %all = loom.constant dense<1.0> : tensor<1099511627776xf32>
  %at = loom.constant dense<3> : tensor<1xi64>
  %few = loom.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = loom.reduce sum %all dims = [0] : (tensor<1099511627776xf32>) -> tensor<f32>
  %1 = loom.gather %all, %at dim = 0 : (tensor<1099511627776xf32>, tensor<1xi64>) -> tensor<1xf32>
  %2 = loom.reduce_window max %few dims = [0] sizes = [2] strides = [1073741824] low = [1073741822] high = [0] dilations = [1] : (tensor<2xf32>) -> tensor<1xf32>
  return %0, %1, %2 : tensor<f32>, tensor<1xf32>, tensor<1xf32>
}

// -----

// Each part of an expression is computed once, though it is read twice.
// CHECK-LABEL: func.func @doubled
// CHECK: %[[C:.*]] = loom.constant dense<{{.*}}> : tensor<2x4050xi64>
// CHECK-NEXT: return %[[C]]
func.func @doubled() -> tensor<2x4050xi64> {
  %pair = loom.constant dense<[1, 2]> : tensor<2xi64>
  %table = loom.broadcast %pair dims = [0] : (tensor<2xi64>) -> tensor<2x4050xi64>
  %0 = loom.iota dim = 0 : tensor<2x4050xi64>
  %1 = loom.add %0, %0 : tensor<2x4050xi64>
  %2 = loom.add %1, %1 : tensor<2x4050xi64>
  %3 = loom.add %2, %2 : tensor<2x4050xi64>
  %4 = loom.add %3, %3 : tensor<2x4050xi64>
  %5 = loom.add %4, %4 : tensor<2x4050xi64>
  %6 = loom.add %5, %5 : tensor<2x4050xi64>
  %7 = loom.add %6, %6 : tensor<2x4050xi64>
  %8 = loom.add %7, %7 : tensor<2x4050xi64>
  %9 = loom.add %8, %8 : tensor<2x4050xi64>
  %10 = loom.add %9, %9 : tensor<2x4050xi64>
  %11 = loom.add %10, %10 : tensor<2x4050xi64>
  %12 = loom.add %11, %11 : tensor<2x4050xi64>
  %13 = loom.add %12, %12 : tensor<2x4050xi64>
  %14 = loom.add %13, %13 : tensor<2x4050xi64>
  %15 = loom.add %14, %14 : tensor<2x4050xi64>
  %sum = loom.add %15, %table : tensor<2x4050xi64>
  return %sum : tensor<2x4050xi64>
}
