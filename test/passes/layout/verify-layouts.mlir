// RUN: gridloom-opt %s --split-input-file --loom-verify-layouts --verify-diagnostics

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
func.func @missing() -> tensor<8x16xf32> {
  // expected-error @+1 {{weight @w has no layout; run loom-assign-layouts}}
  %0 = loom.get_weight @w : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
func.func @order() -> tensor<8x16xf32> {
  // expected-error @+1 {{layout #loom.layout<[0, 0]> of weight @w is not a permutation of 2 dimensions}}
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 0]>} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
func.func @padded() -> tensor<8x16xf32> {
  // expected-error @+1 {{weight @w has padded rows but feeds loom.exp, which reads dense tensors; lay it out dense}}
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<8x16xf32>
  %1 = loom.exp %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
func.func @one(%x: tensor<2x8xf32>) -> tensor<2x16xf32> {
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<8x16xf32>
  %1 = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
  return %1 : tensor<2x16xf32>
}
func.func @other(%x: tensor<2x8xf32>) -> tensor<2x16xf32> {
  // expected-error @+1 {{weight @w has layout #loom.layout<[0, 1]> here and #loom.layout<[0, 1], pad = 16> elsewhere; a plan has one}}
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 1]>} : tensor<8x16xf32>
  %1 = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
  return %1 : tensor<2x16xf32>
}

// -----

loom.weight @w : tensor<8x16xf32> from <"", offset = 0, bytes = 512>
func.func @negative() -> tensor<8x16xf32> {
  // expected-error @+1 {{layout #loom.layout<[0, 1], pad = -16> of weight @w has a negative pad}}
  %0 = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = -16>} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

func.func @computed(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // expected-error @+1 {{has layout #loom.layout<[1, 0]>; only weights have one, all else is dense}}
  %0 = loom.exp %x {layout = #loom.layout<[1, 0]>} : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

func.func @encoded(%x: tensor<8x16xf32, "columns">) -> tensor<8x16xf32, "columns"> {
  // expected-error @+1 {{gives 'tensor<8x16xf32, "columns">', whose encoding no later phase reads}}
  %0 = loom.exp %x : tensor<8x16xf32, "columns">
  return %0 : tensor<8x16xf32, "columns">
}
