//===- NamePatterns.h - names with stars, and lists folded into them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One line can describe all similar layers: `layers.*.mlp.up.weight`. Names are looked up by exact
// key first, then by the patterns with the most text besides stars, so that one line can be an
// exception to another.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_NAMEPATTERNS_H
#define GRIDLOOM_PASSES_SHARD_NAMEPATTERNS_H

#include "dialects/loom/NamePattern.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace gridloom {

/// Finds the keys of a list that apply to a name. Keys are exact names, or patterns.
class NameTable {
public:
  explicit NameTable(llvm::ArrayRef<llvm::StringRef> keys);

  /// The keys that decide about `full`, one of the things called `base`. In order of precedence:
  /// the key equal to `full`, the key equal to `base`, of the patterns that match `full` those with
  /// the most text besides stars, the same for `base`.
  llvm::SmallVector<unsigned, 2> find(llvm::StringRef full, llvm::StringRef base);
  /// Keys that applied to none of the names looked up so far.
  const llvm::BitVector &getUnused() const { return unused; }

private:
  void addPatterns(llvm::StringRef name, llvm::SmallVectorImpl<unsigned> &found);

  llvm::SmallVector<llvm::StringRef> keys;
  llvm::StringMap<unsigned> exact;
  /// Patterns by the text before their first star.
  llvm::StringMap<llvm::SmallVector<unsigned, 2>> patterns;
  llvm::BitVector unused;
};

/// A name and what a list says of it.
struct NamedText {
  std::string full; ///< one of the things called `base`
  std::string base;
  std::string text;
  /// Whether the list has to say it; if not, the list may leave it out, but not contradict it.
  bool needed = true;
};

/// Which names a folded list describes by one pattern.
enum class FoldStyle {
  Repeats, ///< similar layers: numbers become stars, as do the inner operations of a node
  Prefixes ///< a common prefix: all below `/layers.0/`
};

/// The shortest list of keys and texts that this finds with which NameTable gives every needed name
/// its text, in the order of the names. Full names must be distinct.
std::vector<std::pair<std::string, std::string>> foldNames(llvm::ArrayRef<NamedText> names,
                                                           FoldStyle style);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_NAMEPATTERNS_H
