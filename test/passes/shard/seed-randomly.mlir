// RUN: gridloom-opt %s --split-input-file --dist-seed-randomly="axes=x,y seed=1" | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --dist-seed-randomly="axes=x,y seed=1" > %t.1
// RUN: gridloom-opt %s --split-input-file --dist-seed-randomly="axes=x,y seed=2" > %t.2
// RUN: not diff %t.1 %t.2

// Inputs and weights get random axes; other values follow from them.
dist.mesh @mesh <["x" = 2, "y" = 3]>
loom.weight @w : tensor<6x12xf32> from <"", offset = 0, bytes = 288>
// CHECK-LABEL: func.func @product
// CHECK-SAME: "x" = "random: seed 1"
// CHECK: loom.get_weight @w {{.*}}dist.shardings = [#dist.sharding<@mesh, [{{.*}}"x"{{.*}}]>]
func.func @product(%a: tensor<4x6xf32> {loom.name = "a"}) -> (tensor<4x12xf32> {loom.name = "y"}) {
  %w = loom.get_weight @w : tensor<6x12xf32>
  %0 = loom.dot_general %a, %w batch = [] x [] contract = [1] x [0] : (tensor<4x6xf32>, tensor<6x12xf32>) -> tensor<4x12xf32>
  return %0 : tensor<4x12xf32>
}

// -----

// The scalar cannot be split, so its broadcast is: over x only, because 2 rows are too few for 3.
dist.mesh @mesh <["x" = 2, "y" = 3]>
// CHECK-LABEL: func.func @scalar
// CHECK-NOT: dist.origin = #dist.origin<"x"
// CHECK: loom.broadcast {{.*}}dist.origins = [#dist.origin<"x" = "random: seed 1">], dist.shardings = [#dist.sharding<@mesh, [{"x", ?}]>]
func.func @scalar(%a: tensor<f32> {loom.name = "a"}) -> (tensor<2xf32> {loom.name = "y"}) {
  %0 = loom.broadcast %a dims = [] : (tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// A dimension that is split into micro-batches is left alone.
dist.mesh @mesh <["x" = 2, "y" = 3, "micro" = 2]>
// CHECK-LABEL: func.func @in_time
// CHECK-SAME: dist.sharding = #dist.sharding<@mesh, [{"micro", ?}, {"x", "y", ?}]>
func.func @in_time(%a: tensor<12x6xf32> {loom.name = "a", dist.origin = #dist.origin<"micro" = "micro-batches">, dist.sharding = #dist.sharding<@mesh, [{"micro", ?}, {?}]>}) -> (tensor<12x6xf32> {loom.name = "y"}) {
  %0 = loom.exp %a : tensor<12x6xf32>
  return %0 : tensor<12x6xf32>
}
