//===- Float8.h - 8-bit floats in kernels -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// No processor's instructions are needed: codes are bytes, and a conversion is a few operations on
// the bits of a wider float, the same for all targets.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_FLOAT8_H
#define GRIDLOOM_DIALECTS_LOOM_FLOAT8_H

#include "dialects/dist/ShardingRule.h"

#include "mlir/IR/Builders.h"

namespace gridloom::loom {

/// The type an element has in kernels: integers have no sign there, 8-bit floats are bytes.
mlir::Type getKernelType(mlir::Type element);

/// The factor kind of a dimension that an operation looks elements up in: a reduction, since
/// devices sum what they find; 8-bit floats are never summed, so they need replication.
dist::FactorKind getLookupKind(mlir::Type element);

/// The f32 that `codes`, i8 or a vector of it, stand for in the 8-bit float `type`.
mlir::Value decodeFloat8(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type,
                         mlir::Value codes);

/// Codes, i8, of x, f32 or f64 or a vector of one: to nearest, ties to even. What rounds to more
/// than the largest number becomes that if `saturate`, else infinity, or NaN of a type without.
mlir::Value encodeFloat8(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type,
                         mlir::Value x, bool saturate);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_FLOAT8_H
