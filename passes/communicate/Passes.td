//===- Passes.td - the communicate phase --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_COMMUNICATE
#define GRIDLOOM_PASSES_COMMUNICATE

include "mlir/Pass/PassBase.td"

def JoinPartialSums : Pass<"dist-join-partial-sums", "::mlir::func::FuncOp"> {
  let summary = "Adds partial sums before they are reduced, so that they are reduced once";
  let description = [{
    ```mlir
    %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
    %1 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
    %2 = loom.add %0, %1 : tensor<8xf32>
    // becomes, when %0 and %1 have no other use
    %0 = loom.add %a, %b : tensor<8xf32>
    %2 = dist.all_reduce %0 over ["model"] sum : tensor<8xf32>
    ```
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def FormReduceScatter : Pass<"dist-form-reduce-scatter", "::mlir::func::FuncOp"> {
  let summary = "Turns an all_reduce whose result is sliced into a reduce_scatter";
  let description = [{
    ```mlir
    %0 = dist.all_reduce %x over ["model"] sum : tensor<8x16xf32>
    %1 = dist.shard_slice %0 over ["model"] dim = 0 : (tensor<8x16xf32>) -> tensor<4x16xf32>
    // becomes, when %0 has no other use
    %1 = dist.reduce_scatter %x over ["model"] dim = 0 sum : (tensor<8x16xf32>) -> tensor<4x16xf32>
    ```

    Axes of the all_reduce that the slice is not over are reduced afterwards, on the part.
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def ChunkCollectiveMatmul : Pass<"dist-chunk-collective-matmul", "::mlir::func::FuncOp"> {
  let summary = "Cuts a matmul and the collective beside it into chunks that overlap";
  let description = [{
    While one chunk travels the next is computed. The matmul is cut along a free dimension: before an
    all_reduce or reduce_scatter of its result, and after an all_gather of an operand. Where only the
    dimension that is scattered or gathered is free, a chunk is a piece of every device's part.

    ```mlir
    %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %1 = dist.all_reduce %0 over ["model"] sum : tensor<8x6xf32>
    // becomes, with two chunks
    %a = loom.slice %x [0, 0] to [4, 4] by [1, 1] : (tensor<8x4xf32>) -> tensor<4x4xf32>
    %b = loom.dot_general %a, %w batch = [] x [] contract = [1] x [0] : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %c = dist.all_reduce %b over ["model"] sum {dist.chunk} : tensor<4x6xf32>
    ... // the same of rows 4 to 8: %d
    %1 = loom.concatenate %c, %d dim = 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    ```
  }];
  let options = [Option<"chunks", "chunks", "int64_t", "2", "chunks of each matmul">,
    Option<"minBytes", "min-bytes", "int64_t", "65536", "collectives of fewer bytes a device stay whole">];
  let dependentDialects = ["::gridloom::loom::LoomDialect", "::gridloom::dist::DistDialect"];
}

def LowerShardSlices : Pass<"dist-lower-shard-slices", "::mlir::func::FuncOp"> {
  let summary = "Turns shard slices into local gathers";
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
  let summary = "Joins independent all_reduces of one group into one: small ones, and gradients";
  let description = [{
    Latency is paid once for values that travel together; above `threshold` bytes there is nothing to
    gain. Values stay apart where the first would have to wait for the operands of the second longer
    than joining saves: where its result is needed sooner.

    ```mlir
    %0 = dist.all_reduce %a over ["model"] sum : tensor<8xf32>
    %1 = dist.all_reduce %b over ["model"] sum : tensor<8xf32>
    // becomes
    %0:2 = dist.all_reduce %a, %b over ["model"] sum : tensor<8xf32>, tensor<8xf32>
    ```

    Of a training step gradients are joined, whatever their size: what all have to wait for before
    any of them is used. They are the all_reduces that no other one of their group, element type and
    reduction waits for. In the order in which they are there if all operations run as soon as they
    can, each bucket takes them until it has `bucket-size` bytes; one that has as many by itself
    stays alone. A bucket stands where the last of its operands is there.
  }];
  let options = [Option<"threshold", "threshold", "int64_t", "262144", "bytes of a combined all_reduce">,
    Option<"bucketSize", "bucket-size", "int64_t", "0", "bytes after which gradients are sent; 0: each by itself">];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
}

def BucketShards : Pass<"dist-bucket-shards", "::mlir::func::FuncOp"> {
  let summary = "Sends shards of several gradients, and of several updated weights, in one message";
  let description = [{
    Of a training step, reduce_scatters that no other one of their group, element type and reduction waits for are gradients', and
    all_gathers whose results are only returned are updated weights'. In the order in which they are made each bucket takes them until
    it has `bucket-size` bytes of whole values; one that has as many by itself stays alone, and so does one that takes longer to copy into
    the message or out of it than to send in its own. The message has, rank by rank, that rank's shards of all values. A bucket stands
    where the last of its operands is there, and takes no two gradients of one parameter
    (`loom.accumulates`): those of one part of the batch do not wait for the next.

    ```mlir
    %0 = dist.reduce_scatter %a over ["data"] dim = 0 sum : (tensor<8x3xf32>) -> tensor<4x3xf32>
    %1 = dist.reduce_scatter %b over ["data"] dim = 0 sum : (tensor<2xf32>) -> tensor<1xf32>
    // becomes
    %p = loom.reshape %a : (tensor<8x3xf32>) -> tensor<2x12xf32>
    %q = loom.reshape %b : (tensor<2xf32>) -> tensor<2x1xf32>
    %c = loom.concatenate %p, %q dim = 1 : (tensor<2x12xf32>, tensor<2x1xf32>) -> tensor<2x13xf32>
    %m = loom.reshape %c : (tensor<2x13xf32>) -> tensor<26xf32>
    %r = dist.reduce_scatter %m over ["data"] dim = 0 sum : (tensor<26xf32>) -> tensor<13xf32>
    %s = loom.slice %r [0] to [12] by [1] : (tensor<13xf32>) -> tensor<12xf32>
    %0 = loom.reshape %s : (tensor<12xf32>) -> tensor<4x3xf32>
    %1 = loom.slice %r [12] to [13] by [1] : (tensor<13xf32>) -> tensor<1xf32>
    ```
  }];
  let options = [Option<"bucketSize", "bucket-size", "int64_t", "0", "bytes after which shards are sent; 0: each value by itself">];
  let dependentDialects = ["::gridloom::loom::LoomDialect", "::gridloom::dist::DistDialect"];
}

def MergeEqual : Pass<"dist-merge-equal", "::mlir::func::FuncOp"> {
  let summary = "Merges equal operations";
  let description = [{
    Common subexpression elimination in which collectives that differ in their cause alone are equal;
    the one that stays has all causes. Origins of shardings, which make no value another one, go.

    ```mlir
    %0 = dist.all_reduce %a over ["model"] sum {dist.because = "'x' needs the whole"} : tensor<8xf32>
    %1 = dist.all_reduce %a over ["model"] sum {dist.because = "'y' needs the whole"} : tensor<8xf32>
    // becomes
    %0 = dist.all_reduce %a over ["model"] sum {dist.because = "'x' needs the whole; 'y' needs the whole"} : tensor<8xf32>
    ```
  }];
}

def GatherAgain : Pass<"dist-gather-again", "::mlir::func::FuncOp"> {
  let summary = "Drops gathered parameters between uses, and gathers them again, those used together in one message";
  let description = [{
    A parameter of which each device keeps a part is whole only while it is used. The uses of all are walked in program order: a
    parameter stays gathered as long as it and those used after it fit into a window of `1 + ahead` times the largest one, and an eighth
    for small ones; after that it is gathered again before the next use, such as that of the backward part.

    Those that are used one after another are a unit, which is gathered in one message, while each is dropped after its own last use. A
    unit takes parameters until it has `bucket-size` bytes, at most `1 / (1 + ahead)` of the window, and no more than the window holds
    beside what is there when the first one is used; a parameter that has `bucket-size` bytes by itself travels alone. All these
    all_gathers are numbered (`dist.gathered`), and the function says how many bytes the window has (`dist.gather_window`): the schedule
    starts none before there is room for all of it, so `ahead` units are on their way while one is used.

    ```mlir
    // ahead=1; %w, %v and %u are parameters of one size
    %0 = dist.all_gather %w over ["data"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
    ... // uses of %0, then of all of %v, then of all of %u
    %a = loom.dot_general %y, %0 ...
    // becomes
    ...
    %1 = dist.all_gather %w over ["data"] dim = 0 {dist.gathered = 3 : i64} : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %a = loom.dot_general %y, %1 ...
    ```
  }];
  let options = [Option<"ahead", "ahead", "int64_t", "1", "parameters of the largest size that are gathered ahead of the one in use">,
    Option<"bucketSize", "bucket-size", "int64_t", "0", "bytes after which a unit is gathered; 0: each parameter by itself">];
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
    - C-G4: in a program whose operations name ONNX nodes, so does all communication.
    - C-G5: in such a program all communication has a cause.
  }];
}

#endif
