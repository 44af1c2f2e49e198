//===- WorkBound.h - the least time of a program's work ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the operations of a program take at least, however they are split, with communication left
// out. A way to split an operation divides its factors into parts, of which there are as many
// together as devices or a divisor of that; a device's part of a factor of n in k parts is at least
// n / k rounded up. So the least of an operation over all ways to write the devices as such a
// product is no more than it takes in any plan, on any mesh: the axes on a factor multiply to one
// of its k. What a plan computes is its operations' local work and more (copies, masks, padding).
//
// A step of p stages and m micro-batches takes all stages' time once and that of the slowest m - 1
// times more; the slowest takes at least the p-th part of all. So it takes at least
// 1 + (m - 1) / p times the work of a micro-batch, whose operations each have all devices of a
// stage, and which cuts one factor of each into m parts besides, or none. Cuts of stages make no
// difference to that. Where operations are connected, p stages are by p - 1 transfers at least, and
// each keeps both stages busy for no less than it takes to send nothing over the fastest link.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H
#define GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H

#include "cluster/Machine.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace gridloom {

/// Of a program before it is split, on a machine.
class WorkBound {
public:
  WorkBound(mlir::ModuleOp module, const cluster::Machine &machine);

  /// Seconds of a step without stages on so many devices, all specialisations together.
  double getSeconds(int64_t devices);
  /// The same of plans with two or more stages, of which each has as many devices, for any number
  /// of stages and any of micro-batches that divides the batch.
  /// What takes `most` or more is not looked at: then the answer is that.
  double getStagedSeconds(int64_t devices, double most);

private:
  /// Operations that take the same.
  struct Kind {
    mlir::Operation *op;
    bool isCut = false; ///< by micro-batches
    double times = 0;   ///< how often it runs
  };
  struct Program {
    std::vector<Kind> kinds;
    int64_t batch = 1;   ///< micro-batches are a divisor of it
    double launches = 0; ///< seconds to start all operations that do something
    int64_t pieces = 0;  ///< of operations that nothing made by one of them connects
  };

  void addProgram(mlir::func::FuncOp func);
  double getTransferSeconds(const Program &program, int64_t stages) const;
  double getSeconds(const Program &program, int64_t devices, int64_t microbatches);
  double getSeconds(const Kind &kind, int64_t devices, int64_t microbatches);
  double getStagedSeconds(const Program &program, int64_t devices, int64_t stages, double most);

  const cluster::Machine &machine;
  std::vector<Program> programs;
  std::map<std::tuple<mlir::Operation *, int64_t, int64_t>, double> known;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_WORKBOUND_H
