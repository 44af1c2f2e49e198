// RUN: gridloom-opt %s --split-input-file --loom-turn-weights --mlir-print-local-scope | FileCheck %s

// Products of many rows and of one read the weight along its rows: it is stored by columns for both,
// without the dimension of one element.
loom.weight @w : tensor<1x8x16xf32> from <"", offset = 0, bytes = 512>
// CHECK: loom.derived @w.turned : tensor<16x8xf32> {
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @w : tensor<1x8x16xf32>
// CHECK-NEXT: %[[R:.*]] = loom.reshape %[[W]] : (tensor<1x8x16xf32>) -> tensor<8x16xf32>
// CHECK-NEXT: %[[T:.*]] = loom.transpose %[[R]] [1, 0] : (tensor<8x16xf32>) -> tensor<16x8xf32>
// CHECK-NEXT: loom.yield %[[T]]
// CHECK-LABEL: func.func @many
// CHECK-NEXT: %[[V:.*]] = loom.get_weight @w.turned : tensor<16x8xf32>
// CHECK-NEXT: loom.dot_general %arg0, %[[V]] batch = [] x [] contract = [2] x [0] : (tensor<2x3x16xf32>, tensor<16x8xf32>) -> tensor<2x3x8xf32>
// CHECK-NOT: loom.get_weight @w :
func.func @many(%x: tensor<2x3x16xf32>) -> tensor<2x3x8xf32> {
  %w = loom.get_weight @w : tensor<1x8x16xf32>
  %0 = loom.reshape %w : (tensor<1x8x16xf32>) -> tensor<8x16xf32>
  %1 = loom.dot_general %x, %0 batch = [] x [] contract = [2] x [1] : (tensor<2x3x16xf32>, tensor<8x16xf32>) -> tensor<2x3x8xf32>
  return %1 : tensor<2x3x8xf32>
}
// CHECK-LABEL: func.func @one
// CHECK: contract = [1] x [0] : (tensor<1x16xf32>, tensor<16x8xf32>)
func.func @one(%x: tensor<1x16xf32>) -> tensor<1x8xf32> {
  %w = loom.get_weight @w : tensor<1x8x16xf32>
  %0 = loom.reshape %w : (tensor<1x8x16xf32>) -> tensor<8x16xf32>
  %1 = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [1] : (tensor<1x16xf32>, tensor<8x16xf32>) -> tensor<1x8xf32>
  return %1 : tensor<1x8xf32>
}

// -----

// The sharding moves with the dimensions; the source may be derived itself.
dist.mesh @mesh <["model" = 2]>
loom.weight @v : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
loom.derived @w : tensor<8x16xf32> {
  %0 = loom.get_weight @v : tensor<8x16xf32>
  %1 = loom.exp %0 : tensor<8x16xf32>
  loom.yield %1 : tensor<8x16xf32>
}
// CHECK-NOT: loom.derived @w :
// CHECK: loom.derived @w.turned : tensor<16x8xf32> {
// CHECK: %[[E:.*]] = loom.exp
// CHECK-NEXT: loom.transpose %[[E]] [1, 0]
// CHECK-LABEL: func.func @shard
// CHECK: loom.get_weight @w.turned {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x4xf32>
func.func @shard(%x: tensor<3x16xf32>) -> tensor<3x4xf32> {
  %w = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x16xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [1] : (tensor<3x16xf32>, tensor<4x16xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// Two shardings share the derived tensor; a weight stays if one of its shards cannot be transposed.
dist.mesh @mesh <["model" = 2]>
loom.weight @bias : tensor<8xf32> from <"", offset = 1024, bytes = 32>
loom.weight @both : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
loom.weight @tied : tensor<8x16xf32> from <"", offset = 512, bytes = 512>
// CHECK-COUNT-1: loom.derived @both.turned
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @shardings
// CHECK: loom.get_weight @both.turned : tensor<16x8xf32>
// CHECK: loom.get_weight @both.turned {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x4xf32>
// CHECK: loom.get_weight @tied {sharding
func.func @shardings(%x: tensor<3x16xf32>, %i: tensor<3xi64>) -> (tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x16xf32>) {
  %whole = loom.get_weight @both : tensor<8x16xf32>
  %0 = loom.dot_general %x, %whole batch = [] x [] contract = [1] x [1] : (tensor<3x16xf32>, tensor<8x16xf32>) -> tensor<3x8xf32>
  %shard = loom.get_weight @both {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x16xf32>
  %1 = loom.dot_general %x, %shard batch = [] x [] contract = [1] x [1] : (tensor<3x16xf32>, tensor<4x16xf32>) -> tensor<3x4xf32>
  %head = loom.get_weight @tied {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x16xf32>
  %2 = loom.dot_general %x, %head batch = [] x [] contract = [1] x [1] : (tensor<3x16xf32>, tensor<4x16xf32>) -> tensor<3x4xf32>
  %table = loom.get_weight @tied : tensor<8x16xf32>
  %3 = loom.gather %table, %i dim = 0 : (tensor<8x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>
  %bias = loom.get_weight @bias {sharding = #dist.sharding<@mesh, [{"model"}]>} : tensor<4xf32>
  %4 = loom.broadcast %bias dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
  %5 = loom.add %2, %4 : tensor<3x4xf32>
  return %0, %1, %5, %3 : tensor<3x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x16xf32>
}

// -----

// These stay: few rows, an embedding, a left-hand side, a weight stored by columns already, f64.
loom.weight @few : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
loom.weight @table : tensor<8x16xf32> from <"", offset = 512, bytes = 512>
loom.weight @left : tensor<8x16xf32> from <"", offset = 1024, bytes = 512>
loom.weight @columns : tensor<16x8xf32> from <"", offset = 1536, bytes = 512>
loom.weight @wide : tensor<8x16xf64> from <"", offset = 2048, bytes = 1024>
// CHECK-NOT: turned
func.func @stay(%x: tensor<2x16xf32>, %y: tensor<4x16xf32>, %i: tensor<4xi64>, %z: tensor<4x16xf64>)
    -> (tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x16xf32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf64>) {
  %few = loom.get_weight @few : tensor<8x16xf32>
  %0 = loom.dot_general %x, %few batch = [] x [] contract = [1] x [1] : (tensor<2x16xf32>, tensor<8x16xf32>) -> tensor<2x8xf32>
  %table = loom.get_weight @table : tensor<8x16xf32>
  %1 = loom.dot_general %y, %table batch = [] x [] contract = [1] x [1] : (tensor<4x16xf32>, tensor<8x16xf32>) -> tensor<4x8xf32>
  %2 = loom.gather %table, %i dim = 0 : (tensor<8x16xf32>, tensor<4xi64>) -> tensor<4x16xf32>
  %left = loom.get_weight @left : tensor<8x16xf32>
  %3 = loom.dot_general %left, %y batch = [] x [] contract = [1] x [1] : (tensor<8x16xf32>, tensor<4x16xf32>) -> tensor<8x4xf32>
  %columns = loom.get_weight @columns : tensor<16x8xf32>
  %4 = loom.dot_general %y, %columns batch = [] x [] contract = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %wide = loom.get_weight @wide : tensor<8x16xf64>
  %5 = loom.dot_general %z, %wide batch = [] x [] contract = [1] x [1] : (tensor<4x16xf64>, tensor<8x16xf64>) -> tensor<4x8xf64>
  return %0, %1, %2, %3, %4, %5 : tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x16xf32>, tensor<8x4xf32>, tensor<4x8xf32>, tensor<4x8xf64>
}
