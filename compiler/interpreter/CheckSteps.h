//===- CheckSteps.h - how exactly training steps are determined -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// An optimizer such as Adam divides a gradient by its own size: an error e of a gradient g changes
// a weight's step by e/|g| of the step. Where g is nothing but rounding, as for the biases of
// attention's keys, any step of that size is right. So a weight may differ by
//
//   sum over the steps so far of  2 r min(1, s G / |g|)
//
// where r is the furthest that an element of this weight moved in the step, G the step's largest
// gradient of any parameter, and s the error allowed for gradients as a share of G. Optimizers that
// do not divide move such elements so little that plain tolerances suffice.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_CHECKSTEPS_H
#define GRIDLOOM_COMPILER_INTERPRETER_CHECKSTEPS_H

#include "compiler/interpreter/Interpreter.h"

namespace gridloom {

/// The steps of a session, as the reference program computes them.
class StepRecord {
public:
  /// `weights` has the initial values of states, and must outlive the record.
  explicit StepRecord(WeightProvider &weights) : weights(weights) {}

  /// Makes a run record the gradients of its step.
  void watch(InterpreterOptions &options);
  /// Ends a call: `outputs` are its results, next states among them. Fails with a diagnostic where
  /// a weight cannot be read.
  llvm::LogicalResult addCall(const Specialisation &specialisation, const NamedTensors &outputs);
  /// By how much each element of an output may differ after the first `calls` calls, where
  /// gradients are known to `share` of the largest; empty if it is no trained weight.
  std::vector<double> getAllowance(size_t calls, llvm::StringRef output, double share) const;

private:
  /// A step of a weight, or of its running average.
  struct Step {
    double reach = 0;             ///< the furthest that an element moved
    std::vector<double> gradient; ///< |g| / G of each element
  };
  llvm::LogicalResult addStep(mlir::func::FuncOp function, unsigned argument, unsigned result,
                              const NamedTensors &outputs, double largest);

  WeightProvider &weights;
  llvm::StringMap<std::vector<double>> gradients; ///< |g| of the current call, by parameter
  llvm::StringMap<std::vector<double>> values;    ///< of states, by output
  std::vector<llvm::StringMap<Step>> calls;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECKSTEPS_H
