//===- PlanAttrs.td - attributes and types ------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_ATTRS
#define GRIDLOOM_PLAN_ATTRS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "dialects/plan/PlanEnums.td"

def Plan_MatmulAttr : AttrDef<PlanDialect, "Matmul"> {
  let mnemonic = "matmul";
  let summary = "A library matrix multiplication's descriptor";
  let description = [{
    `sizes` is [batch..., M, N, K]. Strides are in elements: `lhs` [batch..., M, K], `rhs`
    [batch..., K, N], `out` [batch..., M, N]; a batch stride of 0 repeats the operand. The result is
    alpha * lhs * rhs, then the epilogue; `alpha` is 1 where absent.

    **Constraints:**
    - P-MM1: each stride list has as many entries as `sizes` less one.
    - P-MM2: of the last two strides of each list one is 1.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$sizes, ArrayRefParameter<"int64_t">:$lhs,
      ArrayRefParameter<"int64_t">:$rhs, ArrayRefParameter<"int64_t">:$out,
      OptionalParameter<"::mlir::FloatAttr">:$alpha,
      DefaultValuedParameter<"::gridloom::plan::Epilogue", "::gridloom::plan::Epilogue::None">:$epilogue);
  let assemblyFormat = [{`<` `sizes` `=` `[` $sizes `]` `,` `lhs` `=` `[` $lhs `]` `,` `rhs` `=` `[` $rhs `]` `,`
      `out` `=` `[` $out `]` (`alpha` `=` $alpha^)? (`epilogue` `=` $epilogue^)? `>`}];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    double getAlphaValue() const { return getAlpha() ? getAlpha().getValueAsDouble() : 1.0; }
  }];
}

def Plan_BufferType : TypeDef<PlanDialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "Memory that holds a tensor";
  let parameters = (ins "::mlir::RankedTensorType":$tensor);
  let assemblyFormat = "`<` $tensor `>`";
}

#endif
