// RUN: gridloom-opt %s --plan-emit-cpu --canonicalize --cse | FileCheck %s

// Three passes; the exponentials are kept for the last pass.
// CHECK-LABEL: func.func private @softmax.rows
// CHECK: %[[KEPT:.*]] = memref.alloca() {alignment = 64 : i64} : memref<32xf32>
// CHECK: scf.for %[[R:.*]] =
// CHECK: scf.for {{.*}} iter_args
// CHECK: %[[ABOVE:.*]] = arith.cmpf ogt, %[[A:.*]], %[[V:.*]] : vector<16xf32>
// CHECK: arith.select %[[ABOVE]], %[[A]], %[[V]]
// CHECK: %[[MAX:.*]] = vector.reduction <maxnumf>
// CHECK: scf.for %[[I:.*]] = {{.*}} iter_args
// CHECK: %[[E:.*]] = math.exp
// CHECK: vector.store %[[E]], %[[KEPT]][%[[I]]]
// CHECK: %[[SUM:.*]] = vector.reduction <add>
// CHECK: %[[SCALE:.*]] = arith.divf %{{.*}}, %[[SUM]] : f32
// CHECK: scf.for %[[J:.*]] =
// CHECK-NOT: math.exp
// CHECK: vector.load %[[KEPT]][%[[J]]]
// CHECK: vector.store
plan.kernel @softmax {
^bb0(%x: tensor<8x32xf32>):
  %0 = loom.softmax %x dim = 1 : tensor<8x32xf32>
  loom.yield %0 : tensor<8x32xf32>
}

// One square root per row.
// CHECK-LABEL: func.func private @layer_norm.rows
// CHECK: vector.reduction <add>
// CHECK: vector.reduction <add>
// CHECK: math.rsqrt %{{.*}} : f32
// CHECK: scf.for
// CHECK-NOT: math.rsqrt
// CHECK: return
plan.kernel @layer_norm {
^bb0(%x: tensor<8x32xf32>, %s: tensor<32xf32>, %b: tensor<32xf32>):
  %0 = loom.layer_norm %x, %s, %b epsilon = 1.0e-5 : (tensor<8x32xf32>, tensor<32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
  loom.yield %0 : tensor<8x32xf32>
}

// A reduction over a leading dimension accumulates vector lanes side by side.
// CHECK-LABEL: func.func private @pool.rows
// CHECK: scf.for %{{.*}} iter_args(%[[A:.*]] = %{{.*}}) -> (vector<16xf32>)
// CHECK: %[[V:.*]] = vector.load %{{.*}} : memref<640xf32>, vector<16xf32>
// CHECK: arith.addf %[[A]], %[[V]] : vector<16xf32>
// CHECK-NOT: vector.reduction
// CHECK: return
plan.kernel @pool {
^bb0(%x: tensor<4x5x32xf32>):
  %0 = loom.reduce sum %x dims = [1] : (tensor<4x5x32xf32>) -> tensor<4x32xf32>
  loom.yield %0 : tensor<4x32xf32>
}

// 16-bit floats are summed in f32.
// CHECK-LABEL: func.func private @half_sum.rows
// CHECK: arith.extf %{{.*}} : vector<16xf16> to vector<16xf32>
// CHECK: arith.addf %{{.*}} : vector<16xf32>
// CHECK: arith.truncf %{{.*}} : f32 to f16
plan.kernel @half_sum {
^bb0(%x: tensor<8x32xf16>):
  %0 = loom.reduce sum %x dims = [1] : (tensor<8x32xf16>) -> tensor<8xf16>
  loom.yield %0 : tensor<8xf16>
}
