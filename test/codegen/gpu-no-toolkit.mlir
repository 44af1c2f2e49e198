// Without libdevice, what has no instruction and no polynomial is an error of the compiler, not of the driver that loads it.
// RUN: not gridloom-opt %s --split-input-file --plan-print-ptx=toolkit=/nonexistent -o /dev/null 2>&1 | FileCheck %s

// CHECK: kernel remainder: arith.remf of 'f32' needs libdevice of the CUDA toolkit; set CUDA_HOME
plan.kernel @remainder {
^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>):
  %0 = loom.remainder %x, %y : tensor<8xf32>
  loom.yield %0 : tensor<8xf32>
}

// -----

// CHECK: kernel sine: math.sin of 'f64' needs libdevice of the CUDA toolkit; set CUDA_HOME
plan.kernel @sine {
^bb0(%x: tensor<8xf64>):
  %0 = loom.sine %x : tensor<8xf64>
  loom.yield %0 : tensor<8xf64>
}
