//===- SplitPrices.h - what splits cost on one mesh -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPLITPRICES_H
#define GRIDLOOM_PASSES_SHARD_SPLITPRICES_H

#include "compiler/solver/Problem.h"
#include "passes/shard/SplitChoices.h"

#include "llvm/ADT/StringMap.h"

namespace gridloom {

/// Costs on one mesh of the ways to split operations, and of resharding between two of them.
/// Problems on the same mesh, of programs in one context, share it. Not thread-safe.
struct SplitPrices {
  struct Choice {
    SplitChoice ways;
    solver::Cost cost;
  };
  struct Reshard {
    solver::Cost cost = -1;
    solver::Cost apart = 0;    ///< more, if the two would otherwise be one kernel
    solver::Cost epilogue = 0; ///< the same, if the reader is in the epilogue of a library call
    solver::Cost launch = 0;   ///< more, if the reader cannot cut out a device's part itself
    solver::Cost hidden = 0;   ///< less, if other work can run beside the message
    solver::Cost copy = 0; ///< more, if the producer cannot write in the reader's order any more
    bool isKnown() const { return cost >= 0; }
  };
  /// Between the shardings of one type, which are numbered.
  struct Reshards {
    llvm::DenseMap<mlir::Attribute, unsigned> numbers;
    llvm::SmallVector<dist::ShardingAttr> shardings;
    std::vector<std::vector<Reshard>> costs; ///< [from][to], as far as they are known

    unsigned getNumber(dist::ShardingAttr sharding) {
      auto [entry, isNew] = numbers.try_emplace(sharding, shardings.size());
      if (isNew) {
        shardings.push_back(sharding);
        costs.emplace_back();
      }
      return entry->second;
    }
    Reshard &get(unsigned from, unsigned to) {
      if (costs[from].size() <= to)
        costs[from].resize(shardings.size());
      return costs[from][to];
    }
  };

  /// Sets what all prices depend on; forgets prices for anything else.
  void setPlace(std::vector<const void *> now) {
    if (now == place)
      return;
    *this = SplitPrices();
    place = std::move(now);
  }

  std::vector<const void *> place;
  llvm::StringMap<std::vector<Choice>> choices; ///< by all that distinguishes operations
  llvm::DenseMap<mlir::Type, Reshards> reshards;
  llvm::DenseMap<std::pair<mlir::Type, mlir::Attribute>, int64_t> bytes; ///< of a device's part
  llvm::DenseMap<mlir::Attribute, std::unique_ptr<const dist::Sharding>> shardings; ///< converted
  /// By type, kind of edge and both lists of shardings: the cost of every pair, row-major.
  llvm::StringMap<std::vector<solver::Cost>> tables;
};

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPLITPRICES_H
