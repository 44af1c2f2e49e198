//===- Plan.cpp - decide and simulate, without a plan to run ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"

#include "dialects/dist/MachineAttr.h"

#include "llvm/ADT/STLExtras.h"

#include <iostream>

using namespace mlir;
using namespace gridloom;

FailureOr<TrialPlan> Compilation::simulateChosen(const sim::MeasuredCosts *measured) {
  // Its trial ran the same phases on the same program.
  const Candidate *chosen = choice.getChosen();
  if (chosen && chosen->trial && !measured)
    return *chosen->trial;
  OwningOpRef<ModuleOp> copy = module->clone();
  PhaseContext phases = makePhaseContext(choice.options);
  for (size_t i = *findPhase("shard") + 1; i <= *findPhase("allocate"); ++i) {
    PassManager pm(&context);
    getPhases()[i].addPasses(pm, phases);
    if (succeeded(pm.run(*copy)))
      continue;
    if (!hadError)
      fail("phase " + getPhases()[i].name + " failed");
    return failure();
  }
  FailureOr<std::vector<sim::ProgramRun>> runs = sim::simulate(*copy, measured);
  if (failed(runs))
    return failure();
  return TrialPlan{computeMemory(*copy), std::move(*runs)};
}

void Compilation::describeChoice(PlanOutcome &outcome) const {
  outcome.model = options.input;
  outcome.mesh = choice.options.mesh;
  outcome.machine = getMachineName();
  outcome.target = target->getName();
  outcome.precision = getPrecision();
  outcome.strategy = choice.name;
  outcome.chosenAs = choice.describe();
  outcome.planSteps = choice.countSteps();
  outcome.stopped = describeStop();
  outcome.left = choice.countLeft();
  for (const Candidate &candidate : choice.candidates) {
    int64_t bytes = candidate.memoryBytes ? candidate.memoryBytes : candidate.getEstimatedBytes();
    outcome.candidates.push_back({candidate.name, candidate.describe(),
                                  candidate.simulatedSeconds * 1e3, candidate.sumSeconds * 1e3,
                                  static_cast<uint64_t>(bytes)});
  }
  sortCandidates(outcome.candidates);
  if (choice.bound) {
    outcome.boundMs = choice.bound->seconds * 1e3;
    outcome.sumMs = choice.getSumSeconds() * 1e3;
    outcome.boundScope = choice.bound->scope;
  }
  outcome.memoryLimit = getMemoryLimit();
  outcome.warnings = warnings;
  outcome.remarks = remarks;
}

int Compilation::plan(const sim::MeasuredCosts *measured, PlanOutcome &outcome) {
  mayLackWeights = true;
  keepsDumps = false;
  options.stopAfter = "shard";
  options.measureBest = 0; // set in the options of a plan that is planned again
  if (failed(checkOptions()))
    return 1;
  for (size_t index = first; index <= last; ++index)
    if (failed(runPhase(index)))
      return 1;
  FailureOr<TrialPlan> simulated = simulateChosen(measured);
  showStatus("");
  if (failed(simulated) || failed(checkMemory(simulated->memory)) || hadError ||
      failed(saveStrategy()))
    return 1;
  for (auto [i, allocated] : llvm::enumerate(simulated->memory)) {
    uint64_t estimate =
        i < estimatedMemory.size() ? estimatedMemory[i].needs.getAllocated() : uint64_t(0);
    outcome.memory.push_back({allocated.stage, estimate, allocated.needs});
  }
  outcome.runs = std::move(simulated->runs);
  outcome.files["plan.strategy"] = strategyText;
  describeChoice(outcome);
  return 0;
}

int gridloom::runPlan(const CompileOptions &options, const std::string &costs, PlanOutcome &outcome,
                      std::ostream &messages) {
  std::optional<sim::MeasuredCosts> measured;
  std::string error;
  if (!costs.empty())
    measured = sim::MeasuredCosts::read(costs, error);
  if (!error.empty()) {
    messages << "error: " << error << "\n";
    return 1;
  }
  return Compilation(options, std::cout, messages).plan(measured ? &*measured : nullptr, outcome);
}
