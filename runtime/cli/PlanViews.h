//===- PlanViews.h - contents of a plan as documents ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H
#define GRIDLOOM_RUNTIME_CLI_PLANVIEWS_H

#include "runtime/cli/Document.h"
#include "runtime/core/Plan.h"

#include <functional>
#include <map>

namespace gridloom::schema {
class Sharding;
class Stage;
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
  std::string entry, dims, kind, reduction, origin, because;
  std::vector<std::string> axes;
  int64_t group = 1; // ranks
  uint32_t sequence = 0;
  uint64_t bytes = 0;       // of a rank's operands, per time
  uint64_t resultBytes = 0; // of a rank's results, per time
  int64_t times = 1;
};
/// All of a plan, in the order that numbers them: by stage, entry, specialisation and sequence.
std::vector<PlannedCollective> findCollectives(const Plan &plan);
/// Adds those of one stage. `groupOf` gives the ranks along axes, `dimsOf` the dimensions that the
/// n-th specialisation of an entry binds, as formatDims has them.
void addCollectives(int number, const schema::Stage &stage,
                    const std::function<int64_t(const std::vector<std::string> &axes)> &groupOf,
                    const std::function<std::string(const std::string &entry, int n)> &dimsOf,
                    std::vector<PlannedCollective> &found);

/// Bytes that one program needs of a rank beside weights and states.
struct PlannedMemory {
  int stage = 0;
  std::string entry, dims;
  uint64_t arena = 0, registered = 0, inputs = 0, outputs = 0;
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
