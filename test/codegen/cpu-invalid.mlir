// RUN: gridloom-opt %s --plan-emit-cpu --split-input-file --verify-diagnostics

// expected-error@+1 {{kernel k (ONNX nodes /layer/CumSum): loom.cumulative has no kernel code; keep it out of kernels}}
plan.kernel @k {
^bb0(%x: tensor<4x4xf32>):
  %y = loom.add %x, %x : tensor<4x4xf32>
  %0 = loom.cumulative sum %y dim = 1 : tensor<4x4xf32> loc("/layer/CumSum")
  loom.yield %0 : tensor<4x4xf32>
}

// -----

// expected-error@+1 {{no code for 'tensor<4xi4>'}}
plan.kernel @narrow {
^bb0(%x: tensor<4xi4>):
  %0 = loom.add %x, %x : tensor<4xi4>
  loom.yield %0 : tensor<4xi4>
}
