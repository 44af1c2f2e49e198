// RUN: gridloom-opt %s | gridloom-opt | FileCheck %s

// CHECK-LABEL: func.func @conversions
func.func @conversions(%x: tensor<4xf32>) -> (tensor<4xf8E4M3FN>, tensor<4xf8E5M2>, tensor<4xf16>) {
  // CHECK: loom.convert %{{.*}} : (tensor<4xf32>) -> tensor<4xf8E4M3FN>
  %0 = loom.convert %x : (tensor<4xf32>) -> tensor<4xf8E4M3FN>
  // CHECK: loom.convert unsaturated %{{.*}} : (tensor<4xf32>) -> tensor<4xf8E5M2>
  %1 = loom.convert unsaturated %x : (tensor<4xf32>) -> tensor<4xf8E5M2>
  // CHECK: loom.convert %{{.*}} : (tensor<4xf8E4M3FN>) -> tensor<4xf16>
  %2 = loom.convert %0 : (tensor<4xf8E4M3FN>) -> tensor<4xf16>
  return %0, %1, %2 : tensor<4xf8E4M3FN>, tensor<4xf8E5M2>, tensor<4xf16>
}
