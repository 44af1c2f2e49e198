// RUN: gridloom-opt %s --split-input-file --loom-assign-layouts --loom-verify-layouts | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --loom-assign-layouts="pad-multiple=96 pad-elements=8" | FileCheck %s --check-prefix=OPTIONS
// RUN: gridloom-opt %s --split-input-file --loom-assign-layouts="pad-multiple=0" | FileCheck %s --check-prefix=NONE

// Only rows of a multiple of 256 elements are padded, and only right-hand sides.
loom.weight @wide : tensor<64x512xf32> from <"", offset = 0, bytes = 131072>
loom.weight @odd : tensor<512x96xf32> from <"", offset = 131072, bytes = 196608>
loom.weight @bias : tensor<512xf32> from <"", offset = 327680, bytes = 2048>
// CHECK-LABEL: func.func @rhs
// CHECK-DAG: loom.get_weight @wide {layout = #loom.layout<[0, 1], pad = 16>}
// CHECK-DAG: loom.get_weight @odd {layout = #loom.layout<[0, 1]>}
// CHECK-DAG: loom.get_weight @bias {layout = #loom.layout<[0]>}
// OPTIONS-LABEL: func.func @rhs
// OPTIONS-DAG: loom.get_weight @wide {layout = #loom.layout<[0, 1]>}
// OPTIONS-DAG: loom.get_weight @odd {layout = #loom.layout<[0, 1], pad = 8>}
// NONE-NOT: pad
func.func @rhs(%x: tensor<8x64xf32>) -> tensor<8x96xf32> {
  %wide = loom.get_weight @wide : tensor<64x512xf32>
  %odd = loom.get_weight @odd : tensor<512x96xf32>
  %bias = loom.get_weight @bias : tensor<512xf32>
  %0 = loom.dot_general %x, %wide batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x512xf32>) -> tensor<8x512xf32>
  %1 = loom.broadcast %bias dims = [1] : (tensor<512xf32>) -> tensor<8x512xf32>
  %2 = loom.add %0, %1 : tensor<8x512xf32>
  %3 = loom.dot_general %2, %odd batch = [] x [] contract = [1] x [0] : (tensor<8x512xf32>, tensor<512x96xf32>) -> tensor<8x96xf32>
  return %3 : tensor<8x96xf32>
}

// -----

// A table that another specialisation gathers from stays dense in both.
loom.weight @table : tensor<100x256xf32> from <"", offset = 0, bytes = 102400>
// CHECK-LABEL: func.func @multiplies
// CHECK: loom.get_weight @table {layout = #loom.layout<[0, 1]>}
func.func @multiplies(%x: tensor<8x100xf32>) -> tensor<8x256xf32> {
  %table = loom.get_weight @table : tensor<100x256xf32>
  %0 = loom.dot_general %x, %table batch = [] x [] contract = [1] x [0] : (tensor<8x100xf32>, tensor<100x256xf32>) -> tensor<8x256xf32>
  return %0 : tensor<8x256xf32>
}
// CHECK-LABEL: func.func @gathers
// CHECK: loom.get_weight @table {layout = #loom.layout<[0, 1]>}
func.func @gathers(%i: tensor<8xi64>) -> tensor<8x256xf32> {
  %table = loom.get_weight @table : tensor<100x256xf32>
  %0 = loom.gather %table, %i dim = 0 : (tensor<100x256xf32>, tensor<8xi64>) -> tensor<8x256xf32>
  return %0 : tensor<8x256xf32>
}

// -----

// Two shards of one weight get separate layouts; a weight contracted along its rows is dense.
dist.mesh @mesh <["model" = 2]>
loom.weight @w : tensor<256x512xf32> from <"", offset = 0, bytes = 524288>
// CHECK-LABEL: func.func @shards
// CHECK: loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>, sharding = #dist.sharding<@mesh, [{}, {"model"}]>}
// CHECK: loom.get_weight @w {layout = #loom.layout<[0, 1]>, sharding = #dist.sharding<@mesh, [{"model"}, {}]>}
func.func @shards(%x: tensor<8x256xf32>, %y: tensor<8x512xf32>) -> (tensor<8x256xf32>, tensor<8x128xf32>) {
  %0 = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<256x256xf32>
  %1 = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<128x512xf32>
  %2 = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  %3 = loom.dot_general %y, %1 batch = [] x [] contract = [1] x [1] : (tensor<8x512xf32>, tensor<128x512xf32>) -> tensor<8x128xf32>
  return %2, %3 : tensor<8x256xf32>, tensor<8x128xf32>
}

// -----

// The prologue reads sources in the file's layout.
loom.weight @w : tensor<256x256xf32> from <"", offset = 0, bytes = 262144>
// CHECK-LABEL: loom.derived @d
// CHECK: loom.get_weight @w {layout = #loom.layout<[0, 1]>}
loom.derived @d : tensor<256x256xf32> {
  %0 = loom.get_weight @w : tensor<256x256xf32>
  %1 = loom.transpose %0 [1, 0] : (tensor<256x256xf32>) -> tensor<256x256xf32>
  loom.yield %1 : tensor<256x256xf32>
}
// CHECK-LABEL: func.func @uses
// CHECK: loom.get_weight @d {layout = #loom.layout<[0, 1], pad = 16>}
// CHECK: loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>}
func.func @uses(%x: tensor<8x256xf32>) -> tensor<8x256xf32> {
  %0 = loom.get_weight @d : tensor<256x256xf32>
  %1 = loom.get_weight @w : tensor<256x256xf32>
  %2 = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  %3 = loom.dot_general %2, %1 batch = [] x [] contract = [1] x [0] : (tensor<8x256xf32>, tensor<256x256xf32>) -> tensor<8x256xf32>
  return %3 : tensor<8x256xf32>
}
