// RUN: gridloom-opt %s --dist-search-splits="axes=x" 2>&1 | FileCheck %s

// The costs that break ties between equal choices are part of the time and of the bound, even those of arguments.
// CHECK: remark: search: the program takes [[MS:[0-9.]+]] ms on a device, one operation after another; no choice of splits takes less than [[MS]] ms
dist.mesh @mesh <["x" = 2]>
func.func @main(%x: tensor<65536x16384xf32> {loom.name = "x"}, %z: tensor<65536x16384xf32> {loom.name = "z"}) -> (tensor<65536x16384xf32> {loom.name = "y"}) {
  %0 = loom.add %x, %z : tensor<65536x16384xf32>
  return %0 : tensor<65536x16384xf32>
}
