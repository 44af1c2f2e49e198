// RUN: gridloom-opt %s --split-input-file --loom-merge-matmuls --mlir-print-local-scope | FileCheck %s

// Query, key and value become one product with one bias, of zeros for those without. Readers get slices.
loom.weight @"a.query.weight" : tensor<16x32xf32> from <"", offset = 0, bytes = 2048>
loom.weight @"a.key.weight" : tensor<16x16xf32> from <"", offset = 2048, bytes = 1024>
loom.weight @"a.value.weight" : tensor<16x16xf32> from <"", offset = 3072, bytes = 1024>
loom.weight @"a.query.bias" : tensor<32xf32> from <"", offset = 4096, bytes = 128>
loom.weight @"a.value.bias" : tensor<16xf32> from <"", offset = 4224, bytes = 64>
// CHECK: loom.derived @"a.{query,key,value}.weight" : tensor<16x64xf32> {
// CHECK: %[[Q:.*]] = loom.get_weight @a.query.weight
// CHECK-NEXT: %[[K:.*]] = loom.get_weight @a.key.weight
// CHECK-NEXT: %[[V:.*]] = loom.get_weight @a.value.weight
// CHECK-NEXT: %[[C:.*]] = loom.concatenate %[[Q]], %[[K]], %[[V]] dim = 1
// CHECK-NEXT: loom.yield %[[C]]
// CHECK: loom.derived @"a.{query,value}.bias" : tensor<64xf32> {
// CHECK: %[[QB:.*]] = loom.get_weight @a.query.bias
// CHECK-NEXT: %[[KB:.*]] = loom.constant dense<0.000000e+00> : tensor<16xf32>
// CHECK-NEXT: %[[VB:.*]] = loom.get_weight @a.value.bias
// CHECK-NEXT: loom.concatenate %[[QB]], %[[KB]], %[[VB]] dim = 0
// CHECK-LABEL: func.func @attention
// CHECK-NEXT: %[[W:.*]] = loom.get_weight @"a.{query,key,value}.weight" : tensor<16x64xf32>
// CHECK-NEXT: %[[P:.*]] = loom.dot_general %arg0, %[[W]] batch = [] x [] contract = [2] x [0] : (tensor<1x8x16xf32>, tensor<16x64xf32>) -> tensor<1x8x64xf32>
// CHECK-NEXT: %[[B:.*]] = loom.get_weight @"a.{query,value}.bias" : tensor<64xf32>
// CHECK-NEXT: %[[R:.*]] = loom.broadcast %[[B]] dims = [2]
// CHECK-NEXT: %[[S:.*]] = loom.add %[[P]], %[[R]]
// CHECK-NEXT: loom.slice %[[S]] [0, 0, 0] to [1, 8, 32] by [1, 1, 1]
// CHECK-NEXT: loom.slice %[[S]] [0, 0, 32] to [1, 8, 48] by [1, 1, 1]
// CHECK-NEXT: loom.slice %[[S]] [0, 0, 48] to [1, 8, 64] by [1, 1, 1]
// CHECK-NOT: loom.get_weight
// CHECK: return
func.func @attention(%x: tensor<1x8x16xf32>) -> (tensor<1x2x8x8xf32>, tensor<1x8x16xf32>) {
  %wq = loom.get_weight @"a.query.weight" : tensor<16x32xf32>
  %wk = loom.get_weight @"a.key.weight" : tensor<16x16xf32>
  %wv = loom.get_weight @"a.value.weight" : tensor<16x16xf32>
  %bq = loom.get_weight @"a.query.bias" : tensor<32xf32>
  %bv = loom.get_weight @"a.value.bias" : tensor<16xf32>
  %0 = loom.dot_general %x, %wq batch = [] x [] contract = [2] x [0] : (tensor<1x8x16xf32>, tensor<16x32xf32>) -> tensor<1x8x32xf32>
  %1 = loom.broadcast %bq dims = [2] : (tensor<32xf32>) -> tensor<1x8x32xf32>
  %2 = loom.add %1, %0 : tensor<1x8x32xf32>
  %3 = loom.reshape %2 : (tensor<1x8x32xf32>) -> tensor<1x8x2x16xf32>
  %4 = loom.transpose %3 [0, 2, 1, 3] : (tensor<1x8x2x16xf32>) -> tensor<1x2x8x16xf32>
  %5 = loom.dot_general %x, %wk batch = [] x [] contract = [2] x [0] : (tensor<1x8x16xf32>, tensor<16x16xf32>) -> tensor<1x8x16xf32>
  %6 = loom.dot_general %4, %5 batch = [0] x [0] contract = [3] x [2] : (tensor<1x2x8x16xf32>, tensor<1x8x16xf32>) -> tensor<1x2x8x8xf32>
  %7 = loom.dot_general %x, %wv batch = [] x [] contract = [2] x [0] : (tensor<1x8x16xf32>, tensor<16x16xf32>) -> tensor<1x8x16xf32>
  %8 = loom.broadcast %bv dims = [2] : (tensor<16xf32>) -> tensor<1x8x16xf32>
  %9 = loom.add %7, %8 : tensor<1x8x16xf32>
  %10 = loom.negate %9 : tensor<1x8x16xf32>
  return %6, %10 : tensor<1x2x8x8xf32>, tensor<1x8x16xf32>
}

// -----

// Each device joins its own columns: the whole weights are split first. Weights may be derived, and
// all functions that read them read the joined one.
dist.mesh @mesh <["model" = 2]>
loom.weight @gate : tensor<16x32xf32> from <"", offset = 0, bytes = 2048>
loom.weight @up : tensor<16x32xf32> from <"", offset = 2048, bytes = 2048>
loom.derived @gate_1 : tensor<16x32xbf16> {
  %0 = loom.get_weight @gate : tensor<16x32xf32>
  %1 = loom.convert %0 : (tensor<16x32xf32>) -> tensor<16x32xbf16>
  loom.yield %1 : tensor<16x32xbf16>
}
loom.derived @up_1 : tensor<16x32xbf16> {
  %0 = loom.get_weight @up : tensor<16x32xf32>
  %1 = loom.convert %0 : (tensor<16x32xf32>) -> tensor<16x32xbf16>
  loom.yield %1 : tensor<16x32xbf16>
}
// CHECK-NOT: loom.derived @gate_1
// CHECK: loom.derived @"{gate_1,up_1}" : tensor<16x64xbf16> {
// CHECK: %[[G:.*]] = loom.convert
// CHECK-NEXT: %[[G2:.*]] = loom.reshape %[[G]] : (tensor<16x32xbf16>) -> tensor<16x2x16xbf16>
// CHECK: %[[U:.*]] = loom.convert
// CHECK-NEXT: %[[U2:.*]] = loom.reshape %[[U]] : (tensor<16x32xbf16>) -> tensor<16x2x16xbf16>
// CHECK-NEXT: %[[C:.*]] = loom.concatenate %[[G2]], %[[U2]] dim = 2 : (tensor<16x2x16xbf16>, tensor<16x2x16xbf16>) -> tensor<16x2x32xbf16>
// CHECK-NEXT: loom.reshape %[[C]] : (tensor<16x2x32xbf16>) -> tensor<16x64xbf16>
// CHECK-LABEL: func.func @prefill
// CHECK: loom.get_weight @"{gate_1,up_1}" {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x32xbf16>
// CHECK-NEXT: loom.dot_general {{.*}} -> tensor<8x32xbf16>
// CHECK-LABEL: func.func @decode
// CHECK: loom.get_weight @"{gate_1,up_1}" {sharding
func.func @prefill(%x: tensor<8x16xbf16>) -> tensor<8x16xbf16> {
  %g = loom.get_weight @gate_1 {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x16xbf16>
  %u = loom.get_weight @up_1 {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x16xbf16>
  %0 = loom.dot_general %x, %g batch = [] x [] contract = [1] x [0] : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %1 = loom.dot_general %x, %u batch = [] x [] contract = [1] x [0] : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %2 = loom.multiply %0, %1 : tensor<8x16xbf16>
  return %2 : tensor<8x16xbf16>
}
func.func @decode(%x: tensor<1x16xbf16>) -> tensor<1x16xbf16> {
  %g = loom.get_weight @gate_1 {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x16xbf16>
  %u = loom.get_weight @up_1 {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x16xbf16>
  %0 = loom.dot_general %x, %g batch = [] x [] contract = [1] x [0] : (tensor<1x16xbf16>, tensor<16x16xbf16>) -> tensor<1x16xbf16>
  %1 = loom.dot_general %x, %u batch = [] x [] contract = [1] x [0] : (tensor<1x16xbf16>, tensor<16x16xbf16>) -> tensor<1x16xbf16>
  %2 = loom.multiply %0, %1 : tensor<1x16xbf16>
  return %2 : tensor<1x16xbf16>
}

// -----

// A product that is returned whole stays apart.
loom.weight @a : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>
loom.weight @b : tensor<16x16xf32> from <"", offset = 1024, bytes = 1024>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @result
func.func @result(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %wa = loom.get_weight @a : tensor<16x16xf32>
  %wb = loom.get_weight @b : tensor<16x16xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %1 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %2 = loom.negate %0 : tensor<8x16xf32>
  return %2, %1 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// So does a weight with another reader.
loom.weight @a : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>
loom.weight @b : tensor<16x16xf32> from <"", offset = 1024, bytes = 1024>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @tied
func.func @tied(%x: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<16x16xf32>) {
  %wa = loom.get_weight @a : tensor<16x16xf32>
  %wb = loom.get_weight @b : tensor<16x16xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %1 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %2 = loom.add %0, %1 : tensor<8x16xf32>
  %3 = loom.negate %wb : tensor<16x16xf32>
  return %2, %3 : tensor<8x16xf32>, tensor<16x16xf32>
}

// -----

// Weights read both as they are and transposed would be joined along two dimensions, and stored twice.
loom.weight @a : tensor<16x32xf32> from <"", offset = 0, bytes = 2048>
loom.weight @b : tensor<16x32xf32> from <"", offset = 2048, bytes = 2048>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @there_and_back
func.func @there_and_back(%x: tensor<8x16xf32>, %y: tensor<8x32xf32>) -> (tensor<8x32xf32>, tensor<8x16xf32>) {
  %wa = loom.get_weight @a : tensor<16x32xf32>
  %wb = loom.get_weight @b : tensor<16x32xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %2 = loom.multiply %0, %1 : tensor<8x32xf32>
  %3 = loom.dot_general %y, %wa batch = [] x [] contract = [1] x [1] : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %4 = loom.dot_general %y, %wb batch = [] x [] contract = [1] x [1] : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %5 = loom.multiply %3, %4 : tensor<8x16xf32>
  return %2, %5 : tensor<8x32xf32>, tensor<8x16xf32>
}

// -----

// Parts that do not start at a multiple of 16 bytes stay apart.
loom.weight @a : tensor<16x3xf32> from <"", offset = 0, bytes = 192>
loom.weight @b : tensor<16x3xf32> from <"", offset = 192, bytes = 192>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @unaligned
func.func @unaligned(%x: tensor<8x16xf32>) -> tensor<8x3xf32> {
  %wa = loom.get_weight @a : tensor<16x3xf32>
  %wb = loom.get_weight @b : tensor<16x3xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x3xf32>) -> tensor<8x3xf32>
  %1 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x3xf32>) -> tensor<8x3xf32>
  %2 = loom.multiply %0, %1 : tensor<8x3xf32>
  return %2 : tensor<8x3xf32>
}

// -----

// So do shards of different sizes.
dist.mesh @mesh <["model" = 2]>
loom.weight @a : tensor<16x7xf32> from <"", offset = 0, bytes = 448>
loom.weight @b : tensor<16x7xf32> from <"", offset = 448, bytes = 448>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @uneven
func.func @uneven(%x: tensor<8x16xf32>) -> tensor<8x4xf32> {
  %wa = loom.get_weight @a {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x4xf32>
  %wb = loom.get_weight @b {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<16x4xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %1 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %2 = loom.multiply %0, %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// -----

// Keys of many layers over one encoder's result are needed at very different times.
loom.weight @a : tensor<16x16xf32> from <"", offset = 0, bytes = 1024>
loom.weight @b : tensor<16x16xf32> from <"", offset = 1024, bytes = 1024>
// CHECK-NOT: loom.derived
// CHECK-LABEL: func.func @layers
func.func @layers(%x: tensor<16x16xf32>, %y: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %wa = loom.get_weight @a : tensor<16x16xf32>
  %wb = loom.get_weight @b : tensor<16x16xf32>
  %0 = loom.dot_general %x, %wa batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = loom.dot_general %y, %0 batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %2 = loom.dot_general %y, %1 batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %3 = loom.dot_general %y, %2 batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %4 = loom.dot_general %x, %wb batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %5 = loom.dot_general %3, %4 batch = [] x [] contract = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %5 : tensor<16x16xf32>
}
