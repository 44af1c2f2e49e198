//===- Folding.h - fold operations on constants -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A constant whose elements are all equal stays a splat of its full shape, whatever its size, since
// it takes one element. Other constants are folded only while they are small, so that weights do
// not become part of the program.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_FOLDING_H
#define GRIDLOOM_PASSES_SIMPLIFY_FOLDING_H

#include "dialects/loom/Loom.h"

namespace gridloom {

/// The largest result that is computed at compile time.
inline constexpr int64_t kMaxFoldedBytes = int64_t{64} * 1024;

/// The largest constants that are read element by element at compile time: a splat may stand for
/// any number of elements.
inline constexpr int64_t kMaxReadBytes = int64_t{64} * 1024 * 1024;
/// The most elements of windows that an operation on constants may read.
inline constexpr double kMaxWindowElements = 0x1p22;

/// The constant that `value` is; null if it is not one.
mlir::DenseElementsAttr getConstant(mlir::Value value);
/// The value of every element of `value`, if it is a splat of a float or integer.
std::optional<double> getSplat(mlir::Value value);
/// Whether `value` is a float splat of `number`, to a relative 1e-6: exporters round such numbers.
bool isSplatNear(mlir::Value value, double number);
/// A constant of `type` with all elements `number`.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type,
                        double number);

/// Whether an operation may be folded. Random bits may not: training gives them an iteration.
bool canFold(mlir::Operation *op);

/// The value of an expression of constants and counters, such as a triangle, whose parts have at
/// most kMaxFoldedBytes each; null if it reads anything else. Fails, with a diagnostic, if an
/// operation cannot be computed.
llvm::FailureOr<mlir::DenseElementsAttr> evaluateConstant(mlir::Value value);

/// The value of an operation with one result. Its operands must all be constants, or include a
/// constant that is no splat and otherwise be known to evaluateConstant. Null if an operand is not
/// known, if the result is larger than kMaxFoldedBytes and not a splat, or if the operands have
/// more than kMaxReadBytes together or windows more than kMaxWindowElements, which elementwise
/// operations on splats and moves of a splat may have. Fails, with a diagnostic on `op`, if the
/// operation cannot be computed.
llvm::FailureOr<mlir::DenseElementsAttr> foldOperation(mlir::Operation *op);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_FOLDING_H
