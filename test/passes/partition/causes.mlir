// RUN: gridloom-opt %s --split-input-file --mlir-print-debuginfo --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-insert-reshards --dist-lower-reshards --dist-localize --dist-split-stages --dist-verify-partitioned | FileCheck %s

// A window reads its neighbours' rows.
dist.mesh @mesh <["x" = 4]>
// CHECK-LABEL: func.func @halo
// CHECK: dist.permute {{.*}}dist.because = "'pool' reads the shards of its neighbours along 'x'"
func.func @halo(%x: tensor<1x1x16x8xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {}, {"x"}, {}]>, dist.origin = #dist.origin<"user">})
    -> (tensor<1x1x16x8xf32> {loom.name = "y"}) {
  %0 = loom.reduce_window max %x dims = [2] sizes = [3] strides = [1] low = [1] high = [1] dilations = [1] : (tensor<1x1x16x8xf32>) -> tensor<1x1x16x8xf32> loc("pool")
  return %0 : tensor<1x1x16x8xf32>
}

// -----

// The operation reduces over a split dimension; the output must be whole.
dist.mesh @mesh <["x" = 2]>
// CHECK-LABEL: func.func @softmax
// CHECK: dist.all_reduce {{.*}} max {dist.because = "'normalize' takes the max over a dimension that 'x' splits"
// CHECK: dist.all_reduce {{.*}} sum {dist.because = "'normalize' takes the sum over a dimension that 'x' splits"
// CHECK: dist.all_gather {{.*}}dist.because = "output 'y', made by 'normalize', needs all of a value that 'x' splits"
func.func @softmax(%x: tensor<4x8xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {"x"}]>, dist.origin = #dist.origin<"user">})
    -> (tensor<4x8xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.softmax %x dim = 1 : tensor<4x8xf32> loc("normalize")
  return %0 : tensor<4x8xf32>
}

// -----

// Both ends of a transfer name the reader.
module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
// CHECK-LABEL: func.func @main_stage0
// CHECK: dist.send {{.*}}dist.because = "'b' of stage 1 reads a result of stage 0"
// CHECK-LABEL: func.func @main_stage1
// CHECK: dist.recv {{.*}}dist.because = "'b' of stage 1 reads a result of stage 0"
func.func @main(%x: tensor<64x64xf32> {loom.name = "x"}) -> (tensor<64x64xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<64x64xf32> loc("a")
  %1 = loom.tanh %0 : tensor<64x64xf32> loc("b")
  return %1 : tensor<64x64xf32>
}
}
