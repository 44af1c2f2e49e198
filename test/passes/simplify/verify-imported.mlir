// RUN: gridloom-opt %s --loom-verify-imported --split-input-file --verify-diagnostics

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  func.func @main(%x: tensor<4xf32> {loom.name = "x", loom.dim_names = [""]}) -> (tensor<4xf32> {loom.name = "y", loom.dim_names = [""]})
      attributes {loom.entry = "main", loom.dims = {}} {
    %0 = loom.exp %x : tensor<4xf32> loc("Exp")
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error @below {{does not say which model it comes from}}
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
    // expected-error @below {{has no ONNX node in its location}}
    %0 = loom.exp %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {loom.model = {path = "m.onnx"}, loom.folded = []} {
  // expected-error @below {{has 0 blocks}}
  func.func private @other(tensor<4xf32>) -> tensor<4xf32>
}
