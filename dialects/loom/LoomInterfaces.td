//===- LoomInterfaces.td - interfaces of tensor operations -*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_INTERFACES
#define GRIDLOOM_LOOM_INTERFACES

include "mlir/IR/OpBase.td"

def CostInterface : OpInterface<"CostInterface"> {
  let cppNamespace = "::gridloom::loom";
  let description = "Work of an operation on the shapes it has.";
  let methods = [
    InterfaceMethod<"Floating-point operations; a multiply-add counts as two.", "int64_t", "getFlops", (ins), "",
      "return ::gridloom::loom::elementwiseFlops($_op.getOperation());">
  ];
}

def EvaluateInterface : OpInterface<"EvaluateInterface"> {
  let cppNamespace = "::gridloom::loom";
  let description = "Reference evaluation: slow and obviously right.";
  let methods = [
    InterfaceMethod<"Computes the results from the operands. Fails with a diagnostic on the operation.",
      "::llvm::FailureOr<::llvm::SmallVector<::gridloom::loom::HostTensor>>", "evaluate",
      (ins "::llvm::ArrayRef<::gridloom::loom::HostTensor>":$operands)>
  ];
}

def KernelBodyInterface : OpInterface<"KernelBodyInterface"> {
  let cppNamespace = "::gridloom::loom";
  let description = [{
    The scalar function of an elementwise operation. Operands are scalars or vectors of the element
    type, all of one shape; so is the result.
  }];
  let methods = [
    InterfaceMethod<"Emits arith and math operations; returns the value.", "::mlir::Value", "emitScalar",
      (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc, "::mlir::ValueRange":$operands)>,
    InterfaceMethod<[{
        CPU cycles on a vector of 16 f32. What costs at most `kCheapCycles` costs about as much as reading its
        result would, and may be computed twice.}],
      "int64_t", "getScalarCycles", (ins), "", "return 1;">
  ];
}

def DecomposeInterface : OpInterface<"DecomposeInterface"> {
  let cppNamespace = "::gridloom::loom";
  let description = "A composite as simpler operations.";
  let methods = [
    InterfaceMethod<"Builds the simpler operations; returns one value per result.",
      "::llvm::SmallVector<::mlir::Value>", "decompose", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

#endif
