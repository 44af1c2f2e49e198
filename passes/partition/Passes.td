//===- Passes.td - the partition phase ----------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_PARTITION
#define GRIDLOOM_PASSES_PARTITION

include "mlir/Pass/PassBase.td"

def InsertReshards : Pass<"dist-insert-reshards", "::mlir::ModuleOp"> {
  let summary = "Moves values to where they are used, by explicit reshards";
  let description = [{
    Where an operation's splits, or an output's sharding, need a value otherwise than it is made, `dist.reshard` brings it there, from
    the cheapest sharding in which it is. From here on a value's sharding is how it is made: partial sums are reduced only
    where something needs them reduced.

    ```mlir
    %0 = loom.dot_general %h, %w2 ... {dist.splits = #dist.splits<[{}, {}, {"model"} ]>}
    %1 = dist.reshard %0 from <@mesh, [{}, {} ], unreduced = {"model" = sum}> to <@mesh, [{}, {} ]> {dist.because = "..."}
    %y = loom.exp %1 {dist.splits = #dist.splits<[{}, {} ]>}
    ```
  }];
}

def LowerReshards : Pass<"dist-lower-reshards", "::mlir::ModuleOp"> {
  let summary = "Turns reshards into collectives on shards";
  let description = [{
    The fastest way from one sharding to the other, in a body that works on one device's shard:

    ```mlir
    %1 = dist.on_shards %0 from <@mesh, [{}, {} ], unreduced = {"model" = sum}> to <@mesh, [{}, {} ]> {
    ^bb0(%shard: tensor<8x16xf32>):
      %2 = dist.all_reduce %shard over ["model"] sum : tensor<8x16xf32>
      dist.yield %2 : tensor<8x16xf32>
    } : (tensor<8x16xf32>) -> tensor<8x16xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect", "::gridloom::loom::LoomDialect"];
}

def Localize : Pass<"dist-localize", "::mlir::ModuleOp"> {
  let summary = "Turns the global program into the one every device runs on its shards";
  let description = [{
    Types become local, as each operation's splits say; operations that read other devices' shards, such as convolutions along a
    split dimension, communicate themselves.

    ```mlir
    // contraction split over "model"
    %y = loom.dot_general %h, %w2 ... : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
    // local
    %y = loom.dot_general %h, %w2 ... : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
    ```
  }];
}

def SplitStages : Pass<"dist-split-stages", "::mlir::ModuleOp"> {
  let summary = "Makes a function of each pipeline stage, with transfers between them";
  let description = [{
    A stage's function takes the entry's inputs it reads and returns the entry's outputs it makes.
    What another stage made arrives by `dist.recv`; channels number the transfers stage by stage, a
    stage's in program order.

    ```mlir
    func.func @main_stage0(%x: tensor<4x8xf32> {loom.name = "x"}) {
      %0 = loom.exp %x : tensor<4x8xf32>
      dist.send %0 to 1 channel 0 : tensor<4x8xf32>
      return
    }
    func.func @main_stage1() -> (tensor<4x8xf32> {loom.name = "y"}) {
      %0 = dist.recv from 0 channel 0 : tensor<4x8xf32>
      ...
    ```
  }];
}

def VerifyPartitioned : Pass<"dist-verify-partitioned", "::mlir::ModuleOp"> {
  let summary = "Checks that the program is local: no reshards, no values between stages but transfers";
  let description = [{
    **Guarantees:**
    - P-G1: every operation is of a stage's function.
    - P-G2: a send has one receive: same channel, type, and each names the other's stage; it is in
      an earlier stage than the receive, but in training steps, whose backward part goes back.
    - P-G3: arguments and results have names and shardings; their types are the shards' types.
    - P-G4: every stage runs as many micro-batches as the mesh has.
    - P-G5: nothing communicates over the axis of the stages but transfers.
    - P-G6: a state is in the functions of one stage only.
    - P-G7: collectives and transfers of a program that came from a model have a cause that names a node.
    - P-G8: each stage that reads a weight has a copy of its own: no weight is split over the axis of the
      stages, nor over that of micro-batches.
  }];
}

#endif
