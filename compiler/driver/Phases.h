//===- Phases.h - the phase table -------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// --stop-after, --start-from, --dump-ir, the plan's ir folder and docs/phases.md all come from this
// table.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_PHASES_H
#define GRIDLOOM_COMPILER_DRIVER_PHASES_H

#include "passes/communicate/Communicate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/shard/Shard.h"
#include "passes/simplify/Simplify.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/ArrayRef.h"

#include <optional>

namespace gridloom {

/// Options of the phases between import and emit.
struct PhaseContext {
  ShardOptions shard;
  CommunicateOptions communicate;
  LayoutOptions layout;
  SimplifyOptions simplify;
  FuseOptions fuse;
};

struct Phase {
  llvm::StringLiteral name;
  llvm::StringLiteral summary;
  llvm::StringLiteral guarantee; ///< what its verify pass checks
  /// Adds the passes, the verify pass last. import adds only that one, since the rest is no pass;
  /// null for emit, whose plan is loaded before it replaces an old one.
  void (*addPasses)(mlir::OpPassManager &pm, const PhaseContext &context);
};

/// In order.
llvm::ArrayRef<Phase> getPhases();
std::optional<size_t> findPhase(llvm::StringRef name);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_PHASES_H
