//===- ContractSums.h - fused products of reductions ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CONTRACTSUMS_H
#define GRIDLOOM_COMPILER_CODEGEN_CONTRACTSUMS_H

#include "mlir/IR/BuiltinOps.h"

namespace gridloom::codegen {

/// Adds `value` to the running sum `sum`, both of the same float type; contractSums may fuse it.
mlir::Value addToSum(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value sum,
                     mlir::Value value);

/// Makes sum + a * b one fused multiply-add in reductions of f32 and f64. Other products are
/// rounded: several kernels may compute one value, each with other readers of its product, and have
/// to compute the same bits. For the same reason LLVM must not fuse.
mlir::LogicalResult contractSums(mlir::ModuleOp module);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CONTRACTSUMS_H
