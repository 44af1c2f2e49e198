//===- Linear.cpp - index expressions -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Linear.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace gridloom::codegen;

bool gridloom::codegen::contains(llvm::ArrayRef<AtomId> set, AtomId atom) {
  return std::binary_search(set.begin(), set.end(), atom);
}

bool gridloom::codegen::intersects(llvm::ArrayRef<AtomId> a, llvm::ArrayRef<AtomId> b) {
  return llvm::any_of(a, [&](AtomId atom) { return contains(b, atom); });
}

void gridloom::codegen::unite(AtomSet &into, llvm::ArrayRef<AtomId> other) {
  for (AtomId atom : other) {
    auto *place = std::lower_bound(into.begin(), into.end(), atom);
    if (place == into.end() || *place != atom)
      into.insert(place, atom);
  }
}

void gridloom::codegen::subtract(AtomSet &from, llvm::ArrayRef<AtomId> other) {
  llvm::erase_if(from, [&](AtomId atom) { return llvm::is_contained(other, atom); });
}

//===----------------------------------------------------------------------===//
// Linear
//===----------------------------------------------------------------------===//

Linear Linear::atom(AtomId atom, int64_t coefficient) {
  Linear result;
  if (coefficient != 0)
    result.terms.emplace_back(atom, coefficient);
  return result;
}

int64_t Linear::coefficient(AtomId atom) const {
  for (auto [id, coefficient] : terms)
    if (id == atom)
      return coefficient;
  return 0;
}

Linear &Linear::operator+=(const Linear &other) {
  offset += other.offset;
  for (auto [atom, coefficient] : other.terms) {
    auto *place = std::lower_bound(terms.begin(), terms.end(), atom,
                                   [](const auto &term, AtomId id) { return term.first < id; });
    if (place == terms.end() || place->first != atom)
      terms.insert(place, {atom, coefficient});
    else if ((place->second += coefficient) == 0)
      terms.erase(place);
  }
  return *this;
}

Linear Linear::operator*(int64_t factor) const {
  Linear result(offset * factor);
  if (factor != 0)
    for (auto [atom, coefficient] : terms)
      result.terms.emplace_back(atom, coefficient * factor);
  return result;
}

void Linear::encode(std::vector<int64_t> &key) const {
  key.push_back(offset);
  key.push_back(static_cast<int64_t>(terms.size()));
  for (auto [atom, coefficient] : terms) {
    key.push_back(atom);
    key.push_back(coefficient);
  }
}

//===----------------------------------------------------------------------===//
// AtomTable
//===----------------------------------------------------------------------===//

AtomId AtomTable::add(Atom atom) {
  atoms.push_back(std::move(atom));
  return atoms.size() - 1;
}

AtomId AtomTable::addLoop(int64_t size) {
  Atom atom;
  atom.size = size;
  atom.free = {static_cast<AtomId>(atoms.size())};
  return add(std::move(atom));
}

AtomId AtomTable::addLoaded(NodeId node, int64_t size, AtomSet free) {
  for (auto [id, atom] : llvm::enumerate(atoms))
    if (atom.kind == Atom::Kind::Loaded && atom.node == node && atom.size == size)
      return id;
  Atom atom;
  atom.kind = Atom::Kind::Loaded;
  atom.size = size;
  atom.node = node;
  atom.free = std::move(free);
  return add(std::move(atom));
}

std::pair<int64_t, int64_t> AtomTable::range(const Linear &linear) const {
  int64_t low = linear.offset, high = linear.offset;
  for (auto [atom, coefficient] : linear.terms) {
    int64_t extreme = coefficient * (atoms[atom].size - 1);
    (coefficient < 0 ? low : high) += extreme;
  }
  return {low, high};
}

AtomSet AtomTable::freeAtoms(const Linear &linear) const {
  AtomSet result;
  for (auto [atom, coefficient] : linear.terms)
    unite(result, atoms[atom].free);
  return result;
}

AtomSet AtomTable::allAtoms(const Linear &linear) const {
  AtomSet result;
  for (auto [atom, coefficient] : linear.terms) {
    unite(result, {atom});
    unite(result, allAtoms(atoms[atom].argument));
  }
  return result;
}

std::pair<Linear, Linear> AtomTable::divide(const Linear &linear, int64_t divisor) const {
  int64_t whole = llvm::divideFloorSigned(linear.offset, divisor);
  Linear multiple(whole), rest(linear.offset - whole * divisor);
  for (auto [atom, coefficient] : linear.terms) {
    // A coefficient like 5 * divisor + 2 is not split: that would only widen its range.
    if (coefficient % divisor == 0)
      multiple.terms.emplace_back(atom, coefficient / divisor);
    else
      rest.terms.emplace_back(atom, coefficient);
  }
  return {multiple, rest};
}

bool AtomTable::isBelow(const Linear &linear, int64_t bound) const {
  auto [low, high] = range(linear);
  return low >= 0 && high < bound;
}

void AtomTable::suggestSplit(const Linear &rest, int64_t divisor) {
  for (auto [atom, coefficient] : rest.terms) {
    const Atom &term = atoms[atom];
    if (term.kind != Atom::Kind::Loop || coefficient <= 0 || divisor % coefficient != 0)
      continue;
    int64_t factor = divisor / coefficient;
    if (factor > 1 && factor < term.size && term.size % factor == 0)
      suggestedSplits.emplace_back(atom, factor);
  }
}

AtomId AtomTable::addDivision(Atom::Kind kind, const Linear &linear, int64_t divisor,
                              int64_t size) {
  std::vector<int64_t> key{static_cast<int64_t>(kind), divisor};
  linear.encode(key);
  auto [place, isNew] = divisions.try_emplace(key, 0);
  if (!isNew)
    return place->second;
  Atom atom;
  atom.kind = kind;
  atom.size = size;
  atom.argument = linear;
  atom.divisor = divisor;
  atom.free = freeAtoms(linear);
  return place->second = add(std::move(atom));
}

Linear AtomTable::quotient(const Linear &linear, int64_t divisor) {
  if (divisor == 1)
    return linear;
  auto [multiple, rest] = divide(linear, divisor);
  if (isBelow(rest, divisor))
    return multiple;
  suggestSplit(rest, divisor);
  // The rest may be negative though the whole is not; then only the whole may be divided.
  bool split = range(rest).first >= 0;
  const Linear &argument = split ? rest : linear;
  int64_t size = std::max<int64_t>(range(argument).second / divisor + 1, 1);
  Linear atom = Linear::atom(addDivision(Atom::Kind::Quotient, argument, divisor, size));
  return split ? multiple + atom : atom;
}

Linear AtomTable::remainder(const Linear &linear, int64_t divisor) {
  if (divisor == 1)
    return {};
  auto [multiple, rest] = divide(linear, divisor);
  if (isBelow(rest, divisor))
    return rest;
  suggestSplit(rest, divisor);
  const Linear &argument = range(rest).first >= 0 ? rest : linear;
  return Linear::atom(addDivision(Atom::Kind::Remainder, argument, divisor, divisor));
}
