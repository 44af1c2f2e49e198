//===- Figures.cpp - statistics of runs over all ranks --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Figures.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

using namespace gridloom;
using namespace gridloom::rt;

RunStats gridloom::rt::gatherStats(Session &session, const RunStats &mine) {
  nlohmann::json text = {mine.wall,    mine.compute, mine.communication, mine.exposed,
                         mine.overlap, mine.bubble,  mine.isPipeline,    mine.device,
                         mine.busy,    mine.kernels, mine.graphs};
  std::vector<RunStats> ranks;
  for (const std::string &other : session.gatherText(text.dump())) {
    auto v = nlohmann::json::parse(other);
    ranks.push_back({v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]});
  }
  return ranks.empty() ? mine : combineStats(ranks);
}

static std::vector<RunStats> sortByWall(std::span<const RunStats> runs) {
  std::vector<RunStats> sorted(runs.begin(), runs.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const RunStats &a, const RunStats &b) { return a.wall < b.wall; });
  return sorted;
}

RunStats gridloom::rt::getMedian(std::span<const RunStats> runs) {
  return sortByWall(runs)[runs.size() / 2];
}

std::string gridloom::rt::formatSpread(std::span<const RunStats> runs) {
  std::vector<RunStats> sorted = sortByWall(runs);
  char text[160];
  snprintf(text, sizeof text, "%zu runs: median %.2f ms, fastest %.2f ms, slowest %.2f ms",
           runs.size(), sorted[runs.size() / 2].wall, sorted.front().wall, sorted.back().wall);
  return text;
}
