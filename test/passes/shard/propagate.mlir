// RUN: gridloom-opt %s --split-input-file --dist-propagate 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t.remarks

// %1 could be split by rows, from the contraction that computes it, or by columns, from the
// addition that reads it. Elementwise operations propagate before contractions.
dist.mesh @mesh <["x" = 2]>
// CHECK-LABEL: func.func @nearer_first
// CHECK: loom.dot_general {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}]>]
func.func @nearer_first(%a: tensor<8x64xf32> {loom.name = "a", dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>, dist.origin = #dist.origin<"user">},
    %b: tensor<64x8xf32> {loom.name = "b"}, %c: tensor<8x8xf32> {loom.name = "c", dist.sharding = #dist.sharding<@mesh, [{}, {"x"}]>, dist.origin = #dist.origin<"user">}) -> (tensor<8x8xf32> {loom.name = "r"}) {
  %1 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>
  %2 = loom.add %1, %c : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// The activation suggests its rows and the weight its part of the sum, over one axis. Gathering the
// weight would cost more than moving the activation and reducing.
dist.mesh @mesh <["x" = 2, "y" = 4]>
loom.weight @w : tensor<64x256xf32> from <"", offset = 0, bytes = 65536>
loom.weight @p : tensor<3x256xf32> from <"", offset = 0, bytes = 3072>
// REMARK-DAG: remark: {{.*}}shardings disagree at 'product': 'a' is [{x}, {}] (x: user), used as [{}, {x}]; a device sends 8.5 KiB, against 36.0 KiB the other way
// REMARK-DAG: remark: 'scale': replicated: it is one element
// REMARK-DAG: remark: 't': replicated: asked for by user
// REMARK-DAG: remark: 'product': replicated: the split over 'x' that 'a' asks for gives way at its node
// REMARK-DAG: remark: 'ids', 'p', 'loom.gather': replicated: nothing asks for a split
// CHECK-LABEL: func.func @reasons
// CHECK-SAME: %{{.*}}: tensor<f32> {dist.origin = #dist.origin<replicated = "it is one element">
// CHECK-SAME: dist.origin = #dist.origin<replicated = "asked for by user">
// CHECK: loom.get_weight @p {dist.origins = [#dist.origin<replicated = "nothing asks for a split">]
// CHECK: loom.dot_general {{.*}}dist.origins = [#dist.origin<replicated = "the split over 'x' that 'a' asks for gives way at 'product'">]
// CHECK: loom.multiply {{.*}}dist.origins = [#dist.origin<replicated = "like 'product', computed from or with it: the split over
func.func @reasons(%a: tensor<8x64xf32> {loom.name = "a", dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>, dist.origin = #dist.origin<"user">},
    %s: tensor<f32> {loom.name = "scale"}, %t: tensor<2x256xf32> {loom.name = "t", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">},
    %i: tensor<3xi64> {loom.name = "ids"}) -> (tensor<8x256xf32> {loom.name = "r"}, tensor<3x256xf32> {loom.name = "q"}) {
  %w = loom.get_weight @w {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"x"}, {}]>]} : tensor<64x256xf32>
  %p = loom.get_weight @p : tensor<3x256xf32>
  %0 = loom.dot_general %a, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("product")
  %1 = loom.broadcast %s dims = [] : (tensor<f32>) -> tensor<8x256xf32> loc("spread")
  %2 = loom.multiply %0, %1 : tensor<8x256xf32>
  %3 = loom.gather %p, %i dim = 0 : (tensor<3x256xf32>, tensor<3xi64>) -> tensor<3x256xf32>
  return %2, %3 : tensor<8x256xf32>, tensor<3x256xf32>
}

// -----

// A value too short for an axis, a sum over it, and a value without dimensions.
dist.mesh @mesh <["x" = 4]>
loom.weight @w : tensor<64x16xf32> from <"", offset = 0, bytes = 4096>
// REMARK: remark: 'few': replicated: its largest dimension has 3 elements, fewer than the 4 devices of 'x'
// CHECK-LABEL: func.func @more_reasons
// CHECK: loom.get_weight @w {dist.origins = [#dist.origin<replicated = "'x' splits dimensions of 'product' that this value does not have">]
// CHECK: loom.reduce {{.*}}dist.origins = [#dist.origin<replicated = "it is the sum of partial values of the devices of 'x' at 'total'">]
func.func @more_reasons(%a: tensor<8x64xf32> {loom.name = "a", dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>, dist.origin = #dist.origin<"user">},
    %f: tensor<3x2xf32> {loom.name = "few"}) -> (tensor<16xf32> {loom.name = "r"}) {
  %w = loom.get_weight @w : tensor<64x16xf32>
  %0 = loom.dot_general %a, %w batch = [] x [] contract = [1] x [0] : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32> loc("product")
  %1 = loom.reduce sum %0 dims = [0] : (tensor<8x16xf32>) -> tensor<16xf32> loc("total")
  return %1 : tensor<16xf32>
}
