//===- Figures.cpp - statistics of runs over all ranks --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Figures.h"

#include "support/Text.h"

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
  std::vector<RunStats> sorted = sortByWall(runs);
  size_t middle = sorted.size() / 2;
  if (sorted.size() % 2)
    return sorted[middle];
  std::span<const RunStats> two = std::span(sorted).subspan(middle - 1, 2);
  RunStats mean = combineStats(two); // whose wall and device times are the larger ones
  mean.wall = (two[0].wall + two[1].wall) / 2;
  mean.device = (two[0].device + two[1].device) / 2;
  return mean;
}

std::string gridloom::rt::formatSpread(std::span<const RunStats> runs) {
  std::vector<RunStats> sorted = sortByWall(runs);
  char text[160];
  double median = getMedian(runs).wall, fastest = sorted.front().wall, slowest = sorted.back().wall;
  snprintf(text, sizeof text, "%zu runs: median %.*f ms, fastest %.*f ms, slowest %.*f ms",
           runs.size(), getDigits(median, 2), median, getDigits(fastest, 2), fastest,
           getDigits(slowest, 2), slowest);
  return text;
}
