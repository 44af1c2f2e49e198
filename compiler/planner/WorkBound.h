//===- WorkBound.h - the least time of a program's work ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A lower bound of the time of a program's operations, however they are split, without
// communication. A split divides an operation's factors into parts, whose numbers multiply to a
// divisor of the number of devices; a device's part of a factor of n in k parts is at least n / k
// rounded up. So an operation's least time over all such products is at most its time in any plan,
// on any mesh: the axes on a factor multiply to one of its k. A plan computes its operations' local
// work and more (copies, masks, padding).
//
// A step of p stages and m micro-batches takes all stages' time once and that of the slowest m - 1
// times more; the slowest takes at least the p-th part of all. So it takes at least 1 + (m - 1) / p
// times the work of a micro-batch. There each operation has all devices of a stage, and one of its
// factors, or none, is also cut into m parts. Where stages are cut makes no difference. If
// operations are connected, p stages need at least p - 1 transfers, and each keeps both stages busy
// for at least the time to send nothing over the fastest link.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H
#define GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H

#include "cluster/Machine.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <map>

namespace gridloom {

/// The bound for a program before it is split, on a machine.
class WorkBound {
public:
  WorkBound(mlir::ModuleOp module, const cluster::Machine &machine);

  /// Seconds of a step without stages on `devices` devices, all specialisations together.
  double getSeconds(int64_t devices);
  /// The same for plans with two or more stages of equally many devices, for any number of stages
  /// and any number of micro-batches that divides the batch. Bounds from `most` on are not
  /// computed: returns at most that. `getSearched`, if given, returns another bound in seconds for
  /// this number of stages without micro-batches and transfers; the larger one counts. It may take
  /// long, and is called only where it can raise the result.
  double getStagedSeconds(int64_t devices, double most,
                          llvm::function_ref<double(int64_t stages)> getSearched = {});

private:
  /// Operations that take the same time.
  struct Kind {
    mlir::Operation *op;
    bool isCut = false; ///< by micro-batches
    double times = 0;   ///< how often it runs
  };
  struct Program {
    std::vector<Kind> kinds;
    int64_t batch = 1;   ///< numbers of micro-batches divide it
    double launches = 0; ///< seconds to launch all kernels
    int64_t pieces = 0;  ///< groups of operations connected by values that they compute
  };

  void addProgram(mlir::func::FuncOp func);
  double getTransferSeconds(const Program &program, int64_t stages) const;
  double getSeconds(const Program &program, int64_t devices, int64_t microbatches);
  double getSeconds(const Kind &kind, int64_t devices, int64_t microbatches);
  double getMicroBatchedSeconds(const Program &program, int64_t devices, int64_t stages,
                                double most);

  const cluster::Machine &machine;
  std::vector<Program> programs;
  std::map<std::tuple<mlir::Operation *, int64_t, int64_t>, double> known;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H
