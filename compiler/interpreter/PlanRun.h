//===- PlanRun.h - runs a compiled plan for a check -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The border between the checker, which links MLIR and has no exceptions, and the runtime, which
// throws: plain data both ways.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_PLANRUN_H
#define GRIDLOOM_COMPILER_INTERPRETER_PLANRUN_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gridloom {

struct PlanTensor {
  std::string type; ///< f32, i64, bool, ... as in manifests
  std::vector<int64_t> shape;
  std::vector<char> bytes; ///< row-major
};

/// The value of input `name` that `text`, which follows `--input NAME=`, describes
/// (runtime/arrays/Generator.h); `error` is set if it is invalid.
PlanTensor makeInputTensor(const std::string &name, const std::string &text,
                           const std::string &type, const std::vector<int64_t> &shape,
                           uint64_t seed, std::string &error);

struct PlanRunResult {
  std::string error; ///< empty when all went well
  int ranks = 0;
  std::map<std::string, PlanTensor> outputs;
  std::vector<std::string> unread; ///< inputs that were given and are not in the plan
};

/// A plan's folder, and files of public keys, one of which must have signed it; none: any plan.
struct PlanPlace {
  std::string folder;
  std::vector<std::string> keys = {};
};

/// Runs an entry of the plan with all its ranks in this process, on whole inputs.
PlanRunResult runPlan(const PlanPlace &plan, const std::string &entry,
                      const std::map<std::string, int64_t> &dims,
                      const std::map<std::string, PlanTensor> &inputs);

/// A state to be read after a run.
struct PlanState {
  std::string output;         ///< its name among the results
  std::vector<int64_t> shape; ///< global
};

/// One run of an entry.
struct PlanCall {
  std::string entry;
  std::map<std::string, int64_t> dims;
  std::map<std::string, PlanTensor> inputs;
  std::map<std::string, PlanState> states; ///< by the state's name
};

/// Runs the calls one after another in one session, which keeps its states. One result a call;
/// after one with an error there are no more.
std::vector<PlanRunResult> runPlanCalls(const PlanPlace &plan, const std::vector<PlanCall> &calls);

/// Runs a model in ONNX Runtime, by a Python that has it: GRIDLOOM_PYTHON, else that of the
/// checkout, of the build, or of PATH. Inputs that the model does not take are left out.
PlanRunResult runOnnxRuntime(const std::string &model,
                             const std::map<std::string, PlanTensor> &inputs);

/// The path of the plan's model; empty, with `error` set, if the plan cannot be read.
std::string findModel(const PlanPlace &plan, std::string &error);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_PLANRUN_H
