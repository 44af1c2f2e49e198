//===- DistOps.td - meshes, collectives, transfers ----------*- tablegen -*-===//
#ifndef GRIDLOOM_DIST_OPS
#define GRIDLOOM_DIST_OPS

include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/dist/DistAttrs.td"
include "dialects/dist/DistInterfaces.td"

class Dist_Op<string mnemonic, list<Trait> traits = []> : Op<DistDialect, mnemonic, traits>;

def Dist_AxesAttr : TypedArrayAttrBase<StrAttr, "mesh axes, major to minor">;

//===----------------------------------------------------------------------===//
// Mesh and shardings
//===----------------------------------------------------------------------===//

def Dist_MeshOp : Dist_Op<"mesh", [Symbol]> {
  let summary = "A mesh of devices with named axes";
  let description = [{
    Ranks are numbered row-major over the axes in the order given. The axis `micro` is special: it counts
    micro-batches, which every device runs one after another; no collective may use it.

    ```mlir
    dist.mesh @mesh <["data" = 2, "model" = 4]>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypedArrayAttrBase<Dist_AxisAttr, "axes">:$axes);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The axis that counts micro-batches.
    static constexpr ::llvm::StringLiteral kMicroAxis = "micro";
    /// Size of the axis; 1 if the mesh has none of that name.
    int64_t getAxisSize(::llvm::StringRef name);
    bool hasAxis(::llvm::StringRef name);
    /// The number of devices: the product of all axes except micro-batches.
    int64_t getNumDevices();
  }];
}

def Dist_AxisIndexOp : Dist_Op<"axis_index", [Pure]> {
  let summary = "This device's position along mesh axes, a scalar";
  let description = [{
    The row-major index over `axes`, from 0. The program is the same on all ranks; the runtime supplies the value.

    ```mlir
    %i = dist.axis_index ["data", "model"] : tensor<i64>
    ```
  }];
  let arguments = (ins Dist_AxesAttr:$axes);
  let results = (outs RankedTensorOf<[I64]>:$output);
  let assemblyFormat = "$axes attr-dict `:` type($output)";
}

//===----------------------------------------------------------------------===//
// Collectives: local shapes; `axes` name the group, all devices that differ only there
//===----------------------------------------------------------------------===//

class Dist_CollectiveOp<string mnemonic, list<Trait> traits = []> : Dist_Op<mnemonic,
    !listconcat([Pure], traits)> {
  let hasVerifier = 1;
}

def Dist_AllReduceOp : Dist_CollectiveOp<"all_reduce", [DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "Reduces values over a group; every member gets identical bits";
  let description = [{
    All values of one all_reduce are reduced in one message.

    ```mlir
    %y:2 = dist.all_reduce %a, %b over ["model"] sum : tensor<8x16xf32>, tensor<4xf32>
    ```

    **Constraints:**
    - D-AR1: results have the operands' types.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, Dist_AxesAttr:$axes, ReductionKindAttr:$reduction);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = "$inputs `over` $axes `` $reduction attr-dict `:` type($inputs)";
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs, "::llvm::ArrayRef<::mlir::StringAttr>":$axes,
      "::gridloom::dist::ReductionKind":$reduction)>];
}

class Dist_OneCollectiveOp<string mnemonic, dag extraArguments> : Dist_CollectiveOp<mnemonic> {
  let arguments = !con((ins AnyRankedTensor:$input, Dist_AxesAttr:$axes), extraArguments);
  let results = (outs AnyRankedTensor:$output);
}

def Dist_AllGatherOp : Dist_OneCollectiveOp<"all_gather", (ins I64Attr:$dim)> {
  let summary = "Concatenates the group's shards along `dim`";
  let description = [{
    Every member receives all shards, in the group's row-major order.

    ```mlir
    %y = dist.all_gather %x over ["model"] dim = 1 : (tensor<8x4xf32>) -> tensor<8x16xf32>
    ```

    **Constraints:**
    - D-AG1: output dim = input dim * group size, other dimensions are equal.
  }];
  let assemblyFormat = "$input `over` $axes `dim` `=` $dim attr-dict `:` functional-type($input, $output)";
}

def Dist_ReduceScatterOp : Dist_OneCollectiveOp<"reduce_scatter", (ins I64Attr:$dim, ReductionKindAttr:$reduction)> {
  let summary = "Reduces over the group and leaves each member its part of `dim`";
  let description = [{
    Member i receives the i-th part of the reduced value.

    ```mlir
    %y = dist.reduce_scatter %x over ["model"] dim = 1 sum : (tensor<8x16xf32>) -> tensor<8x4xf32>
    ```

    **Constraints:**
    - D-RS1: input dim = output dim * group size, other dimensions are equal.
  }];
  let assemblyFormat = "$input `over` $axes `dim` `=` $dim `` $reduction attr-dict `:` functional-type($input, $output)";
}

def Dist_AllToAllOp : Dist_OneCollectiveOp<"all_to_all", (ins I64Attr:$split_dim, I64Attr:$concat_dim)> {
  let summary = "Splits `split_dim` over the group and concatenates along `concat_dim`";
  let description = [{
    Member i sends its j-th part to member j: the split moves from `concat_dim` to `split_dim`.

    ```mlir
    %y = dist.all_to_all %x over ["model"] split = 0 concat = 1 : (tensor<8x4xf32>) -> tensor<2x16xf32>
    ```

    **Constraints:**
    - D-AA1: the split dim shrinks and the concat dim grows by the group size; they may be the same dimension.
  }];
  let assemblyFormat = "$input `over` $axes `split` `=` $split_dim `concat` `=` $concat_dim attr-dict `:` functional-type($input, $output)";
}

def Dist_PermuteOp : Dist_OneCollectiveOp<"permute", (ins DenseI64ArrayAttr:$permutation)> {
  let summary = "Member i receives the value of member permutation[i]";
  let description = [{
    Every member sends to exactly one member and receives from exactly one, possibly itself.

    ```mlir
    %y = dist.permute %x over ["data"] [1, 0] : (tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let assemblyFormat = "$input `over` $axes $permutation attr-dict `:` functional-type($input, $output)";
}

def Dist_ShardSliceOp : Dist_OneCollectiveOp<"shard_slice", (ins I64Attr:$dim)> {
  let summary = "Keeps this device's part of `dim`; no communication";
  let description = [{
    The inverse of an all_gather: a replicated value becomes split over `axes`.

    ```mlir
    %y = dist.shard_slice %x over ["model"] dim = 1 : (tensor<8x16xf32>) -> tensor<8x4xf32>
    ```

    **Constraints:**
    - D-SS1: input dim = output dim * group size, other dimensions are equal.
  }];
  let assemblyFormat = "$input `over` $axes `dim` `=` $dim attr-dict `:` functional-type($input, $output)";
}

//===----------------------------------------------------------------------===//
// Between global and local values
//===----------------------------------------------------------------------===//

def Dist_ReshardOp : Dist_Op<"reshard", [Pure, SameOperandsAndResultType]> {
  let summary = "Brings a global value from one sharding to another";
  let description = [{
    Where a use differs from the definition. `dist.because` says who needs it.

    ```mlir
    dist.mesh @mesh <["model" = 2]>
    %y = dist.reshard %x from <@mesh, [{}, {"model"} ]> to <@mesh, [{}, {} ]> : tensor<8x16xf32>
    ```

    **Constraints:**
    - D-RE1: both shardings have the tensor's rank.
    - D-RE2: `to` is unreduced over no axis over which `from` is not.
  }];
  let arguments = (ins AnyRankedTensor:$input, Dist_ShardingAttr:$from, Dist_ShardingAttr:$to);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `from` $from `to` $to attr-dict `:` type($output)";
  let hasVerifier = 1;
}

def Dist_OnShardsOp : Dist_Op<"on_shards", [IsolatedFromAbove, RecursiveMemoryEffects, SingleBlock]> {
  let summary = "What every device does with its shard of a global value";
  let description = [{
    The body takes this device's shard of the input, which has the sharding `from`, and yields that of the output, which has `to`.

    ```mlir
    dist.mesh @mesh <["model" = 2]>
    %y = dist.on_shards %x from <@mesh, [{}, {"model"} ]> to <@mesh, [{}, {} ]> {
    ^bb0(%shard: tensor<8x8xf32>):
      %0 = dist.all_gather %shard over ["model"] dim = 1 : (tensor<8x8xf32>) -> tensor<8x16xf32>
      dist.yield %0 : tensor<8x16xf32>
    } : (tensor<8x16xf32>) -> tensor<8x16xf32>
    ```

    **Constraints:**
    - D-OS1: the body's one argument is the input's shard.
    - D-OS2: the body yields the output's shard.
  }];
  let arguments = (ins AnyRankedTensor:$input, Dist_ShardingAttr:$from, Dist_ShardingAttr:$to);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "$input `from` $from `to` $to $body attr-dict `:` functional-type($input, $output)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Pipeline transfers
//===----------------------------------------------------------------------===//

def Dist_SendOp : Dist_Op<"send"> {
  let summary = "Sends to the device of `stage` with the same other coordinates";
  let description = [{
    `channel` numbers the transfers of a program in one order and pairs a send with its recv.

    ```mlir
    dist.send %x to 1 channel 0 : tensor<8x16xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$stage, I64Attr:$channel);
  let assemblyFormat = "$input `to` $stage `channel` $channel attr-dict `:` type($input)";
}

def Dist_RecvOp : Dist_Op<"recv"> {
  let summary = "Receives from the device of `stage` with the same other coordinates";
  let description = [{
    The peer's send has the same `channel` and type.

    ```mlir
    %x = dist.recv from 0 channel 0 : tensor<8x16xf32>
    ```
  }];
  let arguments = (ins I64Attr:$stage, I64Attr:$channel);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = "`from` $stage `channel` $channel attr-dict `:` type($output)";
}

//===----------------------------------------------------------------------===//
// Asynchronous groups
//===----------------------------------------------------------------------===//

def Dist_FutureType : TypeDef<DistDialect, "Future"> {
  let mnemonic = "future";
  let summary = "The results of communication in flight";
  let description = [{
    `dist.start` returns it; `dist.done` waits for it and returns the tensors.

    ```mlir
    !dist.future<tensor<8xf32>, tensor<4xf32>>
    ```
  }];
  let parameters = (ins OptionalArrayRefParameter<"::mlir::Type">:$types);
  let assemblyFormat = "`<` (`>`) : ($types^ `>`)?";
}

def Dist_StartOp : Dist_Op<"start", [SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "Starts one group: one collective, or transfers that must progress together";
  let description = [{
    The region holds the group's operations and yields their results. Operands are used from above. All_gathers over the same devices are one
    collective, of several values in one message.

    ```mlir
    %f = dist.start {
      %0 = dist.all_reduce %x over ["model"] sum : tensor<8xf32>
      dist.yield %0 : tensor<8xf32>
    } : !dist.future<tensor<8xf32>>
    %y = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
    ```

    **Constraints:**
    - D-ST1: the region holds exactly one collective, or all_gathers over the same axes, or only sends and receives (at least one).
    - D-ST2: the future's types are the yielded types.
  }];
  let arguments = (ins);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Dist_FutureType:$future);
  let assemblyFormat = "$body attr-dict `:` type($future)";
  let hasVerifier = 1;
}

def Dist_DoneOp : Dist_Op<"done"> {
  let summary = "Waits for a group; then the results are usable and no peer reads the operands";
  let description = [{
    A group without results, such as a send, is waited for in the same way.

    ```mlir
    %f = dist.start {
      %0 = dist.all_reduce %x over ["model"] sum : tensor<8xf32>
      dist.yield %0 : tensor<8xf32>
    } : !dist.future<tensor<8xf32>>
    %y = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
    ```
  }];
  let arguments = (ins Dist_FutureType:$future);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = "$future attr-dict `:` type($future) (`->` type($outputs)^)?";
}

def Dist_YieldOp : Dist_Op<"yield", [Pure, Terminator, ReturnLike, ParentOneOf<["StartOp", "OnShardsOp"]>]> {
  let summary = "Ends the body of a group, or of what is done on shards";
  let description = [{
    Its operands are the results; a group of sends yields nothing.

    ```mlir
    %f = dist.start {
      %0 = dist.all_reduce %x over ["model"] sum : tensor<8xf32>
      dist.yield %0 : tensor<8xf32>
    } : !dist.future<tensor<8xf32>>
    %y = dist.done %f : !dist.future<tensor<8xf32>> -> tensor<8xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$results);
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
  let assemblyFormat = "($results^ `:` type($results))? attr-dict";
}

#endif
