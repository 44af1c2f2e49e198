// RUN: gridloom-opt %s --plan-emit-gpu --split-input-file --verify-diagnostics

// expected-error@+1 {{integer powers are not available for target cuda: kernel k (ONNX nodes /rows/Pow)}}
plan.kernel @k elementwise {
^bb0(%x: tensor<4x4xi32>):
  %0 = loom.power %x, %x : tensor<4x4xi32> loc("/rows/Pow")
  loom.yield %0 : tensor<4x4xi32> loc("/rows/Pow")
}

// -----

// expected-error@+1 {{loom.cumulative is not available for target cuda: kernel k (ONNX nodes /rows/CumSum)}}
plan.kernel @k general {
^bb0(%x: tensor<4x4xf32>):
  %0 = loom.cumulative sum %x dim = 1 : tensor<4x4xf32> loc("/rows/CumSum")
  loom.yield %0 : tensor<4x4xf32> loc("/rows/CumSum")
}
