// RUN: gridloom-opt %s --split-input-file --dist-verify-sharded --verify-diagnostics

// S-G1
// expected-error @below {{no mesh is declared; run dist-insert-mesh first}}
module {
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// S-G1
// expected-error @below {{argument 0 has no sharding}}
func.func @f(%x: tensor<4x6xf32> {dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// expected-error @below {{argument 0 is sharded over @other, the mesh is @mesh}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@other, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// D-C1
// expected-error @below {{argument 0 has a sharding of 1 dimensions for 'tensor<4x6xf32>'}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// expected-error @below {{argument 0 is declared unreduced}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}], unreduced = {"data" = sum}>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// S-G1
// expected-error @below {{argument 0 has an open dimension}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{?}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// D-C4
// expected-error @below {{argument 0 has a granule of 0}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"} * 0, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// D-C2
// expected-error @below {{argument 0 uses axis "rows", which is not in the mesh}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"rows"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// D-C3
// expected-error @below {{argument 0 uses axis "data" twice}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"data"}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
// S-G2
// expected-error @below {{argument 0 has a sharding without an origin}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G3
  // expected-error @below {{has no stage}}
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 1 : i64} : tensor<4x6xf32>
  // S-G3
  // expected-error @below {{of stage 0 reads a value of stage 1}}
  %1 = loom.exp %0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
// S-G4
// expected-error @below {{argument 0 is not cut into micro-batches}}
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// Axes of devices come before that of micro-batches; outputs and inputs are split by it, weights are not.
module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["data" = 2, "model" = 2, "pipe" = 2, "micro" = 2]>
loom.weight @w : tensor<8x8xf32> from <"", offset = 0, bytes = 256>
func.func @good(%x: tensor<8x8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data", "micro"}, {}]>})
    -> (tensor<8x8xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"data", "micro"}, {"model"}]>}) {
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{}, {"model"}]>, dist.stage = 0 : i64, dist.splits = #dist.splits<[{}, {"model"}]>, dist.origins = [#dist.origin<"tp">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}]>]} : tensor<8x8xf32>
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.stage = 0 : i64, dist.splits = #dist.splits<[{"data", "micro"}, {"model"}, {}]>, dist.origins = [#dist.origin<"tp">], dist.shardings = [#dist.sharding<@mesh, [{"data", "micro"}, {"model"}]>]} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = loom.exp %0 {dist.stage = 1 : i64, dist.splits = #dist.splits<[{"data", "micro"}, {"model"}]>, dist.origins = [#dist.origin<"tp">], dist.shardings = [#dist.sharding<@mesh, [{"data", "micro"}, {"model"}]>]} : tensor<8x8xf32>
  return {dist.stage = 1 : i64} %1 : tensor<8x8xf32>
}
}

// -----

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
// S-G1
// expected-error @below {{argument 0 is split over "pipe", the axis of the pipeline's stages}}
func.func @stages(%x: tensor<8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"pipe"}]>}) {
  return
}
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
// S-G4
// expected-error @below {{argument 0 is cut over "data" within "micro"; micro-batches are minor to all axes of a dimension}}
func.func @order(%x: tensor<8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"micro", "data"}]>}) {
  return
}

// -----

dist.mesh @mesh <["pipe" = 2, "micro" = 2]>
// S-G4
// expected-error @below {{argument 0 is not cut into micro-batches}}
func.func @columns(%x: tensor<8x2xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}, {"micro"}]>}) {
  return
}

// -----

dist.mesh @mesh <["pipe" = 2, "micro" = 2]>
// S-G4
// expected-error @below {{result 0 is not cut into micro-batches}}
func.func @output(%x: tensor<8xf32> {loom.name = "x", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{"micro"}]>})
    -> (tensor<8xf32> {loom.name = "y", dist.origin = #dist.origin<"user">, dist.sharding = #dist.sharding<@mesh, [{}]>}) {
  return %x : tensor<8xf32>
}

// -----

// S-G6: a state lies in one stage, in all functions.
module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
func.func @main(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">},
                %past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{}]>, dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">}) {
  %0 = loom.add %past, %x {dist.stage = 0 : i64, dist.splits = #dist.splits<[{}]>, dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.origins = [#dist.origin<"test">]} : tensor<4xf32> loc("sum")
  return {dist.stage = 1 : i64} %0 : tensor<4xf32>
}
func.func @main_short(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">},
                %past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{}]>, dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">}) {
  // expected-error @below {{of @main_short uses state 'kept' in stage 1, but 'sum' of @main uses it in stage 0; a state lies in one stage}}
  %0 = loom.add %past, %x {dist.stage = 1 : i64, dist.splits = #dist.splits<[{}]>, dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.origins = [#dist.origin<"test">]} : tensor<4xf32>
  return {dist.stage = 1 : i64} %0 : tensor<4xf32>
}
}

// -----

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
// expected-error @below {{keeps state 'kept' in stage 1, but 'sum' uses it in stage 0}}
func.func @main(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">},
                %past: tensor<4xf32> {dist.stage = 1 : i64, loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{}]>, dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">}) {
  %0 = loom.add %past, %x {dist.stage = 0 : i64, dist.splits = #dist.splits<[{}]>, dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.origins = [#dist.origin<"test">]} : tensor<4xf32> loc("sum")
  return {dist.stage = 1 : i64} %0 : tensor<4xf32>
}
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G7
  // expected-error @below {{has no dist.splits; dist-choose-splits writes an entry for each of its 2 factors}}
  %0 = loom.abs %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP1
  // expected-error @below {{has dist.splits of 3 factors; its sharding rule has 2}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP2
  // expected-error @below {{splits factor 1 over axis 'rows', which is not in the mesh}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}, {"rows"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP3
  // expected-error @below {{splits over axis 'data' twice}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{"data"}, {"data"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP3
  // expected-error @below {{splits over axis 'data' twice}}
  %0 = loom.negate %x {dist.splits = #dist.splits<[{"data"}, {}], unreduced = {"data"}>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP2
  // expected-error @below {{leaves unreduced axis 'rows', which is not in the mesh}}
  %0 = loom.negate %x {dist.splits = #dist.splits<[{}, {}], unreduced = {"rows"}>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP5
  // expected-error @below {{cuts factor 0 on multiples of 0}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{"data"} * 0, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP8
  // expected-error @below {{is not linear, so its operands cannot stay unreduced}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}, {}], unreduced = {"data"}>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G8
  // expected-error @below {{leaves operand 0 unreduced over 'data', over which it is no partial sum}}
  %0 = loom.negate %x {dist.splits = #dist.splits<[{}, {}], unreduced = {"data"}>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x5xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP4
  // expected-error @below {{splits factor 0, all of which every device needs}}
  %0 = loom.reshape %x {dist.splits = #dist.splits<[{"data"}, {}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : (tensor<4x5xf32>) -> tensor<10x2xf32>
  return
}

// -----

dist.mesh @mesh <["data" = 2, "model" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP6: a row of four is not cut down to single elements by two devices.
  // expected-error @below {{splits factor 1, which lies in a dimension under one that is not cut evenly down to single elements}}
  %0 = loom.reshape %x {dist.splits = #dist.splits<[{"data"}, {"model"}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.stage = 0 : i64} : (tensor<4x6xf32>) -> tensor<24xf32>
  return
}

// -----

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G7
  // expected-error @below {{splits factor 0 over "pipe", the axis of the pipeline's stages}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{"pipe"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return
}
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP7
  // expected-error @below {{splits factor 0 over 'data' within micro-batches, which are minor to all axes}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{"micro", "data"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"micro"}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-SP7
  // expected-error @below {{cuts factor 0 into micro-batches, which need each other's elements along it}}
  %0 = loom.softmax %x dim = 0 {dist.splits = #dist.splits<[{"micro"}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"micro"}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
func.func @f(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G8
  // expected-error @below {{needs operand 0 as #dist.sharding<@mesh, [{}, {}]>, but it is made as #dist.sharding<@mesh, [{"micro"}, {}]>; micro-batches do not communicate}}
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{"micro"}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @taken(%x: tensor<4x6xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x6xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) attributes {loom.body} {
  %0 = loom.abs %x {dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
func.func @f(%c: tensor<i1> {dist.sharding = #dist.sharding<@mesh, []>, dist.origin = #dist.origin<"user">}, %x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G9
  // expected-error @below {{is split as #dist.sharding<@mesh, [{"model"}, {}]> where argument 0 of its body @taken is #dist.sharding<@mesh, [{}, {}]>}}
  %0 = loom.if %c then @taken else @taken read %x {dist.splits = #dist.splits<[{"model"}, {}, {}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : (tensor<i1>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
func.func @f() {
  // S-G10
  // expected-error @below {{weight 'w' has no dist.storage; run dist-declare-storage first}}
  %w = loom.get_weight @w {dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
func.func @f() {
  // S-G10
  // expected-error @below {{storage of weight 'w' has an open dimension}}
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{?}, {}]>, dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
func.func @f() {
  // S-G10
  // expected-error @below {{storage of weight 'w' is cut into micro-batches; it is there for all of them}}
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"micro"}, {}]>, dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x4xf32>
  return
}

// -----

dist.mesh @mesh <["data" = 2, "micro" = 2]>
loom.weight @w : tensor<4x4xf32> from <"", offset = 0, bytes = 64>
func.func @f() {
  // S-G10
  // expected-error @below {{reads #dist.sharding<@mesh, [{}, {}]> of a weight that is stored as #dist.sharding<@mesh, [{"data"}, {}]>}}
  %w = loom.get_weight @w {dist.storage = #dist.sharding<@mesh, [{"data"}, {}]>, dist.splits = #dist.splits<[{}, {}]>, dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.stage = 0 : i64} : tensor<4x4xf32>
  return
}

// -----

// S-G10: a state lies in one way, in all functions.
dist.mesh @mesh <["data" = 2]>
func.func @main(%past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{}]>, dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">}) {
  return
}
// expected-error @below {{stores state 'kept' as #dist.sharding<@mesh, [{"data"}]>, @main as #dist.sharding<@mesh, [{}]>}}
func.func @main_short(%past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.storage = #dist.sharding<@mesh, [{"data"}]>, dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"test">}) {
  return
}

// -----

dist.mesh @mesh <["data" = 2]>
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{}]>, dist.origin = #dist.origin<"user">}) {
  // expected-error @below {{has no sharding rule and cannot be partitioned}}
  %0 = dist.all_reduce %x over ["data"] sum {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}]>], dist.stage = 0 : i64} : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">}, %w: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.stage = 0 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("/down")
  // S-G11
  // expected-error @below {{needs all of '/down', which is declared unreduced over 'model'; only linear operations can take it so: declare it whole}}
  %1 = loom.exp %0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64} : tensor<4x4xf32>
  return {dist.stage = 0 : i64} %1 : tensor<4x4xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">}, %w: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.stage = 0 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("/down")
  // S-G11
  // expected-error @below {{have all its readers take it so, or declare it whole}}
  %1 = loom.negate %0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64} : tensor<4x4xf32>
  return {dist.stage = 0 : i64} %1 : tensor<4x4xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"model"}]>, dist.origin = #dist.origin<"user">}, %w: tensor<8x4xf32> {dist.sharding = #dist.sharding<@mesh, [{"model"}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}, {"model"}]>, dist.stage = 0 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("/down")
  // S-G11
  // expected-error @below {{takes '/down' unreduced over 'model', but it is declared whole; declare it unreduced, and have all its readers take it so}}
  %1 = loom.negate %0 {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}]>], dist.splits = #dist.splits<[{}, {}], unreduced = {"model"}>, dist.stage = 0 : i64} : tensor<4x4xf32>
  return {dist.stage = 0 : i64} %1 : tensor<4x4xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // S-G11
  // expected-error @below {{makes no partial sums over 'model', but is declared unreduced over it; split what it sums over that axis, or declare it whole}}
  %0 = loom.negate %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {}], unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64} : tensor<4x8xf32>
  return {dist.stage = 0 : i64} %0 : tensor<4x8xf32>
}

// -----

dist.mesh @mesh <["model" = 2]>
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) -> (tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}]>, dist.origin = #dist.origin<"user">}) {
  // D-C3
  // expected-error @below {{result 0 uses axis "model" twice}}
  %0 = loom.negate %x {dist.origins = [#dist.origin<"user">], dist.shardings = [#dist.sharding<@mesh, [{}, {"model"}], unreduced = {"model" = sum}>], dist.splits = #dist.splits<[{}, {}]>, dist.stage = 0 : i64} : tensor<4x8xf32>
  return {dist.stage = 0 : i64} %0 : tensor<4x8xf32>
}
