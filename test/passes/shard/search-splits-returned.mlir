// RUN: gridloom-opt %s --dist-search-splits="axes=x" 2>&1 | FileCheck %s

// The time and the bound include the gather of an argument that is returned unchanged.
// CHECK: remark: search: the program takes [[MS:[0-9.]*[1-9][0-9.]*]] ms on a device, one operation after another; no choice of splits takes less than [[MS]] ms
dist.mesh @mesh <["x" = 2]>
func.func @main(%x: tensor<65536x16384xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<65536x16384xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  return %x : tensor<65536x16384xf32>
}
