//===- Trials.cpp - candidates weighed and tried out ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Trials.h"

#include "passes/communicate/Communicate.h"
#include "passes/partition/Partition.h"
#include "runtime/core/MemoryNeeds.h"
#include "support/Text.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace gridloom;

/// An estimate of memory this many times the limit refuses a candidate without allocating it.
static constexpr int64_t kFarAbove = 2;
/// Candidates that fit which are simulated: each is compiled up to allocation, which for a large
/// model takes seconds.
static constexpr size_t kMaxSimulated = 4;
/// Nor is one simulated whose sum is so many times the least: in the zoo no candidate's lead in the
/// simulator is more than 1.23 times what the sums say.
static constexpr double kFarSlower = 1.3;

/// Runs the candidate's phases on a copy and estimates it. Its first error refuses it.
static void evaluate(ModuleOp module, Candidate &candidate, const MemoryOptions &memory) {
  OwningOpRef<ModuleOp> copy = module.clone();
  std::string firstError;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && firstError.empty())
      firstError = loom::describeWithNode(diagnostic, loom::getNodeName(module.getLoc()));
    return success(); // a trial is not the user's business
  });
  PassManager pm(module.getContext());
  addShardPasses(pm, candidate.options);
  addPartitionPasses(pm);
  addCommunicatePasses(pm, memory.communicate);
  if (failed(pm.run(*copy))) {
    candidate.refuse(firstError.empty() ? "cannot be compiled" : firstError);
    return;
  }
  for (const Estimate &estimate : estimate(*copy)) {
    candidate.sumSeconds += estimate.seconds;
    candidate.leastBytes = std::max(candidate.leastBytes, estimate.leastBytes);
  }
  candidate.estimatedBytes =
      static_cast<int64_t>(findLargest(estimateCommunicated(*copy, memory)).needs.getAllocated());
}

/// Compiles the candidate up to allocation and simulates it, unless it takes more than the limit
/// without activations, or far more by estimate. Whether it fits; what stands against it refuses
/// it.
static bool tryOut(Candidate &candidate, const StrategyRequest &request, int64_t limit) {
  auto format = [](int64_t bytes) { return formatBytes(static_cast<uint64_t>(bytes)); };
  if (limit && candidate.estimatedBytes / kFarAbove > limit) {
    candidate.refuse("a device needs about " + format(candidate.estimatedBytes) +
                     ", the limit is " + format(limit));
    return false;
  }
  if (limit && candidate.leastBytes > limit) {
    candidate.refuse("a device needs at least " + format(candidate.leastBytes) + ", the limit is " +
                     format(limit));
    return false;
  }
  std::string error;
  std::optional<TrialPlan> trial = request.tryPlan(candidate.options, error);
  if (!trial) {
    candidate.refuse(error);
    return false;
  }
  candidate.simulatedSeconds = trial->seconds;
  candidate.memoryBytes = static_cast<int64_t>(trial->needs.getAllocated());
  if (!limit || candidate.memoryBytes <= limit)
    return true;
  candidate.refuse("a device " + describeExcess(candidate.memoryBytes, limit));
  return false;
}

/// That no candidate is left, with the one that needs least.
static LogicalResult refuseAll(ModuleOp module, std::vector<Candidate> &candidates,
                               const StrategyRequest &request, int64_t limit) {
  const Candidate *least = nullptr;
  for (const Candidate &candidate : candidates) {
    auto bytesOf = [](const Candidate &c) {
      return std::max(c.leastBytes, c.memoryBytes ? c.memoryBytes : c.estimatedBytes);
    };
    if (bytesOf(candidate) > limit && (!least || bytesOf(candidate) < bytesOf(*least)))
      least = &candidate;
  }
  if (!least || !limit) {
    InFlightDiagnostic error = module.emitError("no strategy can be compiled; ")
                               << candidates.front().name << ": " << candidates.front().describe();
    for (const Candidate &other : llvm::ArrayRef(candidates).slice(1).take_front(7))
      error.attachNote() << other.name << ": " << other.describe();
    return error;
  }
  std::string ignored;
  std::optional<TrialPlan> trial = request.tryPlan(least->options, ignored);
  InFlightDiagnostic error =
      module.emitError("no strategy fits into the memory limit; the one that needs least is ")
      << least->name << ": " << least->describe();
  if (trial)
    error << ": " << rt::describe(trial->needs);
  if (trial && request.suggest)
    error << request.suggest(least->options, trial->needs, limit);
  return error;
}

/// Whether two candidates are, by all that is known, the same program: axes that are used alike
/// make no difference, nor does a search that finds a known strategy.
static bool areAlike(const Candidate &a, const Candidate &b) {
  return a.sumSeconds == b.sumSeconds && a.leastBytes == b.leastBytes &&
         a.estimatedBytes == b.estimatedBytes;
}

/// Of the candidates that fit those with the least sums, tried out.
static std::vector<Candidate *> shortlist(std::vector<Candidate> &candidates,
                                          const StrategyRequest &request, int64_t limit) {
  std::vector<Candidate *> bySum, tried;
  for (Candidate &candidate : candidates)
    if (candidate.verdict == Verdict::Open)
      bySum.push_back(&candidate);
  llvm::stable_sort(bySum,
                    [](Candidate *a, Candidate *b) { return a->sumSeconds < b->sumSeconds; });
  for (Candidate *candidate : bySum) {
    if (tried.size() == kMaxSimulated ||
        (!tried.empty() && candidate->sumSeconds > kFarSlower * tried.front()->sumSeconds))
      break;
    if (llvm::any_of(tried, [&](Candidate *other) { return areAlike(*other, *candidate); }))
      continue;
    if (tryOut(*candidate, request, limit))
      tried.push_back(candidate);
  }
  return tried;
}

LogicalResult gridloom::pickCandidate(ModuleOp module, const StrategyRequest &request,
                                      Choice &choice) {
  std::vector<Candidate> &candidates = choice.candidates;
  for (Candidate &candidate : candidates)
    evaluate(module, candidate, request.memory);
  std::vector<Candidate *> tried = shortlist(candidates, request, choice.memoryLimit);
  if (tried.empty())
    return refuseAll(module, candidates, request, choice.memoryLimit);
  // Of equal ones the first, whose sum is the least.
  const Candidate *best = *std::min_element(tried.begin(), tried.end(), [](auto *a, auto *b) {
    return a->simulatedSeconds < b->simulatedSeconds;
  });
  for (Candidate &candidate : candidates)
    if (candidate.verdict == Verdict::Open)
      candidate.verdict = &candidate == best ? Verdict::Chosen : Verdict::Slower;
  choice.options = best->options;
  choice.name = best->name;
  return success();
}
