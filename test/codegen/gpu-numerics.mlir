// Runs the PTX of every kernel in the fake GPU's interpreter and compares with plain Python.
// RUN: gridloom-opt %s --plan-print-ptx -o /dev/null > %t.ptx
// RUN: %python %S/check_ptx.py %t.ptx
// Without libdevice the math functions are polynomials.
// RUN: gridloom-opt %s --plan-print-ptx=toolkit=/nonexistent -o /dev/null > %t.2.ptx
// RUN: %python %S/check_ptx.py %t.2.ptx

plan.kernel @bias_gelu_erf {
^bb0(%x: tensor<5x12xf32>, %b: tensor<12xf32>):
  %0 = loom.broadcast %b dims = [1] : (tensor<12xf32>) -> tensor<5x12xf32>
  %1 = loom.add %x, %0 : tensor<5x12xf32>
  %2 = loom.gelu erf %1 : tensor<5x12xf32>
  loom.yield %2 : tensor<5x12xf32>
}

plan.kernel @gelu_tanh {
^bb0(%x: tensor<301xf32>):
  %0 = loom.gelu tanh %x : tensor<301xf32>
  loom.yield %0 : tensor<301xf32>
}

plan.kernel @functions {
^bb0(%x: tensor<7x4xf32>):
  %0 = loom.exp %x : tensor<7x4xf32>
  %1 = loom.tanh %x : tensor<7x4xf32>
  %2 = loom.logistic %x : tensor<7x4xf32>
  %3 = loom.log %0 : tensor<7x4xf32>
  %4 = loom.sqrt %0 : tensor<7x4xf32>
  %5 = loom.rsqrt %0 : tensor<7x4xf32>
  %6 = loom.divide %1, %0 : tensor<7x4xf32>
  %7 = loom.maximum %x, %1 : tensor<7x4xf32>
  loom.yield %0, %1, %2, %3, %4, %5, %6, %7 : tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>, tensor<7x4xf32>
}

plan.kernel @masked {
^bb0(%x: tensor<3x5x8xf32>, %m: tensor<3x8xi64>):
  %z = loom.constant dense<0> : tensor<3x8xi64>
  %p = loom.compare ne %m, %z : (tensor<3x8xi64>, tensor<3x8xi64>) -> tensor<3x8xi1>
  %b = loom.broadcast %p dims = [0, 2] : (tensor<3x8xi1>) -> tensor<3x5x8xi1>
  %l = loom.constant dense<-1.0e9> : tensor<3x5x8xf32>
  %0 = loom.select %b, %x, %l : tensor<3x5x8xi1>, tensor<3x5x8xf32>
  loom.yield %0, %p : tensor<3x5x8xf32>, tensor<3x8xi1>
}

plan.kernel @split_heads {
^bb0(%x: tensor<6x24xf32>):
  %0 = loom.reshape %x : (tensor<6x24xf32>) -> tensor<2x3x3x8xf32>
  %1 = loom.transpose %0 [0, 2, 1, 3] : (tensor<2x3x3x8xf32>) -> tensor<2x3x3x8xf32>
  %2 = loom.transpose %0 [0, 2, 3, 1] : (tensor<2x3x3x8xf32>) -> tensor<2x3x8x3xf32>
  loom.yield %1, %2 : tensor<2x3x3x8xf32>, tensor<2x3x8x3xf32>
}

plan.kernel @embed {
^bb0(%t: tensor<10x8xf32>, %i: tensor<2x3xi64>):
  %0 = loom.gather %t, %i dim = 0 : (tensor<10x8xf32>, tensor<2x3xi64>) -> tensor<2x3x8xf32>
  loom.yield %0 : tensor<2x3x8xf32>
}

plan.kernel @constants {
^bb0(%x: tensor<2x5xf32>, %y: tensor<2x3xf32>):
  %c = loom.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>
  %b = loom.broadcast %c dims = [1] : (tensor<5xf32>) -> tensor<2x5xf32>
  %0 = loom.multiply %x, %b : tensor<2x5xf32>
  %1 = loom.concatenate %0, %y dim = 1 : (tensor<2x5xf32>, tensor<2x3xf32>) -> tensor<2x8xf32>
  %2 = loom.iota dim = 1 : tensor<2x8xf32>
  %3 = loom.add %1, %2 : tensor<2x8xf32>
  loom.yield %3 : tensor<2x8xf32>
}

plan.kernel @halves {
^bb0(%x: tensor<9xf16>, %y: tensor<9xbf16>):
  %0 = loom.convert %x : (tensor<9xf16>) -> tensor<9xf32>
  %1 = loom.convert %y : (tensor<9xbf16>) -> tensor<9xf32>
  %2 = loom.add %0, %1 : tensor<9xf32>
  %3 = loom.convert %2 : (tensor<9xf32>) -> tensor<9xf16>
  %4 = loom.convert %2 : (tensor<9xf32>) -> tensor<9xbf16>
  loom.yield %3, %4 : tensor<9xf16>, tensor<9xbf16>
}

plan.kernel @pad_around {
^bb0(%x: tensor<2x3x5xf32>):
  %0 = loom.pad %x value = 0.5 : f32 low = [0, 1, 2] high = [0, 0, 1] interior = [0, 0, 0] : (tensor<2x3x5xf32>) -> tensor<2x4x8xf32>
  loom.yield %0 : tensor<2x4x8xf32>
}

plan.kernel @columns {
^bb0(%x: tensor<2x3x9xf32>):
  %0 = loom.window %x dims = [2] sizes = [3] strides = [2] dilations = [1] : (tensor<2x3x9xf32>) -> tensor<2x3x4x3xf32>
  %1 = loom.transpose %0 [0, 1, 3, 2] : (tensor<2x3x4x3xf32>) -> tensor<2x3x3x4xf32>
  loom.yield %1 : tensor<2x3x3x4xf32>
}

plan.kernel @convolve_channels {
^bb0(%x: tensor<2x3x5x7xf32>, %w: tensor<3x3x3xf32>):
  %0 = loom.window %x dims = [2, 3] sizes = [3, 3] strides = [1, 2] dilations = [1, 1] : (tensor<2x3x5x7xf32>) -> tensor<2x3x3x3x3x3xf32>
  %1 = loom.broadcast %w dims = [1, 4, 5] : (tensor<3x3x3xf32>) -> tensor<2x3x3x3x3x3xf32>
  %2 = loom.multiply %0, %1 : tensor<2x3x3x3x3x3xf32>
  %3 = loom.reduce sum %2 dims = [4, 5] : (tensor<2x3x3x3x3x3xf32>) -> tensor<2x3x3x3xf32>
  loom.yield %3 : tensor<2x3x3x3xf32>
}
