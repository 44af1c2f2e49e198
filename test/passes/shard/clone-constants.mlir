// RUN: gridloom-opt %s --dist-clone-constants | FileCheck %s
// RUN: gridloom-opt %s --dist-clone-constants=tables=tab* | FileCheck %s --check-prefix=TABLES
// RUN: gridloom-opt %s --dist-clone-constants="tables=* most-bytes=1024" | FileCheck %s --check-prefix=TABLES
// RUN: gridloom-opt %s --dist-clone-constants="tables=* most-bytes=1023" | FileCheck %s

// The zeros of two activations become two constants, so that a split of one does not affect the other.
// CHECK-LABEL: func.func @shared
// CHECK-DAG: %[[A:.*]] = loom.constant dense<0.000000e+00> : tensor<4x8xf32>
// CHECK-DAG: %[[B:.*]] = loom.constant dense<0.000000e+00> : tensor<4x8xf32>
// CHECK-DAG: loom.maximum %{{.*}}, %[[A]]
// CHECK-DAG: loom.maximum %{{.*}}, %[[B]]
func.func @shared(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %zero = loom.constant dense<0.0> : tensor<4x8xf32>
  %0 = loom.maximum %x, %zero : tensor<4x8xf32>
  %1 = loom.maximum %y, %zero : tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// Values computed from constants are cloned as a whole for each user; a table stays shared.
// CHECK-LABEL: func.func @chain
// CHECK: loom.iota
// CHECK: loom.constant dense<[1.0
// CHECK: loom.iota
// CHECK-NOT: loom.{{iota|constant}}
// CHECK: return
func.func @chain(%x: tensor<4x3xi64>, %y: tensor<3xf32>) -> (tensor<4x3xi64>, tensor<4x3xi64>, tensor<3xf32>, tensor<3xf32>) {
  %row = loom.iota dim = 0 : tensor<3xi64>
  %rows = loom.broadcast %row dims = [1] : (tensor<3xi64>) -> tensor<4x3xi64>
  %table = loom.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %0 = loom.add %x, %rows : tensor<4x3xi64>
  %1 = loom.multiply %x, %rows : tensor<4x3xi64>
  %2 = loom.add %y, %table : tensor<3xf32>
  %3 = loom.multiply %y, %table : tensor<3xf32>
  return %0, %1, %2, %3 : tensor<4x3xi64>, tensor<4x3xi64>, tensor<3xf32>, tensor<3xf32>
}

// Exporters merge equal biases: a small vector is cloned for each user, a matrix stays shared.
// CHECK-LABEL: func.func @biases
// CHECK-DAG: %[[A:.*]] = loom.get_weight @b : tensor<8xf32>
// CHECK-DAG: %[[B:.*]] = loom.get_weight @b : tensor<8xf32>
// CHECK-DAG: loom.broadcast %[[A]]
// CHECK-DAG: loom.broadcast %[[B]]
// CHECK: loom.get_weight @w
// CHECK-NOT: loom.get_weight
// CHECK: return
loom.weight @b : tensor<8xf32> from <"", offset = 0, bytes = 32>
loom.weight @w : tensor<4x8xf32> from <"", offset = 32, bytes = 128>
func.func @biases(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %b = loom.get_weight @b : tensor<8xf32>
  %0 = loom.broadcast %b dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %1 = loom.broadcast %b dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %w = loom.get_weight @w : tensor<4x8xf32>
  %2 = loom.add %x, %0 : tensor<4x8xf32>
  %3 = loom.add %y, %1 : tensor<4x8xf32>
  %4 = loom.multiply %2, %w : tensor<4x8xf32>
  %5 = loom.multiply %3, %w : tensor<4x8xf32>
  return %4, %5 : tensor<4x8xf32>, tensor<4x8xf32>
}

// A table that is looked up and multiplied gets a second copy if `tables` names it and it is not too large; one that is only looked up
// does not.
// CHECK-LABEL: func.func @tied
// CHECK: loom.get_weight @table
// CHECK: loom.get_weight @other
// CHECK-NOT: loom.get_weight
// CHECK: return
// TABLES-LABEL: func.func @tied
// TABLES: %[[A:.*]] = loom.get_weight @table
// TABLES: %[[C:.*]] = loom.get_weight @other
// TABLES: loom.gather %[[A]]
// TABLES: loom.gather %[[A]]
// TABLES: loom.gather %[[C]]
// TABLES: loom.gather %[[C]]
// TABLES: %[[B:.*]] = loom.get_weight @table
// TABLES: loom.dot_general %{{.*}}, %[[B]]
// TABLES: loom.dot_general %{{.*}}, %[[B]]
// TABLES-NOT: loom.get_weight
loom.weight @table : tensor<32x8xf32> from <"", offset = 160, bytes = 1024>
loom.weight @other : tensor<32x8xf32> from <"", offset = 1184, bytes = 1024>
func.func @tied(%i: tensor<4xi64>, %j: tensor<4xi64>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x8xf32>) {
  %table = loom.get_weight @table : tensor<32x8xf32>
  %other = loom.get_weight @other : tensor<32x8xf32>
  %0 = loom.gather %table, %i dim = 0 : (tensor<32x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %1 = loom.gather %table, %j dim = 0 : (tensor<32x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %2 = loom.gather %other, %i dim = 0 : (tensor<32x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %3 = loom.gather %other, %j dim = 0 : (tensor<32x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %4 = loom.dot_general %0, %table batch = [] x [] contract = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %5 = loom.dot_general %1, %table batch = [] x [] contract = [1] x [1] : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %6 = loom.add %2, %3 : tensor<4x8xf32>
  return %4, %5, %6 : tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x8xf32>
}
