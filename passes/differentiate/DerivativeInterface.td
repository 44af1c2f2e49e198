//===- DerivativeInterface.td - pullbacks of operations ----*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_DERIVATIVEINTERFACE
#define GRIDLOOM_PASSES_DIFFERENTIATE_DERIVATIVEINTERFACE

include "mlir/IR/OpBase.td"

def DerivativeInterface : OpInterface<"DerivativeInterface"> {
  let cppNamespace = "::gridloom";
  let description = [{
    The derivative of an operation with one result, in reverse: from the cotangent of the result, those of
    the operands. Pullbacks are models beside the dialect (Pullbacks.h), made of loom operations.
  }];
  let methods = [
    InterfaceMethod<[{
        Adds to the cotangents of the operands that `adjoints` wants, given that of the result. It is
        not called where `findObstacle` gives a reason.}],
      "void", "pullBack", (ins "::mlir::Value":$cotangent, "::gridloom::Adjoints &":$adjoints)>,
    InterfaceMethod<"Why this form of the operation has no pullback; empty where it has one.",
      "::llvm::StringRef", "findObstacle", (ins)>,
    InterfaceMethod<[{
        Whether the result changes in steps only, as that of `loom.floor` does: its derivative is zero
        wherever there is one. So it is where attribute `loom.flat` says that derivatives take the
        result as a constant.}],
      "bool", "isFlat", (ins)>
  ];
}

#endif
