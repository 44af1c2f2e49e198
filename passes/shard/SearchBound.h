//===- SearchBound.h - how good a search's choice is ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SEARCHBOUND_H
#define GRIDLOOM_PASSES_SHARD_SEARCHBOUND_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace gridloom {

/// Time and lower bound of splits chosen on one mesh, as the search estimates them: operations run
/// one after another on a device; with stages it is a step of all micro-batches.
struct SearchBound {
  double costMs = 0;  ///< of the chosen splits
  double boundMs = 0; ///< no choice takes less; with stages: no choice with these stages
};

inline constexpr llvm::StringLiteral kSearchBound = "dist.search_bound";

inline void setSearchBound(mlir::ModuleOp module, SearchBound bound) {
  mlir::Builder builder(module.getContext());
  module->setAttr(kSearchBound, builder.getF64ArrayAttr({bound.costMs, bound.boundMs}));
}

/// Takes the bound off the module; nullopt if nothing was searched.
inline std::optional<SearchBound> takeSearchBound(mlir::ModuleOp module) {
  auto numbers = mlir::dyn_cast_or_null<mlir::ArrayAttr>(module->removeAttr(kSearchBound));
  if (!numbers || numbers.size() != 2)
    return std::nullopt;
  auto get = [&](size_t i) { return mlir::cast<mlir::FloatAttr>(numbers[i]).getValueAsDouble(); };
  return SearchBound{get(0), get(1)};
}

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SEARCHBOUND_H
