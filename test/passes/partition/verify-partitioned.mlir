// RUN: gridloom-opt %s --split-input-file --dist-verify-partitioned --verify-diagnostics

dist.mesh @mesh <["pipe" = 2]>
// P-G1
// expected-error @below {{is not a stage: it lacks dist.stage or dist.microbatches}}
func.func @main() {
  return
}

// -----

dist.mesh @mesh <["pipe" = 2, "micro" = 2]>
// P-G4
// expected-error @below {{runs 1 micro-batches; the mesh has 2}}
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
// P-G3
// expected-error @below {{argument 0 lacks a name or a sharding}}
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x"}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
// P-G3
// expected-error @below {{result 0 lacks a name or a sharding}}
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) -> (tensor<4xf32> {loom.name = "y"}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return %x : tensor<4xf32>
}

// -----

loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  // P-G3
  // expected-error @below {{has no sharding}}
  %0 = loom.get_weight @w : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 1 channel 0 : tensor<4xf32>
  // P-G2
  // expected-error @below {{is a second send on channel 0}}
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}
func.func @main_stage1() attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  // P-G2
  // expected-error @below {{is a second receive on channel 0}}
  %1 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage1() attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  // P-G2
  // expected-error @below {{has no send on channel 0}}
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  // P-G2
  // expected-error @below {{has no receive on channel 0}}
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}
func.func @main_stage1() attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  // P-G2
  // expected-error @below {{receives 'tensor<5xf32>', the send has 'tensor<4xf32>'}}
  %0 = dist.recv from 0 channel 0 : tensor<5xf32>
  return
}

// -----

dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>}) attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 2 channel 0 : tensor<4xf32>
  return
}
func.func @main_stage1() attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  // P-G2
  // expected-error @below {{and its send do not name each other's stages}}
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["data" = 2, "pipe" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{"data"}]>})
    attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = dist.all_reduce %x over ["data"] sum : tensor<4xf32>
  // P-G5
  // expected-error @below {{communicates over "pipe", the axis of the pipeline's stages}}
  %1 = dist.all_reduce %x over ["data", "pipe"] sum : tensor<4xf32>
  return
}
}

// -----

// Channels are numbered per entry: the other entry's receive is not this send's.
func.func @first(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {loom.entry = "a", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  // expected-error @below {{has no receive on channel 0}}
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}
func.func @second() attributes {loom.entry = "b", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

// Nor that of another specialisation.
func.func @short(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {loom.entry = "a", loom.dims = {n = 4}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  // expected-error @below {{has no receive on channel 0}}
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}
func.func @long() attributes {loom.entry = "a", loom.dims = {n = 8}, dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

// The stage does not depend on the functions' names.
func.func @one(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {loom.entry = "a", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 1 channel 0 : tensor<4xf32>
  return
}
func.func @two() attributes {loom.entry = "a", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  %0 = dist.recv from 0 channel 0 : tensor<4xf32>
  return
}

// -----

func.func @main_stage0() attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  // P-G2
  // expected-error @below {{of stage 0 waits for stage 1; values flow to later stages only}}
  %0 = dist.recv from 1 channel 0 : tensor<4xf32>
  return
}
func.func @main_stage1(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  dist.send %x to 0 channel 0 : tensor<4xf32>
  return
}

// -----

// P-G6: the session of each stage keeps its own states.
module attributes {dist.stage_axis = "pipe"} {
dist.mesh @mesh <["pipe" = 2]>
func.func @main_stage0(%past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  return %past : tensor<4xf32>
}
// expected-error @below {{of stage 1 has state 'kept', which @main_stage0 has in stage 0; a state lies in one stage}}
func.func @main_short_stage1(%past: tensor<4xf32> {loom.name = "past", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>})
    -> (tensor<4xf32> {loom.name = "present", loom.state = "kept", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  return %past : tensor<4xf32>
}
}

// -----

// P-G7: in a program whose operations name nodes a collective says who needs it.
dist.mesh @mesh <["x" = 2]>
func.func @main_stage0(%x: tensor<4xf32> {loom.name = "x", dist.sharding = #dist.sharding<@mesh, [{}]>})
    -> (tensor<4xf32> {loom.name = "y", dist.sharding = #dist.sharding<@mesh, [{}]>})
    attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = loom.exp %x : tensor<4xf32> loc("node")
  // expected-error @below {{has no cause that names a node; the pass that made it must say in dist.because who needs it}}
  %1 = dist.all_reduce %0 over ["x"] sum : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// P-G8: what both stages read lies in both as a whole, but for other axes.
module attributes {dist.stage_axis = "pipe"} {
loom.weight @w : tensor<4xf32> from <"", offset = 0, bytes = 16>
dist.mesh @mesh <["data" = 2, "pipe" = 2]>
func.func @main_stage0() attributes {dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
  %0 = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"data"}]>} : tensor<2xf32>
  return
}
func.func @main_stage1() attributes {dist.stage = 1 : i64, dist.microbatches = 1 : i64} {
  // expected-error @below {{splits 'w' over "pipe"; each stage that reads a weight has a copy of its own}}
  %0 = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"pipe"}]>} : tensor<2xf32>
  return
}
}
