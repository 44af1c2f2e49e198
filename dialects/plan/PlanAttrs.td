//===- PlanAttrs.td - attributes and types ------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_ATTRS
#define GRIDLOOM_PLAN_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "dialects/plan/PlanEnums.td"

def Plan_EpilogueAttr : AttrDef<PlanDialect, "Epilogue"> {
  let mnemonic = "epilogue";
  let summary = "What a library call does to its product";
  let description = [{
    A `bias`, one element per column or channel, and a `residual`, a tensor that lies in memory as the
    result does, are added; the `activation` is last.

    ```mlir
    <bias = true, activation = relu>
    ```
  }];
  let parameters = (ins DefaultValuedParameter<"bool", "false">:$bias,
      DefaultValuedParameter<"bool", "false">:$residual,
      DefaultValuedParameter<"::gridloom::plan::Activation", "::gridloom::plan::Activation::None">:$activation);
  let assemblyFormat = "`<` struct(params) `>`";
}

/// Default: no bias, no residual, no activation.
def Plan_EpilogueParameter : DefaultValuedParameter<"::gridloom::plan::EpilogueAttr",
    "::gridloom::plan::EpilogueAttr::get($_ctxt, false, false, ::gridloom::plan::Activation::None)">;

def Plan_MatmulAttr : AttrDef<PlanDialect, "Matmul"> {
  let mnemonic = "matmul";
  let summary = "A library matrix multiplication's descriptor";
  let description = [{
    `sizes` is [batch..., M, N, K]. Strides are in elements: `lhs` [batch..., M, K], `rhs`
    [batch..., K, N], `out` [batch..., M, N]; a batch stride of 0 repeats the operand. The result is
    alpha * lhs * rhs, then the epilogue; `alpha` is 1 where absent. Operands are f32, f16 or bf16, summed in
    f32; the result has their type or f32. With `tf32` the library may round f32 operands to TF32.

    ```mlir
    #plan.matmul<sizes = [8, 32, 16], lhs = [16, 1], rhs = [32, 1], out = [32, 1] epilogue = <bias = true>>
    ```

    **Constraints:**
    - P-MM1: each stride list has as many entries as `sizes` less one.
    - P-MM2: one of the last two strides of each list is 1.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$sizes, ArrayRefParameter<"int64_t">:$lhs,
      ArrayRefParameter<"int64_t">:$rhs, ArrayRefParameter<"int64_t">:$out,
      OptionalParameter<"::mlir::FloatAttr">:$alpha,
      Plan_EpilogueParameter:$epilogue, DefaultValuedParameter<"bool", "false">:$tf32);
  let assemblyFormat = [{`<` `sizes` `=` `[` $sizes `]` `,` `lhs` `=` `[` $lhs `]` `,` `rhs` `=` `[` $rhs `]` `,`
      `out` `=` `[` $out `]` (`alpha` `=` $alpha^)? (`epilogue` `=` $epilogue^)? (`tf32` `=` $tf32^)? `>`}];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    double getAlphaValue() const { return getAlpha() ? getAlpha().getValueAsDouble() : 1.0; }
  }];
}

def Plan_ConvolutionAttr : AttrDef<PlanDialect, "Convolution"> {
  let mnemonic = "convolution";
  let summary = "A library convolution's descriptor";
  let description = [{
    `input` is [N, C, spatial...], `weight` [O, C / groups, window...], `output` [N, O, positions...],
    each followed by its strides in elements. The input has low[i] and high[i] zeros around spatial
    dimension i; the window is not mirrored. The result is the convolution, then the epilogue. With `tf32` the
    library may round f32 operands to TF32.

    **Constraints:**
    - P-CV1: the three sizes have the same rank, at least 3, and as many strides.
    - P-CV2: strides, low, high and dilations have one entry per spatial dimension; strides and
      dilations are positive, padding is not negative.
    - P-CV3: sizes match as in loom.convolution.
    - P-CV4: the epilogue's activation is none or relu.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$input, ArrayRefParameter<"int64_t">:$inputStrides,
      ArrayRefParameter<"int64_t">:$weight, ArrayRefParameter<"int64_t">:$weightStrides,
      ArrayRefParameter<"int64_t">:$output, ArrayRefParameter<"int64_t">:$outputStrides,
      ArrayRefParameter<"int64_t">:$strides, ArrayRefParameter<"int64_t">:$low,
      ArrayRefParameter<"int64_t">:$high, ArrayRefParameter<"int64_t">:$dilations, "int64_t":$groups,
      Plan_EpilogueParameter:$epilogue, DefaultValuedParameter<"bool", "false">:$tf32);
  let assemblyFormat = [{`<` `input` `=` `[` $input `]` `by` ` ` `[` $inputStrides `]` `,`
      `weight` `=` `[` $weight `]` `by` ` ` `[` $weightStrides `]` `,`
      `output` `=` `[` $output `]` `by` ` ` `[` $outputStrides `]` `,`
      `strides` `=` `[` $strides `]` `,` `low` `=` `[` $low `]` `,` `high` `=` `[` $high `]` `,`
      `dilations` `=` `[` $dilations `]` `,` `groups` `=` $groups
      (`epilogue` `=` $epilogue^)? (`tf32` `=` $tf32^)? `>`}];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Operations of one call; a multiply-add counts as two.
    double getFlops() const;
  }];
}

def Plan_AttentionAttr : AttrDef<PlanDialect, "Attention"> {
  let mnemonic = "attention";
  let summary = "A library attention's descriptor";
  let description = [{
    The result is softmax(scale * query * key^T + mask) * value, the softmax over keys. `sizes` is
    [batch, heads, queries, keys, depth, value depth]. Strides are in elements: `query` [batch, heads,
    queries, depth], `key` [batch, heads, keys, depth], `value` [batch, heads, keys, value depth],
    `out` [batch, heads, queries, value depth], `mask` [batch, heads, queries, keys]; a stride of 0
    repeats the operand. With `causal`, a query sees the keys up to its own index.

    **Constraints:**
    - P-AT1: six sizes, and four strides in each list; an absent mask has none.
    - P-AT2: the last stride of query, key, value and out is 1.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$sizes, ArrayRefParameter<"int64_t">:$query,
      ArrayRefParameter<"int64_t">:$key, ArrayRefParameter<"int64_t">:$value,
      ArrayRefParameter<"int64_t">:$out, OptionalArrayRefParameter<"int64_t">:$mask, "::mlir::FloatAttr":$scale,
      DefaultValuedParameter<"bool", "false">:$causal);
  let assemblyFormat = [{`<` `sizes` `=` `[` $sizes `]` `,` `query` `=` `[` $query `]` `,`
      `key` `=` `[` $key `]` `,` `value` `=` `[` $value `]` `,` `out` `=` `[` $out `]` `,`
      `scale` `=` $scale (`mask` `=` `[` $mask^ `]`)? (`causal` `=` $causal^)? `>`}];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Operations of one call; a multiply-add counts as two.
    double getFlops() const;
  }];
}

def Plan_InPlaceAttr : AttrDef<PlanDialect, "InPlace"> {
  let mnemonic = "in_place";
  let summary = "An output of a kernel that may take the memory of one of its inputs";
  let description = "Outputs and inputs are numbered from 0.";
  let parameters = (ins "unsigned":$output, "unsigned":$input);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Plan_LibraryCallAttr : AnyAttrOf<[Plan_MatmulAttr, Plan_ConvolutionAttr, Plan_AttentionAttr],
    "a library call's descriptor">;

def Plan_StreamAttr : AttrDef<PlanDialect, "Stream"> {
  let mnemonic = "stream";
  let summary = "The stream a step is submitted to";
  let description = [{
    A stage has one stream for compute, one for the collectives over each list of axes, and one for
    the transfers to or from each other stage:

    ```mlir
    compute
    collective over ["data", "model"]
    send stage 1
    ```

    **Constraints:**
    - P-ST1: a collective stream has axes, a send or recv stream has a stage; no stream has anything else.
  }];
  let parameters = (ins "::gridloom::plan::StreamKind":$kind, OptionalParameter<"::mlir::ArrayAttr">:$axes,
      DefaultValuedParameter<"int64_t", "-1">:$stage);
  let assemblyFormat = "$kind (`over` $axes^)? (`stage` $stage^)?";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    static StreamAttr getCompute(::mlir::MLIRContext *context);
    /// The stream of a group: `axes` of a collective, `stage` of a transfer's peer.
    static StreamAttr getOf(::gridloom::plan::GroupKind kind, ::mlir::ArrayAttr axes, int64_t stage);
    /// Its name in plans and messages: compute, comm.data+model, send.1.
    std::string getName() const;
  }];
}

def Plan_BufferType : TypeDef<PlanDialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Memory that holds a tensor";
  let description = [{
    `plan.buffer`, `plan.alias` and `plan.rank_param` create buffers; steps read and write them.

    ```mlir
    !plan.buffer<tensor<8x16xf32>>
    ```
  }];
  let parameters = (ins "::mlir::RankedTensorType":$tensor);
  let assemblyFormat = "`<` $tensor `>`";
}

#endif
