//===- SortWords.h - elements and their places as integers ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_SORTWORDS_H
#define GRIDLOOM_COMPILER_CODEGEN_SORTWORDS_H

#include "compiler/codegen/LaneBuilder.h"

namespace gridloom::codegen {

/// An element and its place as one unsigned integer: the element's key above the place's bits. Keys
/// order as elements do, with NaN greatest and both zeros equal; the place makes each word unique,
/// so that any sort of words is stable.
struct SortWords {
  mlir::Type element;
  bool descending;

  /// i64 for elements of up to 32 bits, i128 for others.
  mlir::IntegerType getType() const;
  mlir::Value make(LaneBuilder &b, mlir::Value element, mlir::Value place) const;
  /// The place in a word, an i64.
  mlir::Value getPlace(LaneBuilder &b, mlir::Value word) const;
};

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_SORTWORDS_H
