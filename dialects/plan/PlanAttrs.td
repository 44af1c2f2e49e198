//===- PlanAttrs.td - attributes, enumerations, types -------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_ATTRS
#define GRIDLOOM_PLAN_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "dialects/plan/PlanDialect.td"

class Plan_Enum<string name, string text, list<I32EnumAttrCase> cases> : I32EnumAttr<name, text, cases> {
  let cppNamespace = "::gridloom::plan";
  let genSpecializedAttr = 0;
}

def SkeletonEnum : Plan_Enum<"Skeleton", "the loop structure a kernel is emitted with", [
    I32EnumAttrCase<"Elementwise", 0, "elementwise">, I32EnumAttrCase<"Row", 1, "row">,
    I32EnumAttrCase<"Transpose", 2, "transpose">, I32EnumAttrCase<"Gather", 3, "gather">,
    I32EnumAttrCase<"General", 4, "general">]>;
def SkeletonAttr : EnumAttr<PlanDialect, SkeletonEnum, "skeleton">;

def SpaceEnum : Plan_Enum<"Space", "where a buffer lives", [
    I32EnumAttrCase<"Arena", 0, "arena">, I32EnumAttrCase<"Registered", 1, "registered">,
    I32EnumAttrCase<"Weight", 2, "weight">, I32EnumAttrCase<"State", 3, "state">,
    I32EnumAttrCase<"Input", 4, "input">, I32EnumAttrCase<"Output", 5, "output">,
    I32EnumAttrCase<"Constant", 6, "constant">]>;
def SpaceAttr : EnumAttr<PlanDialect, SpaceEnum, "space">;

def EpilogueEnum : Plan_Enum<"Epilogue", "what a library call does to its result", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Bias", 1, "bias">]>;
def EpilogueAttr : EnumAttr<PlanDialect, EpilogueEnum, "epilogue">;

def Plan_MatmulAttr : AttrDef<PlanDialect, "Matmul"> {
  let mnemonic = "matmul";
  let summary = "A library matrix multiplication's descriptor";
  let description = [{
    `sizes` is [batch..., M, N, K]. Strides are in elements: `lhs` [batch..., M, K], `rhs`
    [batch..., K, N], `out` [batch..., M, N]; a batch stride of 0 repeats the operand. The result is
    alpha * lhs * rhs, then the epilogue.

    **Constraints:**
    - P-MM1: each stride list has as many entries as `sizes` less one.
    - P-MM2: of the last two strides of each list one is 1.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$sizes, ArrayRefParameter<"int64_t">:$lhs,
      ArrayRefParameter<"int64_t">:$rhs, ArrayRefParameter<"int64_t">:$out,
      DefaultValuedParameter<"double", "1.0">:$alpha,
      DefaultValuedParameter<"::gridloom::plan::Epilogue", "::gridloom::plan::Epilogue::None">:$epilogue);
  let assemblyFormat = [{`<` `sizes` `=` `[` $sizes `]` `,` `lhs` `=` `[` $lhs `]` `,` `rhs` `=` `[` $rhs `]` `,`
      `out` `=` `[` $out `]` (`,` `alpha` `=` $alpha^)? (`,` `epilogue` `=` $epilogue^)? `>`}];
  let genVerifyDecl = 1;
}

def Plan_BufferType : TypeDef<PlanDialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Memory that holds a tensor";
  let parameters = (ins "::mlir::RankedTensorType":$tensor);
  let assemblyFormat = "`<` $tensor `>`";
}

#endif
