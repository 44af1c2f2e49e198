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

/// Compiles the module's kernels for `target` and makes stages and manifest; the model's path in
/// the manifest is relative to `folder` where it can be. Emits an error and fails if a kernel
/// cannot be compiled or plans cannot hold something in the program.
mlir::FailureOr<PlanFiles> emitPlan(mlir::ModuleOp module, const std::filesystem::path &folder,
                                    const Target &target, EmitSummary &summary);

/// Why no plan may be written to `folder`, in one line; empty if it may. Without `force` it may
/// replace a plan, but no other path, nor a plan's folder that holds other files.
std::string findPlanObstacle(const std::filesystem::path &folder, bool force);

/// Checks the plan in a folder. Returns what is wrong, in one line, or an empty string.
using PlanCheck = std::function<std::string(const std::filesystem::path &folder)>;

/// Writes the files into a new folder beside `folder` and exchanges the two, so that either the old
/// plan or the new one is there, whole; `durable` waits until it is on disk. Delays signals that
/// end the program. Fails on what findPlanObstacle names, and on what `check` finds in the new
/// folder, before anything is replaced. Returns the error, or an empty string.
std::string writePlan(const PlanFiles &files, const std::filesystem::path &folder, bool force,
                      bool durable = false, const PlanCheck &check = {});

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_EMIT_PLANWRITER_H
