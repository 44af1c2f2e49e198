//===- Lanes.cpp - a run as blocks on streams -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/trace/Lanes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace gridloom::rt;

/// A joined block is at most so many times as long as a short step: something is left to see.
static constexpr int64_t kLongest = 4;

static Lane join(const Lane &lane, int64_t resolution) {
  Lane joined;
  int64_t longest = 0; // the last block's longest step
  for (const Block &block : lane) {
    int64_t length = block.end - block.begin;
    if (!joined.empty()) {
      Block &last = joined.back();
      if (length <= resolution && longest <= resolution && block.begin - last.end <= resolution &&
          block.end - last.begin <= kLongest * resolution) {
        if (length > longest) {
          longest = length;
          last.step = block.step;
          last.iteration = block.iteration;
        }
        last.end = std::max(last.end, block.end);
        last.count += block.count;
        continue;
      }
    }
    joined.push_back(block);
    longest = length;
  }
  return joined;
}

int64_t gridloom::rt::joinShort(std::vector<Lane> &lanes, size_t most) {
  auto count = [](const std::vector<Lane> &of) {
    size_t blocks = 0;
    for (const Lane &lane : of)
      blocks += lane.size();
    return blocks;
  };
  if (count(lanes) <= most)
    return 0;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (const Lane &lane : lanes)
    for (const Block &block : lane) {
      first = std::min(first, block.begin);
      last = std::max(last, block.end);
    }
  constexpr int64_t finest = 1 << 16; // of the whole run: finer than any screen
  int64_t resolution = std::max<int64_t>(1, (last - first) / finest);
  for (;; resolution *= 2) {
    std::vector<Lane> joined;
    for (const Lane &lane : lanes)
      joined.push_back(join(lane, resolution));
    if (count(joined) > most && resolution < last - first)
      continue;
    lanes = std::move(joined);
    return resolution;
  }
}

nlohmann::json gridloom::rt::packLane(const Lane &lane) {
  nlohmann::json packed = nlohmann::json::array();
  int64_t at = 0;
  for (const Block &block : lane) {
    for (int64_t number : {block.begin - at, block.end - block.begin, int64_t(block.step),
                           block.iteration, block.count})
      packed.push_back(number);
    at = block.end;
  }
  return packed;
}
