// RUN: gridloom-opt %s --plan-emit-gpu --split-input-file --verify-diagnostics

// expected-error@+1 {{the row skeleton is not available for target cuda: kernel k (ONNX nodes /attention/Softmax)}}
plan.kernel @k row {
^bb0(%x: tensor<4x4xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<4x4xf32> loc("/attention/Softmax")
  loom.yield %0 : tensor<4x4xf32> loc("/attention/Softmax")
}
