//===- DistInterfaces.td - sharding rules -------------------*- tablegen -*-===//
#ifndef GRIDLOOM_DIST_INTERFACES
#define GRIDLOOM_DIST_INTERFACES

include "mlir/IR/OpBase.td"

def ShardingRuleInterface : OpInterface<"ShardingRuleInterface"> {
  let cppNamespace = "::gridloom::dist";
  let description = [{
    How an operation's tensors share factors, and so how it can be split. Asked on global types.
  }];
  let methods = [
    InterfaceMethod<"The factors of the operands and results, in that order.",
      "::gridloom::dist::ShardingRule", "getShardingRule">,
    InterfaceMethod<[{
        True when op(a + b) = op(a) + op(b) taken over all operands together, so that partial sums may
        pass through it unreduced.}],
      "bool", "isLinear", (ins), "", "return false;">,
    InterfaceMethod<[{
        Builds the operation on local operands. `axes[f]` are the mesh axes that split factor f.
        The default clones it with the local result types.}],
      "::llvm::SmallVector<::mlir::Value>", "partition",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$operands,
           "::mlir::TypeRange":$localTypes, "::gridloom::dist::FactorAxes":$axes), "",
      "return ::gridloom::dist::cloneWithLocalTypes(builder, $_op.getOperation(), operands, localTypes);">
  ];
}

#endif
