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

  /// What the file says of a name in a specialisation; null where it says nothing. Patterns that
  /// contradict each other are noted.
  const StrategyLine *find(StrategySection section, llvm::StringRef specialisation,
                           llvm::StringRef full, llvm::StringRef base);
  void note(unsigned line, const llvm::Twine &text);
  /// What a line says and this program, of other sizes, has no use for.
  void noteIdle(unsigned line, const llvm::Twine &text);
  /// Emits one error with all that was noted and all lines that no name was found for: a note for
  /// each but the first. Lines about what only this program lacks give a warning, idle ones
  /// another.
  llvm::LogicalResult report();

private:
  struct Table {
    const StrategyTable *lines;
    llvm::SmallVector<std::unique_ptr<NameTable>> names; ///< by section; null for those not asked
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
  llvm::StringSet<> contradicted; ///< pairs of lines that are noted already
  std::vector<std::pair<unsigned, std::string>> problems, unused;
  std::map<unsigned, std::string> idle; ///< by line
};

/// The file that a pass has as its option; null, with an error on the module, where it has
/// problems.
std::shared_ptr<const StrategyFile> readForPass(mlir::ModuleOp module, const std::string &path);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_STRATEGYLOOKUP_H
