//===- StrategyLookup.h - what a strategy file says of a program -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_STRATEGYLOOKUP_H
#define GRIDLOOM_PASSES_SHARD_STRATEGYLOOKUP_H

#include "passes/shard/NamePatterns.h"
#include "passes/shard/StrategyFile.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <memory>

namespace gridloom {

/// Looks names up in some sections of a file and collects what does not fit the program.
class StrategyLookup {
public:
  StrategyLookup(const StrategyFile &file, mlir::ModuleOp module,
                 llvm::ArrayRef<StrategySection> sections);

  /// The file's line for a name in a specialisation; null if there is none. Notes patterns that
  /// contradict each other.
  const StrategyLine *find(StrategySection section, llvm::StringRef specialisation,
                           llvm::StringRef full, llvm::StringRef base);
  void note(unsigned line, const llvm::Twine &text);
  /// Notes a line that does not apply to this program at its sizes.
  void noteIdle(unsigned line, const llvm::Twine &text);
  /// Emits one error with all that was noted and all lines that matched no name, as notes after the
  /// first. Lines about things that the model has but this program lacks give one warning, idle
  /// lines another.
  llvm::LogicalResult report();

private:
  struct Table {
    const StrategyTable *lines;
    llvm::SmallVector<std::unique_ptr<NameTable>> names; ///< by section; null if not asked for
  };
  Table makeTable(const StrategyTable &lines) const;
  void noteUnused(const Table &table);
  bool isOfModel(llvm::StringRef key) const;

  const StrategyFile &file;
  mlir::ModuleOp module;
  llvm::SmallVector<StrategySection> sections;
  Table common;
  llvm::StringMap<Table> special;
  llvm::SmallVector<std::vector<std::string>> known; ///< full names asked for, by section
  llvm::SmallVector<llvm::StringSet<>> knownSet;
  llvm::StringSet<> contradicted; ///< pairs of lines already noted
  std::vector<std::pair<unsigned, std::string>> problems, unused;
  std::map<unsigned, std::string> idle; ///< by line
};

/// Reads the file named by a pass's option; null, with an error on the module, if it has problems.
std::shared_ptr<const StrategyFile> readForPass(mlir::ModuleOp module, const std::string &path);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STRATEGYLOOKUP_H
