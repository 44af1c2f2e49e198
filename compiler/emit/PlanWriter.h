//===- PlanWriter.h - from allocated programs to a plan folder --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_EMIT_PLANWRITER_H
#define GRIDLOOM_COMPILER_EMIT_PLANWRITER_H

#include "compiler/target/KernelFiles.h"

#include "mlir/IR/BuiltinOps.h"

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gridloom {

class Target;

/// A plan in memory: relative path to contents.
using PlanFiles = std::map<std::string, std::string>;

/// Facts about an emitted plan for the summary and the report.
struct EmitSummary {
  int64_t kernels = 0, kernelBytes = 0, programBytes = 0;
  std::vector<CompiledKernel> compiled; ///< kernels for GPUs
};

/// Compiles the module's kernels for `target` and makes programs and manifest; `modelPath` in the
/// manifest is relative to `folder` where it can be. Emits an error and fails when a kernel cannot
/// be compiled or the program has something plans cannot hold.
mlir::FailureOr<PlanFiles> emitPlan(mlir::ModuleOp module, const std::filesystem::path &folder,
                                    const Target &target, EmitSummary &summary);

/// Why no plan may be written to `folder`, in a line, or an empty string. A plan is replaced; any
/// other path, and a plan's folder that holds something else too, only with `force`.
std::string findPlanObstacle(const std::filesystem::path &folder, bool force);

/// Says in a line what is wrong with the plan in a folder; an empty string for nothing.
using PlanCheck = std::function<std::string(const std::filesystem::path &folder)>;

/// Writes the files into a new folder beside `folder` and exchanges the two, so that the old plan
/// or the new one is there, whole; `durable` waits until the disk has it. Signals that end the
/// program take effect afterwards. What findPlanObstacle names is an error, and so is what `check`
/// finds in the new folder, before anything is replaced. Returns the error, or an empty string.
std::string writePlan(const PlanFiles &files, const std::filesystem::path &folder, bool force,
                      bool durable = false, const PlanCheck &check = {});

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_EMIT_PLANWRITER_H
