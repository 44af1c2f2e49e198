//===- WhyNot.h - what a plan would cost otherwise --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A plan records its model and the options it was compiled with, so the model can be planned again
// with one thing changed. Both are simulated; nothing is estimated here.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_WHYNOT_H
#define GRIDLOOM_COMPILER_DRIVER_WHYNOT_H

#include "compiler/driver/Simulation.h"
#include "support/CostSheet.h"

#include "llvm/Support/JSON.h"

#include <optional>

namespace gridloom {

/// A plan's model, planned again with a pin.
struct Trial {
  std::string pin;     ///< "encoder.q=[{model},{}]", "mesh=data=4"
  std::string refusal; ///< why the pin is impossible; empty if it is possible
  std::string strategy;
  std::string stopped; ///< what ended planning early: "by --plan-work 9, which ..."; or empty
  CostSheet costs;
  bool isSame = false; ///< the plan is already split like this
  int64_t devices = 1;
  std::string command; ///< compiles it
};

/// A compiled plan whose model can be planned again.
class PlannedAgain {
public:
  /// Reads and simulates the plan in a folder. nullopt, with one line in `error`, if it has no
  /// report, was not compiled from a model, or the model is gone; without a line if the error is
  /// printed already.
  static std::optional<PlannedAgain> open(const std::string &folder, std::string &error);

  /// Plans the model again. A pin NAME=[{axis},...], as --shard takes it, keeps the plan's mesh,
  /// whose axes it names; mesh=AXIS=SIZE,... gives another mesh. --plan-work applies again,
  /// --plan-time does not.
  Trial plan(const std::string &pin) const;

  /// Pins that split the value of a collective's node in every other way: the collective's axes
  /// moved to each dimension, and taken away. Empty, with a line in `error`, if there is no such
  /// collective, it is a transfer, or its node makes no value that a pin can split otherwise.
  std::vector<std::string> listAlternatives(int64_t collective, std::string &error) const;

  const CostSheet &getCosts() const { return costs; }
  const std::string &getStrategy() const { return strategy; }
  int64_t getDevices() const;

private:
  /// Why a mesh cannot be tried; empty if it can.
  std::string refuseMesh(const std::string &other) const;
  /// Why no value has the name of a node or tensor of the model; else empty.
  std::string explainGone(const std::string &name) const;
  /// "; did you mean 'encoder.q'?" for a name that no value has; else empty.
  std::string suggestValue(const std::string &name) const;

  std::string folder, model, mesh, strategy, strategyText;
  CompileOptions options; ///< of the plan's compilation
  llvm::json::Object report;
  CostSheet costs;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_WHYNOT_H
