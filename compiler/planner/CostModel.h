//===- CostModel.h - predicted time and memory ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
#define GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H

#include "dialects/dist/Sharding.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace gridloom {

/// One device and the links between devices. Rates are what programs reach, not data-sheet peaks.
struct MachineModel {
  std::string name = "cpu";
  double flopsPerSecond = 35e9;    ///< contractions of f32
  double tf32FlopsPerSecond = 0;   ///< of f32 that may be rounded to TF32; 0: as f32
  double halfFlopsPerSecond = 0;   ///< of f16 and bf16; 0: as f32
  double bytesPerSecond = 8e9;     ///< memory
  double linkSeconds = 80e-6;      ///< latency of one collective step (alpha)
  double linkBytesPerSecond = 2e9; ///< per device (1 / beta)
  double launchSeconds = 2e-6;     ///< per kernel
  int64_t memoryBytes = 0;         ///< 0: no limit is known
  std::string target = "cpu";      ///< the --target whose plans it runs: cuda:sm_90

  /// The machine of that name, e.g. "cpu" or "H100-80GB"; none when it is unknown.
  static std::optional<MachineModel> find(llvm::StringRef name);
  static std::string listNames();
};

/// The cost of a collective or transfer for a device.
struct CollectiveCost {
  int64_t sentBytes = 0;
  double seconds = 0;
};

/// By the alpha-beta model of ring algorithms (Thakur, Rabenseifner and Gropp 2005). `kind` is
/// spelled as in dist and in plans; `bytes` are those of the larger of operands and results.
CollectiveCost costCollective(llvm::StringRef kind, int64_t bytes, int64_t group,
                              const MachineModel &machine);

/// One operation that takes time, for reports.
struct OperationCost {
  std::string node, op;
  double seconds = 0;
};

/// The predicted cost of one specialisation per step, in seconds per device.
struct Estimate {
  std::string entry, dims; ///< "main", "batch=8,sequence=32"
  double compute = 0, communication = 0, exposed = 0, step = 0;
  double bubble = 0; ///< share of the step the slowest stage waits
  /// A lower bound of memory per device, the maximum over devices: weights, states, inputs and
  /// outputs.
  int64_t leastBytes = 0;
  std::vector<OperationCost> operations; ///< most expensive first
};

/// Estimates every specialisation of a partitioned module: operations by the larger of arithmetic
/// and memory time, pipelines by (m + p - 1) steps of the slowest stage.
std::vector<Estimate> estimate(mlir::ModuleOp module, const MachineModel &machine);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_COSTMODEL_H
