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

// Every tensor operation: free of side effects, has a sharding rule, a cost and a reference evaluation.
// `linear` and `costed` name interface methods the operation itself overrides.
class Loom_Op<string mnemonic, list<Trait> traits = [], list<string> rule = [], list<string> cost = []>
    : Op<LoomDialect, mnemonic, !listconcat(traits, [Pure,
        DeclareOpInterfaceMethods<ShardingRuleInterface, !listconcat(["getShardingRule"], rule)>,
        DeclareOpInterfaceMethods<CostInterface, cost>,
        DeclareOpInterfaceMethods<EvaluateInterface>])>;

#endif
