// RUN: gridloom-opt %s --plan-emit-cpu | FileCheck %s --check-prefix=CPU
// RUN: gridloom-opt %s --plan-emit-gpu | FileCheck %s --check-prefix=GPU

// Arguments that a kernel records as in place may alias; all others are noalias.

// CPU-LABEL: func.func private @none.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @none
// GPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}) kernel
plan.kernel @none {
^bb0(%x: tensor<64xf32>, %y: tensor<64xf32>):
  %0 = loom.add %x, %y : tensor<64xf32>
  loom.yield %0 : tensor<64xf32>
}

// CPU-LABEL: func.func private @second.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @second
// GPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>) kernel
plan.kernel @second in_place = [#plan.in_place<output = 0, input = 1>] {
^bb0(%x: tensor<64xf32>, %y: tensor<64xf32>):
  %0 = loom.add %x, %y : tensor<64xf32>
  loom.yield %0 : tensor<64xf32>
}

// CPU-LABEL: func.func private @both.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @both
// GPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32>) kernel
plan.kernel @both in_place = [#plan.in_place<output = 0, input = 0>, #plan.in_place<output = 0, input = 1>] {
^bb0(%x: tensor<64xf32>, %y: tensor<64xf32>):
  %0 = loom.add %x, %y : tensor<64xf32>
  loom.yield %0 : tensor<64xf32>
}

// An output is noalias to the memory that another output may reuse only as far as recorded.
// CPU-LABEL: func.func private @two.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @two
// GPU-SAME: (%{{[a-z0-9]+}}: memref<64xf32>, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<64xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<64xf32>) kernel
plan.kernel @two in_place = [#plan.in_place<output = 1, input = 0>] {
^bb0(%x: tensor<64xf32>, %y: tensor<64xf32>):
  %0 = loom.exp %y : tensor<64xf32>
  %1 = loom.add %x, %y : tensor<64xf32>
  loom.yield %0, %1 : tensor<64xf32>, tensor<64xf32>
}

// CPU-LABEL: func.func private @scatter.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<20xf32>, %{{[a-z0-9]+}}: memref<2xi64> {llvm.noalias}, %{{[a-z0-9]+}}: memref<8xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<20xf32>, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @scatter
// GPU-SAME: (%{{[a-z0-9]+}}: memref<20xf32>, %{{[a-z0-9]+}}: memref<2xi64> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<8xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<20xf32>) kernel
plan.kernel @scatter in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<5x4xf32>, %i: tensor<2xi64>, %u: tensor<2x4xf32>):
  %0 = loom.scatter %x, %i, %u dim = 0 : (tensor<5x4xf32>, tensor<2xi64>, tensor<2x4xf32>) -> tensor<5x4xf32>
  loom.yield %0 : tensor<5x4xf32>
}

// Lanes without records promise that nothing overlaps.
// CPU-LABEL: func.func private @running.rows
// CPU-SAME: (%{{[a-z0-9]+}}: memref<20xf32> {llvm.noalias}, %{{[a-z0-9]+}}: memref<20xf32> {llvm.noalias}, %{{[a-z0-9]+}}: index, %{{[a-z0-9]+}}: index)
// GPU-LABEL: gpu.func @running
// GPU-SAME: (%{{[a-z0-9]+}}: memref<20xf32> {llvm.noalias, llvm.readonly}, %{{[a-z0-9]+}}: memref<20xf32> {llvm.noalias}) kernel
plan.kernel @running {
^bb0(%x: tensor<5x4xf32>):
  %0 = loom.cumulative sum %x dim = 1 : tensor<5x4xf32>
  loom.yield %0 : tensor<5x4xf32>
}
