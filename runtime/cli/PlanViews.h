//===- PlanViews.h - what a plan holds, as documents ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H
#define GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H

#include "runtime/cli/Document.h"
#include "runtime/core/Plan.h"

#include <map>

namespace gridloom::schema {
class Sharding;
} // namespace gridloom::schema

namespace gridloom::rt {

Document makeSummary(const Plan &plan);
Document makeCollectives(const Plan &plan);
Document makeMemory(const Plan &plan);
Document makeSchedule(const Plan &plan);
Document makeKernels(const Plan &plan);
Document makeWeights(const Plan &plan);

/// One collective, send or receive of a plan.
struct PlannedCollective {
  int stage = 0;
  std::string entry, dims, kind, reduction, origin;
  std::vector<std::string> axes;
  int64_t group = 1; // ranks
  uint32_t sequence = 0;
  uint64_t bytes = 0; // of a rank's operands, per time
  int64_t times = 1;
};
std::vector<PlannedCollective> findCollectives(const Plan &plan);

/// Bytes of one rank of a stage, in one specialisation.
struct PlannedMemory {
  int stage = 0;
  std::string entry, dims;
  uint64_t weights = 0, states = 0, arena = 0, registered = 0, inputs = 0, outputs = 0;
  uint64_t getTotal() const { return weights + states + arena + registered + inputs + outputs; }
};
std::vector<PlannedMemory> findMemory(const Plan &plan);

/// How often each kind of step runs, over all stages and specialisations: launches, matmuls, ...
std::map<std::string, int64_t> countSteps(const Plan &plan);

/// "batch=8,sequence=32", or "".
std::string formatDims(const std::map<std::string, int64_t> &dims);
/// "[data, model*64, -]": the axes that cut each dimension, and the granule where there is one.
std::string formatSharding(const schema::Sharding &sharding);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H
