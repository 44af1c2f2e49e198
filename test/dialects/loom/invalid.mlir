// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{dim 2 is not a dimension of}}
  %0 = loom.iota dim = 2 : tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-BC1
  // expected-error @below {{names 1 dimensions for an input of rank 2}}
  %0 = loom.broadcast %x dims = [0] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-BC1
  // expected-error @below {{dims must increase}}
  %0 = loom.broadcast %x dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-BC2
  // expected-error @below {{input dimension 1 is 3, output dimension 1 is 4}}
  %0 = loom.broadcast %x dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{element types 'f32' and 'f64' differ}}
  %0 = loom.broadcast %x dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{input has 6 elements, output 8}}
  %0 = loom.reshape %x : (tensor<2x3xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{permutes 1 dimensions of}}
  %0 = loom.transpose %x [0] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{dimension 0 is named twice}}
  %0 = loom.transpose %x [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{result is 'tensor<2x3xf32>', expected 'tensor<3x2xf32>'}}
  %0 = loom.transpose %x [1, 0] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{needs 2 starts, limits and strides}}
  %0 = loom.slice %x [0] to [2, 3] by [1, 1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{slice 0 to 4 by 1 leaves a dimension of 3}}
  %0 = loom.slice %x [0, 0] to [2, 4] by [1, 1] : (tensor<2x3xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f() {
  // expected-error @below {{needs an operand}}
  %0 = loom.concatenate  dim = 0 : () -> tensor<2xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<6xf32>) {
  // expected-error @below {{differ in rank}}
  %0 = loom.concatenate %x, %y dim = 0 : (tensor<2x3xf32>, tensor<6xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error @below {{differ in dimension 1}}
  %0 = loom.concatenate %x, %y dim = 0 : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %i: tensor<4xi64>) {
  // expected-error @below {{result is 'tensor<2x3xf32>', expected 'tensor<4x3xf32>'}}
  %0 = loom.gather %x, %i dim = 0 : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @below {{contract lists 1 and 0 dimensions}}
  %0 = loom.dot_general %x, %y batch = [] x [] contract = [1] x [] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<4x5xf32>) {
  // L-DG1
  // expected-error @below {{contract dimensions are 3 and 4}}
  %0 = loom.dot_general %x, %y batch = [] x [] contract = [1] x [0] : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%x: tensor<3x3xf32>, %y: tensor<3x3xf32>) {
  // L-DG2
  // expected-error @below {{contract names a dimension twice}}
  %0 = loom.dot_general %x, %y batch = [] x [] contract = [1, 1] x [0, 1] : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // L-DG3
  // expected-error @below {{element types 'f32' and 'f64' differ}}
  %0 = loom.dot_general %x, %y batch = [] x [] contract = [1] x [0] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-RD1
  // expected-error @below {{dims must increase}}
  %0 = loom.reduce sum %x dims = [1, 0] : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // L-RD2
  // expected-error @below {{result is 'tensor<3xf32>', expected 'tensor<2xf32>'}}
  %0 = loom.reduce sum %x dims = [1] : (tensor<2x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>) {
  // expected-error @below {{dim 2 is not a dimension of}}
  %0 = loom.softmax %x dim = 2 : tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<f32>, %s: tensor<1xf32>) {
  // expected-error @below {{needs an input of rank 1 or more}}
  %0 = loom.layer_norm %x, %s epsilon = 1.0e-5 : (tensor<f32>, tensor<1xf32>) -> tensor<f32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %s: tensor<2xf32>) {
  // expected-error @below {{parameter is 'tensor<2xf32>' for rows of 3}}
  %0 = loom.layer_norm %x, %s epsilon = 1.0e-5 : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3xf32>, %s: tensor<2xf32>) {
  // expected-error @below {{parameter is 'tensor<2xf32>' for rows of 3}}
  %0 = loom.rms_norm %x, %s epsilon = 1.0e-5 : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @f() {
  // expected-error @below {{names no weight: @missing}}
  %0 = loom.get_weight @missing : tensor<2xf32>
  return
}

// -----

loom.weight @w : tensor<2xf32> from <"", offset = 0, bytes = 8>
func.func @f() {
  // expected-error @below {{has type 'tensor<3xf32>', the weight 'tensor<2xf32>'}}
  %0 = loom.get_weight @w : tensor<3xf32>
  return
}
