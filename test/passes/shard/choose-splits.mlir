// RUN: gridloom-opt %s --split-input-file --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded 2>/dev/null | FileCheck %s
// RUN: gridloom-opt %s --split-input-file --dist-assign-stages --dist-propagate --dist-declare-storage --dist-choose-splits --dist-verify-sharded 2>/dev/null | gridloom-opt --split-input-file | FileCheck %s

// Splits are of batch dimensions, rows, columns, then contracted dimensions. Both products are
// partial sums and declared so; their sum is partial too, and reduced before exp.
dist.mesh @mesh <["data" = 2, "model" = 2]>
// CHECK-LABEL: func.func @partial_sums
// CHECK-COUNT-2: loom.dot_general {{.*}}dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{"data"}, {}, {"model"}]>
// CHECK: loom.add {{.*}}dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>], dist.splits = #dist.splits<[{"data"}, {}], unreduced = {"model"}>
// CHECK: loom.exp {{.*}}dist.splits = #dist.splits<[{"data"}, {}]>
func.func @partial_sums(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data"}, {"model"}]>},
                        %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>},
                        %b: tensor<8x4xf32> {loom.name = "b", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.dot_general %x, %b batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %2 = loom.add %0, %1 : tensor<4x4xf32>
  %3 = loom.exp %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// One product is already needed whole: the addition uses the whole one, and the other is reduced too.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @needed_before
// CHECK: loom.add {{.*}}dist.splits = #dist.splits<[{}, {}]>
func.func @needed_before(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                         %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>},
                         %b: tensor<8x4xf32> {loom.name = "b", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}, tensor<4x4xf32> {loom.name = "z"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.dot_general %x, %b batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %2 = loom.exp %0 : tensor<4x4xf32>
  %3 = loom.add %0, %1 : tensor<4x4xf32>
  return %2, %3 : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Three heads of eight over two devices are split between heads. The head is the major factor of
// the reshape; for elementwise operations the dimension has this granule.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @granule
// CHECK: loom.reshape {{.*}}dist.splits = #dist.splits<[{}, {"model"}, {}]>
// CHECK: loom.exp {{.*}}dist.splits = #dist.splits<[{}, {"model"} * 8]>
func.func @granule(%x: tensor<4x3x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}, {}]>})
    -> (tensor<4x24xf32> {loom.name = "y"}) {
  %0 = loom.reshape %x : (tensor<4x3x8xf32>) -> tensor<4x24xf32>
  %1 = loom.exp %0 : tensor<4x24xf32>
  return %1 : tensor<4x24xf32>
}

// -----

// Splits written by hand stay: exp splits its rows although its operand and its result are whole,
// and later operations follow its shardings.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @by_hand
// CHECK: loom.exp {{.*}}dist.splits = #dist.splits<[{"model"}, {}]>
// CHECK: loom.abs {{.*}}dist.splits = #dist.splits<[{}, {}]>
func.func @by_hand(%x: tensor<4x6xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) -> (tensor<4x6xf32> {loom.name = "y"}) {
  %0 = loom.exp %x {dist.splits = #dist.splits<[{"model"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x6xf32>
  %1 = loom.abs %0 : tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// -----

// Open splits follow those written by hand.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @open
// CHECK: loom.abs {{.*}}dist.origin<"model" = "splits of '/exp'">{{.*}}dist.splits = #dist.splits<[{"model"}, {}]>
func.func @open(%x: tensor<4x6xf32> {loom.name = "x"}) -> (tensor<4x6xf32> {loom.name = "y"}) {
  %0 = loom.exp %x {dist.splits = #dist.splits<[{"model"}, {}]>} : tensor<4x6xf32> loc("/exp")
  %1 = loom.abs %0 : tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// -----

// One of two readers needs the sums: they are reduced for both, whichever comes first.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @needed_after
// CHECK: loom.dot_general {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]
// CHECK: loom.negate {{.*}}dist.splits = #dist.splits<[{}, {}]>
func.func @needed_after(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                        %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<4x4xf32> {loom.name = "y"}, tensor<4x4xf32> {loom.name = "z"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.negate %0 : tensor<4x4xf32>
  %2 = loom.exp %0 : tensor<4x4xf32>
  return %1, %2 : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// A value declared unreduced is used as such, even where it is broadcast, which the pass never chooses.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @declared
// CHECK: loom.broadcast {{.*}}dist.splits = #dist.splits<[{}, {}, {}], unreduced = {"model"}>
func.func @declared(%x: tensor<4x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>},
                    %a: tensor<8x4xf32> {loom.name = "a", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>})
    -> (tensor<6x4x4xf32> {loom.name = "y"}) {
  %0 = loom.dot_general %x, %a batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>]} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  %1 = loom.broadcast %0 dims = [1, 2] : (tensor<4x4xf32>) -> tensor<6x4x4xf32>
  return %1 : tensor<6x4x4xf32>
}

// -----

// Values carried by a loop are split as in its body.
dist.mesh @mesh <["model" = 2]>
// CHECK-LABEL: func.func @loop
// CHECK: loom.while {{.*}}dist.splits = #dist.splits<[{"model"}]>
// CHECK-LABEL: func.func @body
// CHECK: loom.abs {{.*}}dist.splits = #dist.splits<[{"model"}]>
func.func @loop(%c: tensor<i1> {loom.name = "c"}, %x: tensor<4xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"model"}]>})
    -> (tensor<4xf32> {loom.name = "y"}) {
  %r = loom.while @body if %c carry %x trips = 8 : (tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func @body(%x: tensor<4xf32>) -> (tensor<i1>, tensor<4xf32>) attributes {loom.body} {
  %c = loom.constant dense<true> : tensor<i1>
  %0 = loom.abs %x : tensor<4xf32>
  return %c, %0 : tensor<i1>, tensor<4xf32>
}

// -----

// A value kept split over the axis of its partial sums is reduced into these parts, whatever its reader could use.
dist.mesh @mesh <["x" = 2, "y" = 2]>
// CHECK-LABEL: func.func @kept_split
// CHECK: loom.gather {{.*}}dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>], dist.splits = #dist.splits<[{"x"}, {}, {}, {}]>
// CHECK: loom.reshape {{.*}}dist.splits = #dist.splits<[{}, {}, {}]>
func.func @kept_split(%t: tensor<6x1xi32> {loom.name = "t", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"x"}, {}]>},
                      %i: tensor<9x9xi64> {loom.name = "i", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"x", "y"}]>})
    -> (tensor<81x1xi32> {loom.name = "y"}) {
  %0 = loom.gather %t, %i dim = 0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"x"}, {}]>]} : (tensor<6x1xi32>, tensor<9x9xi64>) -> tensor<9x9x1xi32>
  %1 = loom.reshape %0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : (tensor<9x9x1xi32>) -> tensor<81x1xi32>
  return %1 : tensor<81x1xi32>
}
