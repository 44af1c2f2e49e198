//===- DistEnums.td - enumerations --------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_DIST_ENUMS
#define GRIDLOOM_DIST_ENUMS

include "mlir/IR/EnumAttr.td"
include "dialects/dist/DistDialect.td"

def ReductionSum : I32EnumAttrCase<"Sum", 0, "sum">;
def ReductionMax : I32EnumAttrCase<"Max", 1, "max">;
def ReductionMin : I32EnumAttrCase<"Min", 2, "min">;
def ReductionProd : I32EnumAttrCase<"Prod", 3, "prod">;

def ReductionKindEnum : I32EnumAttr<"ReductionKind", "how partial values combine",
    [ReductionSum, ReductionMax, ReductionMin, ReductionProd]> {
  let cppNamespace = "::gridloom::dist";
  let genSpecializedAttr = 0;
}
def ReductionKindAttr : EnumAttr<DistDialect, ReductionKindEnum, "reduction">;

#endif
