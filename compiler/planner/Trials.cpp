//===- Trials.cpp - candidates weighed and tried out ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Trials.h"

#include "compiler/planner/Layers.h"
#include "dialects/dist/Sharding.h"
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
/// Layers of the two programs whose difference is taken for a layer: neither the first nor the last
/// is in it.
static constexpr int64_t kFewLayers = 3, kMoreLayers = 4;
/// Where fewer layers than these are left out, that saves nothing.
static constexpr int64_t kLeastLayers = 12;
/// How far what is extrapolated may be off.
static constexpr double kTolerance = 1e-3;

namespace {
/// What the phases up to communication make of a candidate.
struct Weighed {
  std::string refusal; ///< its first error; then there is nothing else
  std::vector<Estimate> estimates;
  int64_t estimatedBytes = 0; ///< if asked for
  int64_t stages = 1;         ///< of the mesh
};
} // namespace

/// Runs the candidate's phases on a copy.
static Weighed weigh(ModuleOp module, const ShardOptions &options, const MemoryOptions *memory,
                     const CommunicateOptions &communicate) {
  OwningOpRef<ModuleOp> copy = module.clone();
  Weighed weighed;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && weighed.refusal.empty())
      weighed.refusal = loom::describeWithNode(diagnostic, loom::getNodeName(module.getLoc()));
    return success(); // a trial is not the user's business
  });
  PassManager pm(module.getContext());
  pm.enableVerifier(false); // the phases verify the program themselves
  addShardPasses(pm, options);
  addPartitionPasses(pm);
  addCommunicatePasses(pm, communicate);
  if (failed(pm.run(*copy))) {
    if (weighed.refusal.empty())
      weighed.refusal = "cannot be compiled";
    return weighed;
  }
  weighed.estimates = estimate(*copy);
  if (options.hasPipeline())
    weighed.stages = dist::getMesh(*copy).getAxisSize(options.stageAxis);
  if (memory)
    weighed.estimatedBytes = static_cast<int64_t>(
        findLargest(estimateCommunicated(*copy, *memory)).needs.getAllocated());
  return weighed;
}

namespace {
/// The candidates of one choice, weighed as far as it takes to choose.
///
/// Of a program with many equal layers each candidate is weighed with few of them first, which
/// tells what the whole program takes at least. By rising sums, whole programs are weighed until
/// the least is known: the order of those that are simulated is the same as if all had been.
class Trials {
public:
  Trials(ModuleOp module, const StrategyRequest &request, Choice &choice)
      : module(module), request(request), choice(choice), isWhole(choice.candidates.size()),
        isDone(choice.candidates.size()) {}
  LogicalResult run();

private:
  void weighLayers();
  void weighWhole(size_t index);
  void weighAll();
  std::optional<size_t> findNext() const;
  bool isFarSlower(const Candidate &candidate) const;
  void shortlist();
  bool tryOut(Candidate &candidate);
  LogicalResult refuseAll();

  ModuleOp module;
  const StrategyRequest &request;
  Choice &choice;
  std::vector<bool> isWhole;      ///< by candidate: weighed as a whole
  std::vector<bool> isDone;       ///< tried out, or not worth it
  std::vector<Candidate *> tried; ///< simulated, and fit
};
} // namespace

/// What all layers take, of what few and more of them take.
static double extrapolate(double few, double more, int64_t layers) {
  return more + (more - few) * static_cast<double>(layers - kMoreLayers) /
                    static_cast<double>(kMoreLayers - kFewLayers);
}

/// The seconds of a step of all layers; of stages at least, since the slowest takes no less than
/// its part.
static double extrapolate(const Weighed &few, const Weighed &more, int64_t layers) {
  double seconds = 0;
  for (auto [less, all] : llvm::zip_equal(few.estimates, more.estimates))
    seconds += extrapolate(less.microSeconds, all.microSeconds, layers) *
               (1 + static_cast<double>(all.microbatches - 1) / static_cast<double>(all.stages));
  return seconds;
}

/// Weighs all candidates with few layers, where that saves work.
void Trials::weighLayers() {
  std::optional<Layers> layers = Layers::find(module);
  if (!layers || layers->getCount() < kLeastLayers || choice.candidates.size() <= kMaxSimulated)
    return;
  OwningOpRef<ModuleOp> few = layers->keep(kFewLayers), more = layers->keep(kMoreLayers);
  if (!few || !more)
    return;
  for (Candidate &candidate : choice.candidates) {
    ShardOptions options = candidate.options;
    options.mergesStages = true;
    options.explains = false;
    auto weighPart = [&](ModuleOp part) {
      return weigh(part, options, /*memory=*/nullptr, request.memory.communicate);
    };
    Weighed less = weighPart(*few), all = weighPart(*more);
    // What cannot be said of few layers the whole program will say.
    if (!less.refusal.empty() || !all.refusal.empty())
      continue;
    candidate.sumSeconds = extrapolate(less, all, layers->getCount());
    candidate.isExtrapolated = true;
  }
}

void Trials::weighWhole(size_t index) {
  Candidate &candidate = choice.candidates[index];
  isWhole[index] = true;
  ShardOptions options = candidate.options;
  options.explains = false;
  Weighed weighed = weigh(module, options, &request.memory, request.memory.communicate);
  double extrapolated = candidate.isExtrapolated ? candidate.sumSeconds : 0;
  candidate.isExtrapolated = false;
  candidate.sumSeconds = 0;
  if (!weighed.refusal.empty())
    return candidate.refuse(weighed.refusal);
  for (const Estimate &estimate : weighed.estimates) {
    candidate.sumSeconds += estimate.seconds;
    candidate.leastBytes = std::max(candidate.leastBytes, estimate.leastBytes);
  }
  candidate.estimatedBytes = weighed.estimatedBytes;
  // The layers are not alike after all.
  if (candidate.sumSeconds < (1 - kTolerance) * extrapolated)
    weighAll();
}

void Trials::weighAll() {
  for (size_t i = 0; i < isWhole.size(); ++i)
    if (!isWhole[i])
      weighWhole(i);
}

/// Compiles the candidate up to allocation and simulates it, unless it takes more than the limit
/// without activations, or far more by estimate. Whether it fits; what stands against it refuses
/// it.
bool Trials::tryOut(Candidate &candidate) {
  int64_t limit = choice.memoryLimit;
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
LogicalResult Trials::refuseAll() {
  weighAll(); // to say which needs least
  std::vector<Candidate> &candidates = choice.candidates;
  int64_t limit = choice.memoryLimit;
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

/// The least that a candidate's step may take.
static double getLeastSeconds(const Candidate &candidate) {
  return (candidate.isExtrapolated ? 1 - kTolerance : 1) * candidate.sumSeconds;
}

bool Trials::isFarSlower(const Candidate &candidate) const {
  return !tried.empty() && getLeastSeconds(candidate) > kFarSlower * tried.front()->sumSeconds;
}

/// The candidate whose sum is, or may be, the least of those that are open.
std::optional<size_t> Trials::findNext() const {
  std::optional<size_t> next;
  for (auto [i, candidate] : llvm::enumerate(choice.candidates))
    if (candidate.verdict == Verdict::Open && !isDone[i] &&
        (!next || getLeastSeconds(candidate) < getLeastSeconds(choice.candidates[*next])))
      next = i;
  return next;
}

/// Tries out those with the least sums.
void Trials::shortlist() {
  while (tried.size() < kMaxSimulated) {
    std::optional<size_t> next = findNext();
    if (!next || isFarSlower(choice.candidates[*next]))
      return;
    if (!isWhole[*next]) {
      weighWhole(*next);
      continue;
    }
    isDone[*next] = true;
    Candidate &candidate = choice.candidates[*next];
    if (llvm::none_of(tried, [&](Candidate *other) { return areAlike(*other, candidate); }) &&
        tryOut(candidate))
      tried.push_back(&candidate);
  }
}

LogicalResult Trials::run() {
  weighLayers();
  shortlist();
  if (tried.empty())
    return refuseAll();
  // Of equal ones the first, whose sum is the least.
  const Candidate *best = *std::min_element(tried.begin(), tried.end(), [](auto *a, auto *b) {
    return a->simulatedSeconds < b->simulatedSeconds;
  });
  for (Candidate &candidate : choice.candidates)
    if (candidate.verdict == Verdict::Open)
      candidate.verdict = &candidate == best ? Verdict::Chosen : Verdict::Slower;
  choice.options = best->options;
  choice.name = best->name;
  return success();
}

LogicalResult gridloom::pickCandidate(ModuleOp module, const StrategyRequest &request,
                                      Choice &choice) {
  return Trials(module, request, choice).run();
}
