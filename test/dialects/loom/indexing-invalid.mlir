// RUN: gridloom-opt %s --split-input-file --verify-diagnostics

func.func @reverse(%x: tensor<4x6xf32>) {
  // L-RV1
  // expected-error @+1 {{dims must increase}}
  %0 = loom.reverse %x dims = [1, 0] : tensor<4x6xf32>
  return
}

// -----

func.func @gather_elements(%x: tensor<4x6xf32>, %i: tensor<3x5xi64>) {
  // L-GE1
  // expected-error @+1 {{input 'tensor<4x6xf32>' and indices 'tensor<3x5xi64>' differ in dimension 1}}
  %0 = loom.gather_elements %x, %i dim = 0 : (tensor<4x6xf32>, tensor<3x5xi64>) -> tensor<3x5xf32>
  return
}

// -----

func.func @gather_elements(%x: tensor<4x6xf32>, %i: tensor<3x6xi64>) {
  // L-GE2
  // expected-error @+1 {{result is 'tensor<3x6xi64>', expected 'tensor<3x6xf32>'}}
  %0 = loom.gather_elements %x, %i dim = 0 : (tensor<4x6xf32>, tensor<3x6xi64>) -> tensor<3x6xi64>
  return
}

// -----

func.func @scatter(%x: tensor<4x6xf32>, %i: tensor<2xi64>, %u: tensor<2x6xf64>) {
  // L-SC1
  // expected-error @+1 {{element types 'f32' and 'f64' differ}}
  %0 = loom.scatter %x, %i, %u dim = 0 : (tensor<4x6xf32>, tensor<2xi64>, tensor<2x6xf64>) -> tensor<4x6xf32>
  return
}

// -----

func.func @scatter(%x: tensor<4x6xf32>, %i: tensor<3xi64>, %u: tensor<2x6xf32>) {
  // L-SC2
  // expected-error @+1 {{indices 'tensor<3xi64>' are neither one per element nor one per slice of 'tensor<2x6xf32>' along dim 0}}
  %0 = loom.scatter %x, %i, %u dim = 0 : (tensor<4x6xf32>, tensor<3xi64>, tensor<2x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @cumulative(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dim 2 is not a dimension of 'tensor<4x6xf32>'}}
  %0 = loom.cumulative sum %x dim = 2 : tensor<4x6xf32>
  return
}

// -----

func.func @arg_reduce(%x: tensor<4x6xf32>) {
  // L-AR1
  // expected-error @+1 {{kind is sum, expected max or min}}
  %0 = loom.arg_reduce sum %x dim = 0 : (tensor<4x6xf32>) -> tensor<6xi64>
  return
}

// -----

func.func @arg_reduce(%x: tensor<4x0xf32>) {
  // L-AR2
  // expected-error @+1 {{dim 1 of 'tensor<4x0xf32>' is empty}}
  %0 = loom.arg_reduce max %x dim = 1 : (tensor<4x0xf32>) -> tensor<4xi64>
  return
}

// -----

func.func @argsort(%x: tensor<4x6xf32>) {
  // L-AS1
  // expected-error @+1 {{takes 7 of 6 elements}}
  %0 = loom.argsort %x dim = 1 : (tensor<4x6xf32>) -> tensor<4x7xi64>
  return
}

// -----

func.func @bitcast_convert(%x: tensor<4xf32>) {
  // L-BT1
  // expected-error @+1 {{reads 'f32' as 'i64'; their widths differ}}
  %0 = loom.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi64>
  return
}

// -----

func.func @random(%i: tensor<4xi64>) {
  // L-RB1
  // expected-error @+1 {{stream is 4294967296, expected 0 to 4294967295}}
  %0 = loom.random_bits %i seed = 42 stream = 4294967296 : (tensor<4xi64>) -> tensor<4xui32>
  return
}

// -----

func.func @random(%i: tensor<4xi64>) {
  // L-RB1
  // expected-error @+1 {{stream is -1, expected 0 to 4294967295}}
  %0 = loom.random_bits %i seed = 42 stream = -1 : (tensor<4xi64>) -> tensor<4xui32>
  return
}

// -----

func.func @random(%i: tensor<4xi64>, %t: tensor<i64>) {
  // expected-error @+1 {{requires the same shape for all operands and results}}
  %0 = loom.random_bits %i, %t seed = 42 stream = 0 : (tensor<4xi64>, tensor<i64>) -> tensor<4xui32>
  return
}
