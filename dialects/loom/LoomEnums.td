//===- LoomEnums.td - enumerations --------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_ENUMS
#define GRIDLOOM_LOOM_ENUMS

include "mlir/IR/EnumAttr.td"
include "dialects/loom/LoomDialect.td"

class Loom_Enum<string name, string text, list<I32EnumAttrCase> cases> : I32EnumAttr<name, text, cases> {
  let cppNamespace = "::gridloom::loom";
  let genSpecializedAttr = 0;
}

def DirectionEnum : Loom_Enum<"Direction", "comparison", [
    I32EnumAttrCase<"EQ", 0, "eq">, I32EnumAttrCase<"NE", 1, "ne">, I32EnumAttrCase<"LT", 2, "lt">,
    I32EnumAttrCase<"LE", 3, "le">, I32EnumAttrCase<"GT", 4, "gt">, I32EnumAttrCase<"GE", 5, "ge">]>;
def DirectionAttr : EnumAttr<LoomDialect, DirectionEnum, "direction">;

def GeluEnum : Loom_Enum<"GeluForm", "which formula GELU uses", [
    I32EnumAttrCase<"Erf", 0, "erf">, I32EnumAttrCase<"Tanh", 1, "tanh">]>;
def GeluAttr : EnumAttr<LoomDialect, GeluEnum, "gelu_form">;

#endif
