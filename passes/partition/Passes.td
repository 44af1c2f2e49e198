//===- Passes.td - the partition phase ----------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_PARTITION
#define GRIDLOOM_PASSES_PARTITION

include "mlir/Pass/PassBase.td"

def Partition : Pass<"dist-partition", "::mlir::ModuleOp"> {
  let summary = "Turns the global program into the one every device runs on its shards";
  let description = [{
    Types become local; where an operation needs an operand otherwise than it is, collectives are
    inserted. Partial sums are reduced only where something needs them reduced.

    ```mlir
    // global: contraction split over "model"
    %y = loom.dot_general %h, %w2 ... : (tensor<8x64xf32>, tensor<64x16xf32>) -> tensor<8x16xf32>
    // local
    %0 = loom.dot_general %h, %w2 ... : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
    %y = dist.all_reduce %0 over ["model"] sum : tensor<8x16xf32>
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
      an earlier stage than the receive.
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
