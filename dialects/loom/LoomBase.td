//===- LoomBase.td - classes the operations are made of -----*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_BASE
#define GRIDLOOM_LOOM_BASE

include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/dist/DistInterfaces.td"
include "dialects/loom/LoomAttrs.td"
include "dialects/loom/LoomEnums.td"
include "dialects/loom/LoomInterfaces.td"

def Loom_Tensor : StaticShapeTensorOf<[AnyType]>;
def Loom_FloatTensor : StaticShapeTensorOf<[AnyFloat]>;
def Loom_BoolTensor : StaticShapeTensorOf<[I1]>;
def Loom_IntTensor : StaticShapeTensorOf<[I32, I64]>;

// How rounding to 16 bits harms an operation; read by `--precision` (passes/simplify/Precision.cpp).
class Loom_NumericTrait<string name> : NativeOpTrait<name> { let cppNamespace = "::gridloom::loom"; }
/// The result fits f16 and bf16 whatever the operands are.
def Loom_Bounded : Loom_NumericTrait<"Bounded">;
/// A small error of an operand can be a large error of the result.
def Loom_AmplifiesError : Loom_NumericTrait<"AmplifiesError">;
/// The result can leave the range of f16 although the operand is in it.
def Loom_ExceedsHalf : Loom_NumericTrait<"ExceedsHalf">;

/// Operand 0 is normalised along its last dimension, with f32 arithmetic if it has 16 bits; the
/// other operands are vectors of that dimension.
def Loom_NormalizesRows : NativeOpTrait<"NormalizesRows"> { let cppNamespace = "::gridloom::loom"; }

// Every tensor operation: free of side effects, has a sharding rule, a cost and a reference evaluation.
// `rule` and `cost` name the methods of the two interfaces that the operation itself defines; `sharding` is for
// classes that define the rule of all their operations at once.
class Loom_Op<string mnemonic, list<Trait> traits = [], list<string> rule = [], list<string> cost = [],
              Trait sharding = DeclareOpInterfaceMethods<ShardingRuleInterface, !listconcat(["getShardingRule"], rule)>>
    : Op<LoomDialect, mnemonic, !listconcat(traits, [Pure,
        sharding,
        DeclareOpInterfaceMethods<CostInterface, cost>,
        DeclareOpInterfaceMethods<EvaluateInterface>])>;

#endif
