// RUN: not gridloom-opt %s --dist-search-splits="axes=x,y most-table-bytes=100" 2>&1 | FileCheck %s

// The size of a search's tables is known before they are made.
// CHECK: error: a search over x, y needs tables of {{[0-9.]+}} KiB, the most are 100 bytes; search over fewer axes, as x=4 in place of a=2,b=2
dist.mesh @mesh <["x" = 2, "y" = 2]>
func.func @main(%x: tensor<8x8xf32> {loom.name = "x"}) -> (tensor<8x8xf32> {loom.name = "y"}) {
  %0 = loom.exp %x : tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
