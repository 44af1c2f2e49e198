//===- PlanOps.td - kernels, blocks, control ----------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_OPS
#define GRIDLOOM_PLAN_OPS

include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/dist/DistAttrs.td"
include "dialects/loom/LoomAttrs.td"
include "dialects/plan/PlanAttrs.td"

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<PlanDialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Kernels and library calls on tensors (fuse phase)
//===----------------------------------------------------------------------===//

def Plan_KernelOp : Plan_Op<"kernel", [Symbol, IsolatedFromAbove, SingleBlock]> {
  let summary = "A kernel: the loom operations it fuses";
  let description = [{
    Block arguments are the inputs, `loom.yield` gives the outputs. Equal kernels share one symbol.
    `in_place` lists the outputs that may be the same memory as an input; of several inputs of one
    output a launch uses one. All other memory of a launch is apart, and its code relies on that.

    ```mlir
    plan.kernel @k0 in_place = [#plan.in_place<output = 0, input = 0>] {
    ^bb0(%x: tensor<8x16xf32>):
      %0 = loom.exp %x : tensor<8x16xf32>
      loom.yield %0 : tensor<8x16xf32>
    }
    ```

    **Constraints:**
    - P-IP1: `in_place` numbers outputs and inputs that the kernel has.
    - P-IP2: an output takes the memory of an input of as many bytes.
    - P-IP3: of that input, the body reads for an element of the output, and of other outputs of
      its shape, only the one in its place, and nothing for outputs of another shape. An element of
      all outputs of one shape is computed before it is written.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
      OptionalAttr<TypedArrayAttrBase<Plan_InPlaceAttr, "pairs of an output and an input">>:$in_place);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name (`in_place` `=` $in_place^)? $body attr-dict";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Sets `in_place` to all pairs that the body allows.
    void recordInPlace();
    /// True if `in_place` lets the output take the memory of the input.
    bool canRunInPlace(unsigned output, unsigned input);
  }];
}

def Plan_CallOp : Plan_Op<"call", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs a kernel on tensors";
  let description = [{
    Operands and results have the types of the kernel's block arguments and yielded values.

    ```mlir
    plan.kernel @negate {
    ^bb0(%a: tensor<8x16xf32>):
      %0 = loom.negate %a : tensor<8x16xf32>
      loom.yield %0 : tensor<8x16xf32>
    }
    %y = plan.call @negate(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = "$kernel `(` $inputs `)` attr-dict `:` functional-type(operands, results)";
}

def Plan_MatmulOp : Plan_Op<"matmul", [Pure, AttrSizedOperandSegments]> {
  let summary = "A library matrix multiplication on tensors";
  let description = [{
    An epilogue with an activation names a fallback kernel for libraries that cannot compute it: the kernel reads
    the plain product and the bias, if any.

    ```mlir
    %y = plan.matmul %x, %w, %b <sizes = [8, 32, 16], lhs = [16, 1], rhs = [32, 1], out = [32, 1] epilogue = <bias = true>>
        : (tensor<8x16xf32>, tensor<16x32xf32>, tensor<32xf32>) -> tensor<8x32xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$rhs, Optional<AnyRankedTensor>:$bias,
      Optional<AnyRankedTensor>:$residual, Plan_MatmulAttr:$descriptor, OptionalAttr<FlatSymbolRefAttr>:$fallback);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{$lhs `,` $rhs (`,` $bias^)? (`residual` $residual^)? $descriptor (`else` $fallback^)? attr-dict
      `:` functional-type(operands, results)}];
}

def Plan_ConvolutionOp : Plan_Op<"convolution", [Pure, AttrSizedOperandSegments]> {
  let summary = "A library convolution on tensors";
  let description = [{
    The descriptor states sizes, strides and what follows the convolution; bias and residual are operands.

    ```mlir
    %y = plan.convolution %x, %w bias %b <input = [1, 3, 8, 8] by [192, 64, 8, 1], weight = [16, 3, 3, 3]
        by [27, 9, 3, 1], output = [1, 16, 4, 4] by [256, 16, 4, 1], strides = [2, 2], low = [1, 1],
        high = [1, 1], dilations = [1, 1], groups = 1 epilogue = <bias = true, activation = relu>>
        : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>, tensor<16xf32>) -> tensor<1x16x4x4xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$weight, Optional<AnyRankedTensor>:$bias,
      Optional<AnyRankedTensor>:$residual, Plan_ConvolutionAttr:$descriptor);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{$input `,` $weight (`bias` $bias^)? (`residual` $residual^)? $descriptor attr-dict
      `:` functional-type(operands, results)}];
  let hasVerifier = 1;
}

def Plan_AttentionOp : Plan_Op<"attention", [Pure]> {
  let summary = "A library attention on tensors";
  let description = [{
    The descriptor states sizes and strides; a stride of 0 repeats the mask over that dimension.

    ```mlir
    %y = plan.attention %q, %k, %v mask %m <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1],
        key = [512, 128, 16, 1], value = [512, 128, 16, 1], out = [512, 128, 16, 1],
        scale = 2.5e-01 : f64 mask = [8, 0, 0, 1]>
        : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x8xf16>)
          -> tensor<2x4x8x16xf16>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$query, AnyRankedTensor:$key, AnyRankedTensor:$value,
      Optional<AnyRankedTensor>:$mask, Plan_AttentionAttr:$descriptor);
  let results = (outs AnyRankedTensor:$output);
  let assemblyFormat = [{$query `,` $key `,` $value (`mask` $mask^)? $descriptor attr-dict
      `:` functional-type(operands, results)}];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Programs on buffers (schedule phase)
//===----------------------------------------------------------------------===//

def Plan_ProgramOp : Plan_Op<"program", [Symbol, SingleBlock, NoTerminator]> {
  let summary = "What one stage runs for one specialisation of one entry";
  let description = [{
    `dims` are the symbolic dimensions the specialisation binds. Buffers come first, then control in order: blocks,
    repeats, whiles and ifs.

    ```mlir
    plan.kernel @negate {
    ^bb0(%a: tensor<8x16xf32>):
      %0 = loom.negate %a : tensor<8x16xf32>
      loom.yield %0 : tensor<8x16xf32>
    }
    plan.program @main_stage0 {
      %x = plan.buffer input "x" : <tensor<8x16xf32>>
      %y = plan.buffer output "y" : <tensor<8x16xf32>>
      plan.block {
        plan.launch @negate ins(%x : !plan.buffer<tensor<8x16xf32>>) outs(%y : !plan.buffer<tensor<8x16xf32>>) on compute
      }
    } {entry = "main", dims = {batch = 8 : i64}, stage = 0 : i64}
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$entry, DictionaryAttr:$dims, I64Attr:$stage,
      DefaultValuedAttr<I64Attr, "0">:$arena_bytes, DefaultValuedAttr<I64Attr, "0">:$registered_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name $body attr-dict";
}

def Plan_BufferOp : Plan_Op<"buffer"> {
  let summary = "Declares a buffer";
  let description = [{
    `name` is the weight, input or output it holds. Allocation sets `offset` and `bytes`. A buffer with several
    `slots` holds one tensor per micro-batch: in iteration i of the enclosing repeat its users see slot i modulo
    slots; slots are `bytes` apart.

    ```mlir
    %w = plan.buffer weight "w" {layout = #loom.layout<[0, 1], pad = 16>} : <tensor<16x16xf32>>
    %t = plan.buffer arena {offset = 0 : i64, bytes = 512 : i64, slots = 2 : i64} : <tensor<8x16xf32>>
    ```
  }];
  let arguments = (ins SpaceAttr:$space, OptionalAttr<StrAttr>:$name, DefaultValuedAttr<I64Attr, "1">:$slots,
      OptionalAttr<I64Attr>:$offset, OptionalAttr<I64Attr>:$bytes, OptionalAttr<ElementsAttr>:$value,
      OptionalAttr<Dist_ShardingAttr>:$sharding, OptionalAttr<Loom_LayoutAttr>:$layout);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = "`` $space ($name^)? attr-dict `:` type($buffer)";
}

def Plan_AliasOp : Plan_Op<"alias"> {
  let summary = "The same memory under another shape";
  let description = [{
    With an `offset`, counted in elements, the alias begins there.

    ```mlir
    %row = plan.alias %x {offset = 16 : i64} : (!plan.buffer<tensor<8x16xf32>>) -> !plan.buffer<tensor<1x16xf32>>
    ```
  }];
  let arguments = (ins Plan_BufferType:$source, DefaultValuedAttr<I64Attr, "0">:$offset);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = "$source attr-dict `:` functional-type(operands, results)";
}

def Plan_RankParamOp : Plan_Op<"rank_param"> {
  let summary = "A scalar that differs per rank: the index along mesh axes";
  let description = [{
    A one-element buffer; the runtime computes its value from the mesh when it loads the plan.

    ```mlir
    %i = plan.rank_param ["model"] : <tensor<i64>>
    ```
  }];
  let arguments = (ins TypedArrayAttrBase<StrAttr, "mesh axes">:$axes);
  let results = (outs Plan_BufferType:$buffer);
  let assemblyFormat = "$axes attr-dict `:` type($buffer)";
}

def Plan_BlockOp : Plan_Op<"block", [SingleBlock, NoTerminator]> {
  let summary = "Steps submitted to streams in this order";
  let description = [{
    Steps on one stream run in order; across streams only events order them.

    ```mlir
    plan.block {
      plan.copy ins(%x : !plan.buffer<tensor<8xf32>>) outs(%y : !plan.buffer<tensor<8xf32>>) on compute
    }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$body attr-dict";
}

def Plan_RepeatOp : Plan_Op<"repeat", [SingleBlock, NoTerminator]> {
  let summary = "Runs the body `count` times, once per micro-batch";
  let description = [{
    Iterations overlap where events allow it; buffers with several slots keep them apart.

    ```mlir
    plan.repeat 4 {
      plan.block {
        plan.copy ins(%x : !plan.buffer<tensor<8xf32>>) outs(%y : !plan.buffer<tensor<8xf32>>) on compute
      }
    }
    ```
  }];
  let arguments = (ins I64Attr:$count);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$count $body attr-dict";
}

def Plan_WhileOp : Plan_Op<"while", [SingleBlock, NoTerminator]> {
  let summary = "Runs the body while the condition's buffer holds true";
  let description = [{
    All streams finish before the condition is read, before the first iteration and after each one.

    ```mlir
    plan.while %more : <tensor<i1>> {
      plan.block {
        plan.launch @body ins(%i : !plan.buffer<tensor<i64>>) outs(%more : !plan.buffer<tensor<i1>>) on compute
      }
    }
    ```
  }];
  let arguments = (ins Plan_BufferType:$condition);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$condition `:` type($condition) $body attr-dict";
}

def Plan_IfOp : Plan_Op<"if", [SingleBlock, NoTerminator]> {
  let summary = "Runs one of two bodies, depending on the condition's buffer";
  let description = [{
    All streams finish before the condition is read. Either body may be empty.

    ```mlir
    plan.if %c : <tensor<i1>> then {
      plan.block {
        plan.copy ins(%x : !plan.buffer<tensor<8xf32>>) outs(%y : !plan.buffer<tensor<8xf32>>) on compute
      }
    } else {
    }
    ```
  }];
  let arguments = (ins Plan_BufferType:$condition);
  let regions = (region SizedRegion<1>:$then_body, SizedRegion<1>:$else_body);
  let assemblyFormat = "$condition `:` type($condition) `then` $then_body `else` $else_body attr-dict";
}

class Plan_StepOp<string mnemonic> : Plan_Op<mnemonic, [AttrSizedOperandSegments]>;

def Plan_LaunchOp : Plan_StepOp<"launch"> {
  let summary = "Launches a kernel on a stream";
  let description = [{
    `inputs` and `outputs` are the kernel's block arguments and yielded values, in order.

    ```mlir
    plan.launch @negate ins(%x : !plan.buffer<tensor<8x16xf32>>) outs(%y : !plan.buffer<tensor<8x16xf32>>) on compute
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Plan_BufferType>:$inputs, Variadic<Plan_BufferType>:$outputs, Plan_StreamAttr:$stream);
  let assemblyFormat = [{$kernel `ins` `(` $inputs (`:` type($inputs)^)? `)` `outs` `(` $outputs `:` type($outputs) `)`
      `on` `` $stream attr-dict}];
}

def Plan_LibraryOp : Plan_StepOp<"library"> {
  let summary = "Calls a library on a stream: a matrix multiplication, a convolution, an attention";
  let description = [{
    `inputs` are the operands of plan.matmul, plan.convolution or plan.attention without the absent ones;
    `fallback` is plan.matmul's.

    ```mlir
    plan.library #plan.matmul<sizes = [8, 32, 16], lhs = [16, 1], rhs = [32, 1], out = [32, 1]>
        ins(%x, %w : !plan.buffer<tensor<8x16xf32>>, !plan.buffer<tensor<16x32xf32>>)
        outs(%y : !plan.buffer<tensor<8x32xf32>>) on compute
    ```
  }];
  let arguments = (ins Plan_LibraryCallAttr:$descriptor, Variadic<Plan_BufferType>:$inputs, Variadic<Plan_BufferType>:$outputs, Plan_StreamAttr:$stream,
      OptionalAttr<FlatSymbolRefAttr>:$fallback);
  let assemblyFormat = "$descriptor `ins` `(` $inputs `:` type($inputs) `)` `outs` `(` $outputs `:` type($outputs) `)` `on` `` $stream (`else` $fallback^)? attr-dict";
}

def Plan_CopyOp : Plan_StepOp<"copy"> {
  let summary = "Copies a buffer";
  let description = [{
    Both buffers have the same number of bytes.

    ```mlir
    plan.copy ins(%x : !plan.buffer<tensor<8xf32>>) outs(%y : !plan.buffer<tensor<8xf32>>) on compute
    ```
  }];
  let arguments = (ins Variadic<Plan_BufferType>:$inputs, Variadic<Plan_BufferType>:$outputs, Plan_StreamAttr:$stream);
  let assemblyFormat = "`ins` `(` $inputs `:` type($inputs) `)` `outs` `(` $outputs `:` type($outputs) `)` `on` `` $stream attr-dict";
}

def Plan_GroupOp : Plan_StepOp<"group"> {
  let summary = "One collective, or one transfer, on a communication stream";
  let description = [{
    `sequence` numbers the program's communication in the one order all ranks keep. For send and recv, `stage` is
    the peer's.

    ```mlir
    plan.group all_reduce over ["model"] by sum sequence 0 ins(%x : !plan.buffer<tensor<8xf32>>)
        outs(%y : !plan.buffer<tensor<8xf32>>) on collective over ["model"]
    plan.group send over [] sequence 1 ins(%y : !plan.buffer<tensor<8xf32>>) outs() on send stage 1
        {stage = 1 : i64, channel = 0 : i64}
    ```

    **Constraints:**
    - P-GR1: all_reduce and reduce_scatter have a reduction, other kinds have none.
    - P-GR2: send and recv have a stage and a channel, other kinds have neither.
    - P-GR3: permute has a permutation, other kinds have none.
    - P-GR4: the stream is that of the collective's axes, or of the transfer's stage.
  }];
  let arguments = (ins GroupKindAttr:$kind, TypedArrayAttrBase<StrAttr, "mesh axes">:$axes, I64Attr:$sequence,
      OptionalAttr<ReductionKindAttr>:$reduction, OptionalAttr<I64Attr>:$stage, OptionalAttr<I64Attr>:$channel,
      OptionalAttr<DenseI64ArrayAttr>:$permutation,
      Variadic<Plan_BufferType>:$inputs, Variadic<Plan_BufferType>:$outputs, Plan_StreamAttr:$stream);
  let assemblyFormat = [{`` $kind `over` $axes (`by` `` $reduction^)? `sequence` $sequence `ins` `(` $inputs (`:` type($inputs)^)? `)` `outs` `(`
      $outputs (`:` type($outputs)^)? `)` `on` `` $stream attr-dict}];
  let hasVerifier = 1;
}

def Plan_RecordOp : Plan_Op<"record"> {
  let summary = "Records an event when the stream gets here";
  let description = [{
    A `plan.wait` for the same event on another stream returns once the steps before the record are done.

    ```mlir
    plan.record 0 on compute
    ```
  }];
  let arguments = (ins I64Attr:$event, Plan_StreamAttr:$stream);
  let assemblyFormat = "$event `on` `` $stream attr-dict";
}

def Plan_WaitOp : Plan_Op<"wait"> {
  let summary = "The stream waits for an event";
  let description = [{
    With `lag` n it waits for the event's recording n iterations of the repeat ago; the first n iterations do not
    wait.

    ```mlir
    plan.wait 0 on collective over ["model"] {lag = 1 : i64}
    ```
  }];
  let arguments = (ins I64Attr:$event, Plan_StreamAttr:$stream, DefaultValuedAttr<I64Attr, "0">:$lag);
  let assemblyFormat = "$event `on` `` $stream attr-dict";
}

#endif
