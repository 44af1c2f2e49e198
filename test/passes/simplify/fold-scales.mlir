// RUN: gridloom-opt %s --loom-fold-scales | FileCheck %s

loom.weight @w : tensor<8x3x1xf32> from <"", offset = 0, bytes = 96>
loom.weight @scale : tensor<8xf32> from <"", offset = 96, bytes = 32>
loom.weight @bias : tensor<8x1xf32> from <"", offset = 128, bytes = 32>

// Batch normalisation after a convolution with a bias.
// CHECK-LABEL: func.func @normalised
func.func @normalised(%x: tensor<2x3x9xf32>) -> tensor<2x8x9xf32> {
  // CHECK-DAG: %[[W:.*]] = loom.get_weight @w
  // CHECK-DAG: %[[S:.*]] = loom.get_weight @scale
  // CHECK-DAG: %[[B:.*]] = loom.get_weight @bias
  // CHECK-DAG: %[[V:.*]] = loom.reshape %[[B]] : (tensor<8x1xf32>) -> tensor<8xf32>
  // CHECK-DAG: %[[SW:.*]] = loom.broadcast %[[S]] dims = [0] : (tensor<8xf32>) -> tensor<8x3x1xf32>
  // CHECK-DAG: %[[WS:.*]] = loom.multiply %[[W]], %[[SW]]
  // CHECK-DAG: %[[C:.*]] = loom.convolution %arg0, %[[WS]]
  // CHECK-DAG: %[[BS:.*]] = loom.multiply %[[V]], %[[S]]
  // CHECK-DAG: %[[SUM:.*]] = loom.add %[[BS]], %[[S]] : tensor<8xf32>
  // CHECK: %[[R:.*]] = loom.broadcast %[[SUM]] dims = [1]
  // CHECK: %[[Y:.*]] = loom.add %[[C]], %[[R]]
  // CHECK: return %[[Y]]
  %w = loom.get_weight @w : tensor<8x3x1xf32>
  %s = loom.get_weight @scale : tensor<8xf32>
  %b = loom.get_weight @bias : tensor<8x1xf32>
  %c = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1]
      groups = 1 : (tensor<2x3x9xf32>, tensor<8x3x1xf32>) -> tensor<2x8x9xf32>
  %bb = loom.broadcast %b dims = [1, 2] : (tensor<8x1xf32>) -> tensor<2x8x9xf32>
  %0 = loom.add %c, %bb : tensor<2x8x9xf32>
  %sb = loom.broadcast %s dims = [1] : (tensor<8xf32>) -> tensor<2x8x9xf32>
  %1 = loom.multiply %0, %sb : tensor<2x8x9xf32>
  %2 = loom.add %1, %sb : tensor<2x8x9xf32>
  return %2 : tensor<2x8x9xf32>
}

// A scale that depends on the input stays, and so does one whose operand has other readers.
// CHECK-LABEL: func.func @kept
// CHECK: %[[W:.*]] = loom.get_weight @w
// CHECK: %[[C:.*]] = loom.convolution %arg0, %[[W]]
// CHECK: %[[B:.*]] = loom.broadcast %arg1
// CHECK: loom.multiply %[[C]], %[[B]]
// CHECK: %[[D:.*]] = loom.convolution %arg0, %[[W]]
// CHECK: loom.multiply %[[D]]
func.func @kept(%x: tensor<2x3x9xf32>, %v: tensor<8xf32>) -> (tensor<2x8x9xf32>, tensor<2x8x9xf32>, tensor<2x8x9xf32>) {
  %w = loom.get_weight @w : tensor<8x3x1xf32>
  %s = loom.get_weight @scale : tensor<8xf32>
  %c = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1]
      groups = 1 : (tensor<2x3x9xf32>, tensor<8x3x1xf32>) -> tensor<2x8x9xf32>
  %vb = loom.broadcast %v dims = [1] : (tensor<8xf32>) -> tensor<2x8x9xf32>
  %0 = loom.multiply %c, %vb : tensor<2x8x9xf32>
  %d = loom.convolution %x, %w strides = [1] low = [0] high = [0] input_dilations = [1] dilations = [1]
      groups = 1 : (tensor<2x3x9xf32>, tensor<8x3x1xf32>) -> tensor<2x8x9xf32>
  %sb = loom.broadcast %s dims = [1] : (tensor<8xf32>) -> tensor<2x8x9xf32>
  %1 = loom.multiply %d, %sb : tensor<2x8x9xf32>
  return %0, %1, %d : tensor<2x8x9xf32>, tensor<2x8x9xf32>, tensor<2x8x9xf32>
}
