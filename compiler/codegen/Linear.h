//===- Linear.h - index expressions -----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An index is a linear combination of atoms. An atom is a loop variable or a term that is not
// linear in loop variables: a quotient, a remainder, an index read from memory.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_LINEAR_H
#define GRIDLOOM_COMPILER_CODEGEN_LINEAR_H

#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace gridloom::codegen {

using AtomId = unsigned;
using NodeId = unsigned;
/// Atoms in increasing order.
using AtomSet = llvm::SmallVector<AtomId, 4>;

bool contains(llvm::ArrayRef<AtomId> set, AtomId atom);
bool intersects(llvm::ArrayRef<AtomId> a, llvm::ArrayRef<AtomId> b);
void unite(AtomSet &into, llvm::ArrayRef<AtomId> other);
void subtract(AtomSet &from, llvm::ArrayRef<AtomId> other);

/// offset + sum of coefficient * atom. Terms are in order of atoms, coefficients not zero.
struct Linear {
  int64_t offset = 0;
  llvm::SmallVector<std::pair<AtomId, int64_t>, 4> terms;

  Linear() = default;
  Linear(int64_t offset) : offset(offset) {}
  static Linear atom(AtomId atom, int64_t coefficient = 1);

  bool isConstant() const { return terms.empty(); }
  int64_t coefficient(AtomId atom) const;
  Linear &operator+=(const Linear &other);
  Linear operator+(const Linear &other) const { return Linear(*this) += other; }
  Linear operator*(int64_t factor) const;
  bool operator==(const Linear &other) const = default;
  /// Appends an encoding that is unique for each expression.
  void encode(std::vector<int64_t> &key) const;
};

struct Atom {
  enum class Kind { Loop, Quotient, Remainder, Loaded };
  Kind kind = Kind::Loop;
  int64_t size = 1;    // values are 0 to size - 1; a loaded index is clamped to them
  Linear argument;     // Quotient, Remainder: the dividend, never negative where it is evaluated
  int64_t divisor = 1; // Quotient, Remainder
  NodeId node = 0;     // Loaded: the value
  AtomSet free;        // the loop variables it depends on; itself for a loop
};

/// The atoms of one loop nest, and arithmetic that uses their ranges.
class AtomTable {
public:
  AtomId addLoop(int64_t size);
  AtomId addLoaded(NodeId node, int64_t size, AtomSet free);

  const Atom &operator[](AtomId id) const { return atoms[id]; }
  size_t size() const { return atoms.size(); }

  /// Least and largest value.
  std::pair<int64_t, int64_t> range(const Linear &linear) const;
  /// The loop variables that `linear` depends on.
  AtomSet freeAtoms(const Linear &linear) const;

  /// The atoms in `linear`, and those in their arguments.
  AtomSet allAtoms(const Linear &linear) const;

  /// linear / divisor and linear % divisor, rounded down; exact where ranges allow it, else a new
  /// atom.
  Linear quotient(const Linear &linear, int64_t divisor);
  Linear remainder(const Linear &linear, int64_t divisor);

  /// Loop atoms and factors: split into loops of size / factor and factor iterations, the atom
  /// would avoid a quotient. Collected by all calls of quotient and remainder.
  llvm::ArrayRef<std::pair<AtomId, int64_t>> getSuggestedSplits() const { return suggestedSplits; }

private:
  AtomId add(Atom atom);
  AtomId addDivision(Atom::Kind kind, const Linear &linear, int64_t divisor, int64_t size);
  /// Splits `linear` into multiple * divisor + rest.
  std::pair<Linear, Linear> divide(const Linear &linear, int64_t divisor) const;
  bool isBelow(const Linear &linear, int64_t bound) const;
  void suggestSplit(const Linear &rest, int64_t divisor);

  std::vector<Atom> atoms;
  std::map<std::vector<int64_t>, AtomId> divisions;
  std::vector<std::pair<AtomId, int64_t>> suggestedSplits;
};

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_LINEAR_H
