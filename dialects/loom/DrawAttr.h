//===- DrawAttr.h - states that begin with drawn numbers --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_DRAWATTR_H
#define GRIDLOOM_DIALECTS_LOOM_DRAWATTR_H

#include "support/Draw.h"

#include "mlir/IR/BuiltinAttributes.h"

namespace gridloom::loom {

/// On an argument that is a state of f32 or f64, in place of `loom.init`: how its elements are
/// drawn, {distribution = "constant" | "uniform" | "normal", first, second, seed, stream}, as in
/// Draw.
inline constexpr llvm::StringLiteral kDraw = "loom.draw";

mlir::DictionaryAttr makeDrawAttr(mlir::MLIRContext *context, const Draw &draw);
/// Nullopt if the attribute is no such dictionary.
std::optional<Draw> readDraw(mlir::Attribute attribute);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_DRAWATTR_H
