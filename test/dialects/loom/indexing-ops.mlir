// RUN: gridloom-opt %s | gridloom-opt | FileCheck %s

// CHECK-LABEL: func.func @order
func.func @order(%x: tensor<4x6xf32>) -> (tensor<4x6xi64>, tensor<2x6xi64>, tensor<4xi64>, tensor<6xi64>) {
  // CHECK: loom.argsort %{{.*}} dim = 1 : (tensor<4x6xf32>) -> tensor<4x6xi64>
  %0 = loom.argsort %x dim = 1 : (tensor<4x6xf32>) -> tensor<4x6xi64>
  // CHECK: loom.argsort %{{.*}} dim = 0 descending : (tensor<4x6xf32>) -> tensor<2x6xi64>
  %1 = loom.argsort %x dim = 0 descending : (tensor<4x6xf32>) -> tensor<2x6xi64>
  // CHECK: loom.arg_reduce max %{{.*}} dim = 1 last : (tensor<4x6xf32>) -> tensor<4xi64>
  %2 = loom.arg_reduce max %x dim = 1 last : (tensor<4x6xf32>) -> tensor<4xi64>
  // CHECK: loom.arg_reduce min %{{.*}} dim = 0 : (tensor<4x6xf32>) -> tensor<6xi64>
  %3 = loom.arg_reduce min %x dim = 0 : (tensor<4x6xf32>) -> tensor<6xi64>
  return %0, %1, %2, %3 : tensor<4x6xi64>, tensor<2x6xi64>, tensor<4xi64>, tensor<6xi64>
}

// CHECK-LABEL: func.func @running
func.func @running(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  // CHECK: loom.cumulative sum %{{.*}} dim = 0 : tensor<4x6xf32>
  %0 = loom.cumulative sum %x dim = 0 : tensor<4x6xf32>
  // CHECK: loom.cumulative max %{{.*}} dim = 1 exclusive reverse : tensor<4x6xf32>
  %1 = loom.cumulative max %x dim = 1 exclusive reverse : tensor<4x6xf32>
  // CHECK: loom.reverse %{{.*}} dims = [0, 1] : tensor<4x6xf32>
  %2 = loom.reverse %x dims = [0, 1] : tensor<4x6xf32>
  return %0, %1, %2 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// CHECK-LABEL: func.func @by_index
func.func @by_index(%x: tensor<4x6xf32>, %i: tensor<4x3xi64>, %u: tensor<4x3xf32>, %j: tensor<3xi32>) -> (tensor<4x3xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  // CHECK: loom.gather_elements %{{.*}}, %{{.*}} dim = 1 : (tensor<4x6xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  %0 = loom.gather_elements %x, %i dim = 1 : (tensor<4x6xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
  // CHECK: loom.scatter %{{.*}}, %{{.*}}, %{{.*}} dim = 1 : (tensor<4x6xf32>, tensor<4x3xi64>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %1 = loom.scatter %x, %i, %u dim = 1 : (tensor<4x6xf32>, tensor<4x3xi64>, tensor<4x3xf32>) -> tensor<4x6xf32>
  // CHECK: loom.scatter %{{.*}}, %{{.*}}, %{{.*}} dim = 1 reduce = sum : (tensor<4x6xf32>, tensor<3xi32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %2 = loom.scatter %x, %j, %u dim = 1 reduce = sum : (tensor<4x6xf32>, tensor<3xi32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  return %0, %1, %2 : tensor<4x3xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// CHECK-LABEL: func.func @elements
func.func @elements(%x: tensor<4xf32>, %n: tensor<4xui32>) -> (tensor<4xui32>, tensor<4xf32>) {
  // CHECK: loom.bitcast_convert %{{.*}} : (tensor<4xf32>) -> tensor<4xui32>
  %0 = loom.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xui32>
  // CHECK: loom.shift_right_logical %{{.*}}, %{{.*}} : tensor<4xui32>
  %1 = loom.shift_right_logical %0, %n : tensor<4xui32>
  // CHECK: loom.xor %{{.*}}, %{{.*}} : tensor<4xui32>
  %2 = loom.xor %1, %n : tensor<4xui32>
  // CHECK: loom.remainder %{{.*}}, %{{.*}} : tensor<4xf32>
  %3 = loom.remainder %x, %x : tensor<4xf32>
  return %2, %3 : tensor<4xui32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @random
func.func @random(%i: tensor<4xi64>, %t: tensor<4xi64>) -> (tensor<4xui32>, tensor<4xui32>) {
  // CHECK: loom.random_bits %{{.*}} seed = -5 stream = 4294967295 : (tensor<4xi64>) -> tensor<4xui32>
  %0 = loom.random_bits %i seed = -5 stream = 4294967295 : (tensor<4xi64>) -> tensor<4xui32>
  // CHECK: loom.random_bits %{{.*}}, %{{.*}} seed = 42 stream = 0 : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xui32>
  %1 = loom.random_bits %i, %t seed = 42 stream = 0 : (tensor<4xi64>, tensor<4xi64>) -> tensor<4xui32>
  return %0, %1 : tensor<4xui32>, tensor<4xui32>
}
