//===- Float8.h - 8-bit floats in kernels -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Needs no processor support: codes are bytes, and a conversion is a few operations on the bits of
// a wider float, the same for all targets.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_FLOAT8_H
#define GRIDLOOM_DIALECTS_LOOM_FLOAT8_H

#include "dialects/dist/ShardingRule.h"

#include "mlir/IR/Builders.h"

namespace gridloom::loom {

/// The type of an element in kernels: integers have no sign there, 8-bit floats are bytes.
mlir::Type getKernelType(mlir::Type element);

/// The factor kind of a dimension in which an operation looks up elements: a reduction, since
/// devices sum what they find; but replication for 8-bit floats, which are never summed.
dist::FactorKind getLookupKind(mlir::Type element);

/// The f32 values of `codes`, i8 or a vector of it, in the 8-bit float `type`.
mlir::Value decodeFloat8(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type,
                         mlir::Value codes);

/// Encodes x, f32 or f64 or a vector of one, as i8: rounds to nearest, ties to even. Results beyond
/// the largest number become that if `saturate`, else infinity, or NaN if the type has none.
mlir::Value encodeFloat8(mlir::OpBuilder &builder, mlir::Location loc, mlir::FloatType type,
                         mlir::Value x, bool saturate);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_FLOAT8_H
