// RUN: gridloom-opt %s --plan-emit-cpu --canonicalize --cse | FileCheck %s

// 16-bit floats are widened when loaded and rounded once, when stored.
// CHECK-LABEL: func.func private @chain.rows
// CHECK: vector.load {{.*}}vector<16xf16>
// CHECK: arith.extf {{.*}} : vector<16xf16> to vector<16xf32>
// CHECK: arith.addf {{.*}} : vector<16xf32>
// CHECK-NOT: arith.truncf
// CHECK: arith.mulf {{.*}} : vector<16xf32>
// CHECK: %[[R:.*]] = arith.truncf {{.*}} : vector<16xf32> to vector<16xf16>
// CHECK-NEXT: vector.store %[[R]]
plan.kernel @chain {
^bb0(%x: tensor<4096xf16>, %y: tensor<4096xf16>):
  %0 = loom.add %x, %y : tensor<4096xf16>
  %1 = loom.multiply %0, %x : tensor<4096xf16>
  loom.yield %1 : tensor<4096xf16>
}

// Values that are only moved are not widened.
// CHECK-LABEL: func.func private @moved.rows
// CHECK-NOT: extf
// CHECK: return
plan.kernel @moved {
^bb0(%x: tensor<64x32xf16>):
  %0 = loom.transpose %x [1, 0] : (tensor<64x32xf16>) -> tensor<32x64xf16>
  loom.yield %0 : tensor<32x64xf16>
}

// A conversion to f32 returns the unrounded value, one to f16 rounds it; both may leave the kernel.
// CHECK-LABEL: func.func private @conversions.rows
// CHECK: %[[S:.*]] = arith.addf {{.*}} : vector<16xf32>
// CHECK: vector.store %[[S]]
// CHECK-LABEL: func.func private @rounded.rows
// CHECK: %[[H:.*]] = arith.truncf {{.*}} : vector<16xf32> to vector<16xf16>
// CHECK: %[[W:.*]] = arith.extf %[[H]]
// CHECK: arith.mulf %[[W]], %[[W]] : vector<16xf32>
plan.kernel @conversions {
^bb0(%x: tensor<4096xf16>, %y: tensor<4096xf16>):
  %0 = loom.add %x, %y : tensor<4096xf16>
  %1 = loom.convert %0 : (tensor<4096xf16>) -> tensor<4096xf32>
  loom.yield %1 : tensor<4096xf32>
}
plan.kernel @rounded {
^bb0(%x: tensor<4096xf32>):
  %0 = loom.convert %x : (tensor<4096xf32>) -> tensor<4096xf16>
  %1 = loom.multiply %0, %0 : tensor<4096xf16>
  loom.yield %1 : tensor<4096xf16>
}

// Comparisons are of rounded values: a maximum that another kernel has stored is among the elements it is of.
// CHECK-LABEL: func.func private @compared.rows
// CHECK: %[[P:.*]] = arith.mulf {{.*}} : vector<[[N:[0-9]+]]xf32>
// CHECK: %[[H:.*]] = arith.truncf %[[P]] : vector<[[N]]xf32> to vector<[[N]]xf16>
// CHECK: %[[W:.*]] = arith.extf %[[H]] : vector<[[N]]xf16> to vector<[[N]]xf32>
// CHECK: arith.cmpf oeq, %[[W]], %{{.*}} : vector<[[N]]xf32>
plan.kernel @compared {
^bb0(%x: tensor<4096xf16>, %y: tensor<4096xf16>):
  %0 = loom.multiply %x, %x : tensor<4096xf16>
  %1 = loom.compare eq %0, %y : (tensor<4096xf16>, tensor<4096xf16>) -> tensor<4096xi1>
  loom.yield %1 : tensor<4096xi1>
}
