//===- Passes.td - the allocate phase's passes --------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_ALLOCATE
#define GRIDLOOM_PASSES_ALLOCATE

include "mlir/Pass/PassBase.td"

def AllocateBuffers : Pass<"plan-allocate", "::mlir::ModuleOp"> {
  let summary = "Places buffers in memory";
  let description = [{
    Two buffers share memory when all uses of one are over before the first use of the other, as streams
    and events order them, in every iteration of a repeat. An elementwise kernel may write over an input
    that nobody reads afterwards. Buffers with several slots share with none. Offsets are
    multiples of 64 bytes. Largest buffers are placed first, each in the smallest gap that holds it.

    A run of a program starts when the one before is over, on all streams.

    Input:

    ```mlir
    %0 = plan.buffer arena : <tensor<8x16xf32>>
    ```

    Output:

    ```mlir
    %0 = plan.buffer arena {bytes = 512 : i64, offset = 0 : i64} : <tensor<8x16xf32>>
    ```
  }];
}

def VerifyAllocated : Pass<"plan-verify-allocated", "::mlir::ModuleOp"> {
  let summary = "Checks that buffers in use at once do not overlap";
  let description = [{
    Guarantees after the phase: every buffer has its size, those in the arena and in registered memory an
    offset within their space; buffers whose memory overlaps are never in use at once, in
    any two iterations of a repeat.

    Input and output are the same.

    ```mlir
    %0 = plan.buffer arena {bytes = 512 : i64, offset = 0 : i64} : <tensor<8x16xf32>>
    ```
  }];
}

#endif
