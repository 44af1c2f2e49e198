// RUN: gridloom-opt %s --loom-verify-imported --split-input-file --verify-diagnostics

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    %0 = loom.exp %x : tensor<4xf32> loc("Exp")
    return %0 : tensor<4xf32>
  }
}

// -----

// I-G1
// expected-error @below {{does not name the model it comes from}}
module {
}

// -----

// expected-error @below {{has no functions}}
module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // expected-error @below {{has no attribute loom.dims}}
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {loom.entry = "main"} {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // expected-error @below {{argument 0 has no name or no dimension names}}
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> attributes {loom.entry = "main", loom.dims = {}} {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // expected-error @below {{result 0 has no name or no dimension names}}
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> tensor<4xf32>
      attributes {loom.entry = "main", loom.dims = {}} {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    // I-G3
    // expected-error @below {{has no ONNX node in its location: loc(}}
    %0 = loom.exp %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // expected-error @below {{has 0 blocks}}
  func.func private @other(tensor<4xf32>) -> tensor<4xf32>
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    // I-G2
    // expected-error @below {{is not a loom operation}}
    %0 = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4xf32>
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    // I-G4
    // expected-error @unknown {{gives 'tensor<4xi3>', not a tensor of static shape}}
    %0 = loom.convert %x : (tensor<4xf32>) -> tensor<4xi3> loc("Cast")
    return %x : tensor<4xf32>
  }
}
