//===- PlanQueries.h - facts about the programs of a plan -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PLANQUERIES_H
#define GRIDLOOM_RUNTIME_CORE_PLANQUERIES_H

#include "runtime/core/Plan.h"

#include <functional>
#include <map>

namespace gridloom::schema {
class Group;
class Sharding;
class Specialisation;
class Stage;
class Step;
} // namespace gridloom::schema

namespace gridloom::rt {

/// A step, and where it stands.
struct PlannedStep {
  const schema::Step &step;
  int64_t times;       // product of the enclosing repeats
  std::string control; // "repeat 4", "while"
};
/// Calls `visit` for the steps of a program's body, in their order.
void walkSteps(const schema::Specialisation &program,
               const std::function<void(const PlannedStep &)> &visit);

/// One stage's program of one specialisation.
struct PlannedProgram {
  int number; // of the stage
  const schema::Stage &stage;
  std::string entry, dims;
  const schema::Specialisation &specialisation;
};
/// Calls `visit` for the programs of a plan, by stage, entry and specialisation.
void forEachProgram(const Plan &plan, const std::function<void(const PlannedProgram &)> &visit);

/// The name of the ONNX node that a step comes from, or "".
std::string getOrigin(const schema::Stage &stage, const schema::Step &step);
/// Which part of a run's time a step is of, "" for a record or wait:
/// - "gemm": a product that reads a weight, and any other of two matrices;
/// - "attention": a library's, and products of batches that the run computes or keeps in a cache,
///   which are scores and contexts;
/// - "convolution": a library's;
/// - "kernel": a generated kernel that computes;
/// - "copy": a copy, and a generated kernel that only moves elements;
/// - "communication".
const char *getPart(const schema::Stage &stage, const schema::Specialisation &program,
                    const schema::Step &step);
/// "all_reduce", "send", ...
std::string getKindName(const schema::Group &group);

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

#endif // GRIDLOOM_RUNTIME_CORE_PLANQUERIES_H
