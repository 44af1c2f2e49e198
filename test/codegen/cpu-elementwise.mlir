// RUN: gridloom-opt %s --plan-emit-cpu --canonicalize --cse | FileCheck %s

// Loops are over rows of the output, along which the bias is read. 40 = 2 * 16 + 8.
// CHECK-LABEL: func.func private @bias_gelu.rows
// CHECK-SAME: (%[[X:.*]]: memref<320xf32>, %[[B:.*]]: memref<40xf32> {llvm.noalias}, %[[Y:.*]]: memref<320xf32>, %[[LO:.*]]: index, %[[HI:.*]]: index)
// CHECK: scf.for %[[R:.*]] = %[[LO]] to %[[HI]]
// CHECK: %[[BASE:.*]] = arith.muli %[[R]], %c40
// CHECK: scf.for %[[I:.*]] = %c0 to %c32 step %c16
// CHECK: %[[AT:.*]] = arith.addi %[[BASE]], %[[I]]
// CHECK: vector.load %[[X]][%[[AT]]] : memref<320xf32>, vector<16xf32>
// CHECK: vector.load %[[B]][%[[I]]] : memref<40xf32>, vector<16xf32>
// CHECK: math.erf %{{.*}} : vector<16xf32>
// CHECK: vector.store %{{.*}}, %[[Y]][%[[AT]]]
// CHECK: vector.load %[[X]]{{.*}} vector<8xf32>
// CHECK-NOT: memref.load
plan.kernel @bias_gelu in_place = [#plan.in_place<output = 0, input = 0>] {
^bb0(%x: tensor<8x40xf32>, %b: tensor<40xf32>):
  %0 = loom.broadcast %b dims = [1] : (tensor<40xf32>) -> tensor<8x40xf32>
  %1 = loom.add %x, %0 : tensor<8x40xf32>
  %2 = loom.gelu erf %1 : tensor<8x40xf32>
  loom.yield %2 : tensor<8x40xf32>
}

// All dimensions become one loop over blocks of 1024.
// CHECK-LABEL: func.func private @collapsed.rows
// CHECK: %[[P:.*]] = arith.muli %{{.*}}, %c1024
// CHECK: scf.for %{{.*}} = %[[P]] to %{{.*}} step %c16
// CHECK: arith.addf %{{.*}} : vector<16xf32>
plan.kernel @collapsed {
^bb0(%x: tensor<4x32x64xf32>, %y: tensor<4x32x64xf32>):
  %0 = loom.add %x, %y : tensor<4x32x64xf32>
  loom.yield %0 : tensor<4x32x64xf32>
}

// Scalars that are equal within a row are computed once per row, before its loop.
// CHECK-LABEL: func.func private @uniform.rows
// CHECK: scf.for
// CHECK: %[[S:.*]] = memref.load %{{.*}} : memref<8xf32>
// CHECK: %[[E:.*]] = math.exp %[[S]] : f32
// CHECK: scf.for
// CHECK: vector.broadcast %[[E]] : f32 to vector<16xf32>
plan.kernel @uniform {
^bb0(%x: tensor<8x64xf32>, %s: tensor<8xf32>):
  %0 = loom.exp %s : tensor<8xf32>
  %1 = loom.broadcast %0 dims = [0] : (tensor<8xf32>) -> tensor<8x64xf32>
  %2 = loom.multiply %x, %1 : tensor<8x64xf32>
  loom.yield %2 : tensor<8x64xf32>
}

// Booleans are stored as bytes.
// CHECK-LABEL: func.func private @select.rows
// CHECK-SAME: memref<64xi8>
// CHECK: %[[M:.*]] = vector.load %{{.*}} : memref<64xi8>, vector<16xi8>
// CHECK: arith.cmpi ne, %[[M]], %{{.*}} : vector<16xi8>
// CHECK: arith.select
plan.kernel @select {
^bb0(%p: tensor<64xi1>, %x: tensor<64xf32>, %y: tensor<64xf32>):
  %0 = loom.select %p, %x, %y : tensor<64xi1>, tensor<64xf32>
  loom.yield %0 : tensor<64xf32>
}
