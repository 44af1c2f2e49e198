// RUN: gridloom-opt %s --plan-emit-cpu --canonicalize --cse | FileCheck %s

// Reshape and transpose become index arithmetic: whole heads move as vectors.
// CHECK-LABEL: func.func private @split_heads.rows
// CHECK-NOT: vector.gather
// CHECK: vector.load %{{.*}} vector<16xf32>
// CHECK: vector.store
plan.kernel @split_heads {
^bb0(%x: tensor<16x96xf32>):
  %0 = loom.reshape %x : (tensor<16x96xf32>) -> tensor<2x8x3x32xf32>
  %1 = loom.transpose %0 [0, 2, 1, 3] : (tensor<2x8x3x32xf32>) -> tensor<2x3x8x32xf32>
  loom.yield %1 : tensor<2x3x8x32xf32>
}

// Rows are copied; an index out of range is clamped to the nearest row.
// CHECK-LABEL: func.func private @embed.rows
// CHECK: %[[I:.*]] = memref.load %{{.*}} : memref<6xi64>
// CHECK: %[[C:.*]] = arith.index_cast %[[I]]
// CHECK: %[[L:.*]] = arith.maxsi %[[C]], %c0
// CHECK: %[[ROW:.*]] = arith.minsi %[[L]], %c9
// CHECK: arith.muli %[[ROW]], %c32
// CHECK: vector.load %{{.*}} : memref<320xf32>, vector<16xf32>
plan.kernel @embed {
^bb0(%t: tensor<10x32xf32>, %i: tensor<2x3xi64>):
  %0 = loom.gather %t, %i dim = 0 : (tensor<10x32xf32>, tensor<2x3xi64>) -> tensor<2x3x32xf32>
  loom.yield %0 : tensor<2x3x32xf32>
}

// A concatenation is a loop per operand, without branches inside.
// CHECK-LABEL: func.func private @concatenate.rows
// CHECK: scf.for
// CHECK: scf.for
// CHECK: vector.load %arg0
// CHECK: scf.for
// CHECK: scf.for
// CHECK: vector.load %arg1
// CHECK-NOT: scf.if {{.*}} -> (f32)
// CHECK: return
plan.kernel @concatenate {
^bb0(%x: tensor<8x32xf32>, %y: tensor<8x64xf32>):
  %0 = loom.concatenate %x, %y dim = 1 : (tensor<8x32xf32>, tensor<8x64xf32>) -> tensor<8x96xf32>
  loom.yield %0 : tensor<8x96xf32>
}

// Small constants are stored next to the code.
// CHECK: memref.global "private" constant @constant.rows.constant0 : memref<3xf32> = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]>
// CHECK-LABEL: func.func private @constant.rows
// CHECK: memref.get_global @constant.rows.constant0
plan.kernel @constant {
^bb0(%x: tensor<8x3xf32>):
  %c = loom.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %b = loom.broadcast %c dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
  %0 = loom.multiply %x, %b : tensor<8x3xf32>
  loom.yield %0 : tensor<8x3xf32>
}
