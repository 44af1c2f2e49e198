//===- Passes.td - the communicate phase --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE
#define GRIDLOOM_PASSES_COMMUNICATE

include "mlir/Pass/PassBase.td"

def FormReduceScatter : Pass<"dist-form-reduce-scatter", "::mlir::func::FuncOp"> {
  let summary = "Makes a reduce_scatter of an all_reduce of which only a part is kept";
  let description = [{
    ```mlir
    %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
    %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
    // becomes, when %0 has no other use
    %1 = dist.reduce_scatter %x over ["model"] dim = 0 sum : (tensor<8x16xf32>) -> tensor<4x16xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def LowerShardSlices : Pass<"dist-lower-shard-slices", "::mlir::func::FuncOp"> {
  let summary = "Makes local gathers of shard slices";
  let description = [{
    A device's part is picked by its position on the mesh, a per-rank parameter.

    ```mlir
    %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
    // becomes
    %i = dist.axis_index ["model"] : tensor<i64>
    %2 = loom.reshape %0 : (tensor<8x16xf32>) -> tensor<2x4x16xf32>
    %1 = loom.gather %2, %i dim = 0 : (tensor<2x4x16xf32>, tensor<i64>) -> tensor<4x16xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::loom::LoomDialect"];
}

def ContiguousCollectives : Pass<"dist-contiguous-collectives", "::mlir::func::FuncOp"> {
  let summary = "Lets collectives split and join dimension 0 only, as transports do";
  let description = [{
    ```mlir
    %1 = dist.all_gather %0 over ["model"] dim = 1 : (tensor<4x8xf32>) -> tensor<4x16xf32>
    // becomes
    %a = dist.all_gather %0 over ["model"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %b = loom.reshape %a : (tensor<8x8xf32>) -> tensor<2x4x8xf32>
    %c = loom.transpose %b [1, 0, 2 ] : (tensor<2x4x8xf32>) -> tensor<4x2x8xf32>
    %1 = loom.reshape %c : (tensor<4x2x8xf32>) -> tensor<4x16xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::loom::LoomDialect"];
}

def CombineCollectives : Pass<"dist-combine-collectives", "::mlir::func::FuncOp"> {
  let summary = "Joins small independent all_reduces of one group into one";
  let description = [{
    Latency is paid once for values that travel together; above `threshold` bytes there is nothing to
    gain.

    ```mlir
    %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
    %1 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
    // becomes
    %0:2 = dist.all_reduce %a, %b over ["model"] sum : tensor<8xf32>, tensor<8xf32>
    ```
  }];
  let options = [Option<"threshold", "threshold", "int64_t", "262144", "bytes of a combined all_reduce">];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def FormGroups : Pass<"dist-form-groups", "::mlir::func::FuncOp"> {
  let summary = "Puts every collective and transfer into an asynchronous group";
  let description = [{
    ```mlir
    %1 = dist.all_reduce %0 over ["model"] sum : tensor<8xf32>
    // becomes
    %f = dist.start {
      %2 = dist.all_reduce %0 over ["model"] sum : tensor<8xf32>
      dist.yield %2 : tensor<8xf32>
    } : !dist.future<tensor<8xf32>>
    %1 = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def VerifyCommunicated : Pass<"dist-verify-communicated", "::mlir::func::FuncOp"> {
  let summary = "Checks that all communication is in groups on contiguous data";
  let description = [{
    **Guarantees:**
    - C-G1: collectives and transfers are in `dist.start`; no `dist.shard_slice` is left.
    - C-G2: all_gather, reduce_scatter and all_to_all work on dimension 0.
    - C-G3: every future has one `dist.done`.
  }];
}

#endif
