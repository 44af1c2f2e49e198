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

struct PlanRunResult {
  std::string error; ///< empty when all went well
  int ranks = 0;
  std::map<std::string, PlanTensor> outputs;
};

/// Runs an entry of the plan with all its ranks in this process, on whole inputs.
PlanRunResult runPlan(const std::string &folder, const std::string &entry,
                      const std::map<std::string, int64_t> &dims,
                      const std::map<std::string, PlanTensor> &inputs);

/// Runs a model in ONNX Runtime, by a Python that has it: GRIDLOOM_PYTHON, else python3. Inputs the
/// model has not are left out.
PlanRunResult runOnnxRuntime(const std::string &model,
                             const std::map<std::string, PlanTensor> &inputs);

/// Where the plan's model is; empty, with `error` set, when the plan cannot be read.
std::string findModel(const std::string &folder, std::string &error);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_PLANRUN_H
