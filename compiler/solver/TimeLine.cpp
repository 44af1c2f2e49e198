//===- TimeLine.cpp - memory over time while folding ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/TimeLine.h"

#include <algorithm>
#include <bit>

using namespace gridloom::solver;

RangeMinimum::RangeMinimum(std::vector<int64_t> values) {
  levels.push_back(std::move(values));
  for (size_t width = 1; 2 * width <= levels[0].size(); width *= 2) {
    const std::vector<int64_t> &last = levels.back();
    std::vector<int64_t> next(levels[0].size() - 2 * width + 1);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] = std::min(last[i], last[i + width]);
    levels.push_back(std::move(next));
  }
}

int64_t RangeMinimum::get(uint32_t begin, uint32_t end) const {
  unsigned level = unsigned(std::bit_width(end - begin) - 1);
  return std::min(levels[level][begin], levels[level][end - (1u << level)]);
}

size_t gridloom::solver::takeCommonUsage(Model &model) {
  std::vector<int64_t> changes(model.limits.size() + 1);
  for (ModelNode &node : model.nodes) {
    for (Piece &piece : node.pieces) {
      int64_t least = *std::min_element(piece.usage.begin(), piece.usage.end());
      changes[piece.begin] += least;
      changes[piece.end] -= least;
      for (int64_t &usage : piece.usage)
        usage -= least;
    }
    std::erase_if(node.pieces, [](const Piece &piece) {
      return piece.begin == piece.end ||
             std::all_of(piece.usage.begin(), piece.usage.end(), [](int64_t u) { return u == 0; });
    });
  }
  int64_t taken = 0;
  size_t firstOver = model.limits.size();
  for (size_t t = 0; t < model.limits.size(); ++t) {
    taken += changes[t];
    model.limits[t] -= taken;
    if (model.limits[t] < 0)
      firstOver = std::min(firstOver, t);
  }
  return firstOver;
}

/// Clears `isKept` of times at which even the largest usages fit.
static void markIdle(const Model &model, std::vector<bool> &isKept) {
  std::vector<int64_t> changes(model.limits.size() + 1);
  for (const ModelNode &node : model.nodes)
    for (const Piece &piece : node.pieces) {
      int64_t most = *std::max_element(piece.usage.begin(), piece.usage.end());
      changes[piece.begin] += most;
      changes[piece.end] -= most;
    }
  int64_t most = 0;
  for (size_t t = 0; t < model.limits.size(); ++t) {
    most += changes[t];
    isKept[t] = most > model.limits[t];
  }
}

/// Clears `isKept` of times whose live pieces are all live at a kept neighbour with no more memory.
static void markCovered(const Model &model, std::vector<bool> &isKept) {
  std::vector<bool> begins(model.limits.size() + 1), ends(model.limits.size() + 1);
  for (const ModelNode &node : model.nodes)
    for (const Piece &piece : node.pieces)
      begins[piece.begin] = ends[piece.end] = true;
  // hasBegun, hasEnded: whether pieces begin or end between the last kept time and this one.
  std::vector<size_t> kept;
  std::vector<bool> beginsAfter, endsAfter; // the same between each kept time and the next
  bool hasBegun = false, hasEnded = false;
  for (size_t t = 0; t < model.limits.size(); ++t) {
    hasBegun = hasBegun || begins[t];
    hasEnded = hasEnded || ends[t];
    if (!isKept[t])
      continue;
    bool isCovered = false;
    while (!kept.empty() && !isCovered) {
      size_t last = kept.back();
      if (!hasBegun && model.limits[t] >= model.limits[last]) {
        isCovered = true;
      } else if (!hasEnded && model.limits[last] >= model.limits[t]) {
        isKept[last] = false;
        kept.pop_back();
        hasBegun = hasBegun || (!beginsAfter.empty() && beginsAfter.back());
        hasEnded = hasEnded || (!endsAfter.empty() && endsAfter.back());
        if (!beginsAfter.empty()) {
          beginsAfter.pop_back();
          endsAfter.pop_back();
        }
      } else {
        break;
      }
    }
    if (isCovered) {
      isKept[t] = false;
      continue;
    }
    if (!kept.empty()) {
      beginsAfter.push_back(hasBegun);
      endsAfter.push_back(hasEnded);
    }
    kept.push_back(t);
    hasBegun = hasEnded = false;
  }
}

void gridloom::solver::removeSlackTimes(Model &model) {
  std::vector<bool> isKept(model.limits.size(), true);
  markIdle(model, isKept);
  markCovered(model, isKept);
  std::vector<uint32_t> toNew(model.limits.size() + 1);
  uint32_t kept = 0;
  for (size_t t = 0; t < isKept.size(); ++t) {
    toNew[t] = kept;
    if (isKept[t]) {
      model.limits[kept] = model.limits[t];
      model.times[kept++] = model.times[t];
    }
  }
  toNew.back() = kept;
  model.limits.resize(kept);
  model.times.resize(kept);
  for (uint32_t i = 0; i < model.nodes.size(); ++i) {
    for (Piece &piece : model.nodes[i].pieces) {
      piece.begin = toNew[piece.begin];
      piece.end = toNew[piece.end];
    }
    std::erase_if(model.nodes[i].pieces,
                  [](const Piece &piece) { return piece.begin == piece.end; });
    model.combinePieces(i);
  }
}
