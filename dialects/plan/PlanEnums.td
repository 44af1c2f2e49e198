//===- PlanEnums.td - enumerations --------------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_ENUMS
#define GRIDLOOM_PLAN_ENUMS

include "mlir/IR/EnumAttr.td"
include "dialects/plan/PlanDialect.td"

class Plan_Enum<string name, string text, list<I32EnumAttrCase> cases> : I32EnumAttr<name, text, cases> {
  let cppNamespace = "::gridloom::plan";
  let genSpecializedAttr = 0;
}

// Code generation chooses it after planning the loops; plans, reports and `inspect kernels` show its name. No
// operation holds it: until then, the body alone identifies a kernel.
def SkeletonEnum : Plan_Enum<"Skeleton", "the loop structure a kernel is emitted with", [
    I32EnumAttrCase<"Elementwise", 0, "elementwise">, I32EnumAttrCase<"Row", 1, "row">,
    I32EnumAttrCase<"Column", 2, "column">, I32EnumAttrCase<"Transpose", 3, "transpose">,
    I32EnumAttrCase<"Gather", 4, "gather">, I32EnumAttrCase<"Product", 5, "product">,
    I32EnumAttrCase<"General", 6, "general">, I32EnumAttrCase<"Lanes", 7, "lanes">]>;

def SpaceEnum : Plan_Enum<"Space", "where a buffer lives", [
    I32EnumAttrCase<"Arena", 0, "arena">, I32EnumAttrCase<"Registered", 1, "registered">,
    I32EnumAttrCase<"Weight", 2, "weight">, I32EnumAttrCase<"State", 3, "state">,
    I32EnumAttrCase<"Input", 4, "input">, I32EnumAttrCase<"Output", 5, "output">,
    I32EnumAttrCase<"Constant", 6, "constant">]>;
def SpaceAttr : EnumAttr<PlanDialect, SpaceEnum, "space">;

def GroupKindEnum : Plan_Enum<"GroupKind", "what a group of ranks does with its buffers", [
    I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"AllGather", 1, "all_gather">,
    I32EnumAttrCase<"ReduceScatter", 2, "reduce_scatter">, I32EnumAttrCase<"AllToAll", 3, "all_to_all">,
    I32EnumAttrCase<"Permute", 4, "permute">, I32EnumAttrCase<"Send", 5, "send">, I32EnumAttrCase<"Recv", 6, "recv">]>;
def GroupKindAttr : EnumAttr<PlanDialect, GroupKindEnum, "group_kind">;

def StreamKindEnum : Plan_Enum<"StreamKind", "what a stream's steps do", [
    I32EnumAttrCase<"Compute", 0, "compute">, I32EnumAttrCase<"Collective", 1, "collective">,
    I32EnumAttrCase<"Send", 2, "send">, I32EnumAttrCase<"Recv", 3, "recv">]>;

def ActivationEnum : Plan_Enum<"Activation", "the last thing a library call does to its result; gelu is the tanh form", [
    I32EnumAttrCase<"None", 0, "none">, I32EnumAttrCase<"Relu", 1, "relu">,
    I32EnumAttrCase<"Gelu", 2, "gelu">]>;

#endif
