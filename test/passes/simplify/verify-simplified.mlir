// RUN: gridloom-opt %s --loom-verify-simplified --split-input-file --verify-diagnostics

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    %c = loom.constant dense<2.0> : tensor<f32> loc("Constant")
    // F-G1
    // expected-error @unknown {{has constant operands and 16 bytes of result, but is not folded}}
    %0 = loom.broadcast %c dims = [] : (tensor<f32>) -> tensor<4xf32> loc("Add")
    %1 = loom.add %x, %0 : tensor<4xf32> loc("Add")
    return %1 : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    %w = loom.get_weight @w : tensor<4xf32> loc("w")
    // F-G2
    // expected-error @unknown {{depends on weights alone, but is not in the prologue}}
    %0 = loom.exp %w : tensor<4xf32> loc("Exp")
    %1 = loom.add %x, %0 : tensor<4xf32> loc("Add")
    return %1 : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // F-G3
  // expected-error @below {{is not used}}
  loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    return %x : tensor<4xf32>
  }
  // F-G4
  // expected-error @below {{is the body of nothing}}
  func.func @main_then(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.body} {
    return %x : tensor<4xf32>
  }
}
