//===- TiedWeights.cpp - weights with a shared parameter ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/TiedWeights.h"

#include "runtime/core/Plan.h"
#include "runtime/core/plan.pb.h"

#include <cstring>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

std::vector<TiedWeight> gridloom::rt::getTiedWeights(const Plan &plan) {
  std::vector<TiedWeight> ties;
  std::set<std::string> known; // several stages may have the state
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      for (const schema::TiedWeight &tie : state.tied())
        if (known.insert(tie.name()).second)
          ties.push_back({tie.name(), state.name(), tie.transposed()});
  return ties;
}

/// Moves elements by square tiles, so that both sides are accessed in runs.
static HostArray transpose(const HostArray &array) {
  constexpr int64_t square = 64;
  int64_t rows = array.getShape()[0], columns = array.getShape()[1];
  size_t size = sizeOf(array.getType());
  HostArray turned = HostArray::allocate(array.getType(), {columns, rows});
  for (int64_t i = 0; i < rows; i += square)
    for (int64_t j = 0; j < columns; j += square)
      for (int64_t row = i; row < std::min(i + square, rows); ++row)
        for (int64_t column = j; column < std::min(j + square, columns); ++column)
          std::memcpy(turned.getMutableData() + size_t(column * rows + row) * size,
                      array.getData() + size_t(row * columns + column) * size, size);
  return turned;
}

void gridloom::rt::addTiedWeights(const std::vector<TiedWeight> &ties,
                                  std::map<std::string, HostArray> &arrays) {
  for (const TiedWeight &tie : ties)
    if (auto found = arrays.find(tie.state); found != arrays.end())
      arrays[tie.name] = tie.isTransposed ? transpose(found->second) : found->second;
}
