//===- Passes.td - the schedule phase's passes --------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_SCHEDULE
#define GRIDLOOM_PASSES_SCHEDULE

include "mlir/Pass/PassBase.td"

def ScheduleStages : Pass<"plan-schedule", "::mlir::ModuleOp"> {
  let summary = "Orders each stage's work and writes it as a program on buffers, streams and events";
  let description = [{
    Within a stage, communication starts as soon as its operands are ready and is waited for where its
    result is first read; compute with nothing to wait for goes first, that on the longest path before
    other. In training steps compute has an order that saves memory instead, in which values are read soon
    after they are computed, where the estimated end hardly changes. The resulting order of communication is
    the program's, hence the same on all ranks; transfers with one peer keep the order of their channels. A
    collective whose results take more memory than its operands give back, such as a gather of a weight,
    starts one layer ahead of what needs it and waits for the compute before it, where that lowers the most
    memory in use and the estimated end stays.

    Every stage function becomes a `plan.program`; `loom.derived` stays, for it runs in order, once.
    Kernels run on the stream
    `compute`, collectives on `comm.<axes joined by +>`, transfers on `send.<stage>` and `recv.<stage>`.
    Where a value crosses streams an event orders the two; events that others imply are left out. With
    micro-batches the steps repeat; a buffer that a transfer may still use in the next iteration gets two
    slots, and its writer waits, with lag 2, for its last reader; one that is read in part keeps one slot,
    with lag 1.

    Input:

    ```mlir
    func.func @main_stage0(%x: tensor<8xf32> {loom.name = "x"}) -> (tensor<8xf32> {loom.name = "y"})
        attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
      %0 = plan.call @k_gelu_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
      return %0 : tensor<8xf32>
    }
    ```

    Output:

    ```mlir
    plan.program @main_stage0 {
      %0 = plan.buffer input "x" : !plan.buffer<tensor<8xf32>>
      %1 = plan.buffer output "y" : !plan.buffer<tensor<8xf32>>
      plan.block {
        plan.launch @k_gelu_0 ins(%0 : ...) outs(%1 : ...) on compute
      }
    } {dims = {}, entry = "main", stage = 0 : i64}
    ```
  }];
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let options = [
    Option<"overlap", "overlap", "bool", "true", "run communication beside compute; off waits for each at once">];
}

def VerifyScheduled : Pass<"plan-verify-scheduled", "::mlir::ModuleOp"> {
  let summary = "Checks that programs are ordered and cannot deadlock";
  let description = [{
    Guarantees after the phase: of two steps that touch one buffer, one of which writes it, one is done
    before the other starts, in all iterations of a repeat; what is computed is written before it is read; waits name events recorded before; group
    axes exist in the mesh and no group spans stages; the transfers of each pair of stages agree in order
    and type; and all stages together, over all micro-batches, run to the end with rendezvous sends.

    Input and output are the same.

    ```mlir
    plan.group send over [] sequence 0 ins(%0 : ...) outs() on send stage 1 {stage = 1 : i64, channel = 0 : i64}
    ```
  }];
}

#endif
