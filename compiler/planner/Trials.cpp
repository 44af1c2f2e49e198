//===- Trials.cpp - candidates weighed and tried out ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Trials.h"

#include "compiler/planner/KeptPrograms.h"
#include "compiler/planner/RepeatedLayers.h"
#include "compiler/planner/Replicas.h"
#include "compiler/planner/Weighing.h"
#include "passes/shard/SearchLimits.h"
#include "passes/shard/SearchMemo.h"
#include "passes/shard/SplitPrices.h"
#include "runtime/core/MemoryNeeds.h"
#include "support/Text.h"

#include "mlir/IR/Diagnostics.h"

#include <mutex>
#include <thread>

using namespace mlir;
using namespace gridloom;

/// A candidate whose estimated memory is this many times the limit is refused without allocating
/// it.
static constexpr int64_t kFarAbove = 2;
/// The most candidates that fit to simulate: each is compiled up to allocation, which takes seconds
/// for a large model.
static constexpr size_t kMaxSimulated = 4;
/// Candidates whose sum is this many times that of the first that fits are not simulated: in the
/// zoo no candidate's lead in the simulator is more than 1.23 times what the sums say.
static constexpr double kFarSlower = 1.3;
/// Layers of the two programs whose difference is the time of a layer, free of the first and the
/// last one.
static constexpr int64_t kFewLayers = 3, kMoreLayers = 4;
/// With fewer layers than this, extrapolation saves nothing.
static constexpr int64_t kLeastLayers = 12;
/// More threads than this are not worth their copies of the program.
static constexpr unsigned kMostThreads = 4;
/// How often a search whose plan does not fit is run again with less memory: the search counts
/// neither the copies that gathers make nor padding.
static constexpr int kMostSqueezes = 5;
/// Relative error to allow for in extrapolated times.
static constexpr double kTolerance = 1e-3;

/// The least share of the step in which only messages are under way for another search to look for
/// overlap, and the share of messages that this one counts as hidden if work can run beside them.
static constexpr double kMuchExposed = 0.01, kHiddenShare = 0.5;

/// Candidates that are tried out together. A constant, so that the choice does not depend on the
/// number of threads.
static constexpr size_t kTogether = 2;

namespace {
/// Weighs the candidates of one choice as far as it takes to choose, and tries the best out.
///
/// If the program has many equal layers, each candidate is weighed with few of them first, which
/// bounds the whole program's sum from below. Whole programs are then weighed by rising bounds
/// until the least sum is known, so candidates are simulated in the same order as if all had been
/// weighed whole.
///
/// When the limits are reached, candidates weighed by then are tried out by rising sums until one
/// fits, then the others one by one.
class Trials {
public:
  Trials(ModuleOp module, const StrategyRequest &request, Choice &choice)
      : module(module), request(request), choice(choice), replicas(countThreads(request)),
        isWeighed(choice.candidates.size()), isWhole(choice.candidates.size()),
        isDone(choice.candidates.size()) {}
  LogicalResult run();

private:
  static unsigned countThreads(const StrategyRequest &request);
  bool isTimeOver() const { return request.limits.isOver && request.limits.isOver(); }
  bool isOver() const { return isTimeOver() || choice.countSteps() >= request.limits.mostSteps; }
  std::vector<bool> look(ArrayRef<size_t> indices, size_t numNeeded, ArrayRef<ModuleOp> programs,
                         llvm::function_ref<void(size_t, Replicas::GetProgram)> task);
  Weighed weighKept(size_t index, ModuleOp program);
  void report(const Candidate *simulated = nullptr);
  void weighLayers();
  void take(size_t index, const Weighed &weighed);
  void weighWhole(ArrayRef<size_t> indices, size_t numNeeded = 0);
  void weighRest();
  bool isEnough(const Candidate &candidate, size_t looked, const Candidate *first) const;
  SmallVector<size_t> findNext() const;
  bool weighOneMore();
  bool isLeft(size_t index) const;
  void shortlist();
  void finishSearches();
  void searchWithoutLimit();
  Candidate &findBest() const;
  void searchForOverlap();
  bool tryOne(Candidate &candidate, ModuleOp program, OwningOpRef<ModuleOp> fused) const;
  void tryWithin(Candidate &candidate, ModuleOp program, OwningOpRef<ModuleOp> fused) const;
  void tryOut(ArrayRef<size_t> indices);
  LogicalResult refuseAll();

  ModuleOp module;
  const StrategyRequest &request;
  Choice &choice;
  Replicas replicas;
  /// Of candidates weighed as a whole; after `replicas`, whose contexts they are in.
  KeptPrograms kept;
  std::mutex mutex; ///< guards progress
  PlanProgress progress;
  std::vector<bool> isWeighed;    ///< by candidate: with few layers or as a whole
  std::vector<bool> isWhole;      ///< weighed as a whole
  std::vector<bool> isDone;       ///< tried out, or not worth it
  std::vector<Candidate *> tried; ///< simulated and fitting
};
} // namespace

unsigned Trials::countThreads(const StrategyRequest &request) {
  unsigned threads = request.jobs ? static_cast<unsigned>(request.jobs)
                                  : std::min(std::thread::hardware_concurrency(), kMostThreads);
  return std::max(threads, 1U);
}

/// Weighs a candidate with few layers. What few layers do not allow, more do not. False if a search
/// was cut: the difference of such results says nothing about a layer.
static bool weighLayers(Candidate &candidate, ModuleOp few, ModuleOp more, int64_t layers,
                        const MemoryOptions &memory) {
  ShardOptions options = candidate.options;
  options.mergesStages = true;
  options.searched = nullptr; // is of the whole program
  options.prices = std::make_shared<SplitPrices>();
  options.limits = std::make_shared<SearchLimits>(SearchLimits{candidate.options.limits->isOver});
  WeighedLayers less{kFewLayers, weigh(few, options, memory, /*isWhole=*/false)};
  WeighedLayers all{kMoreLayers, weigh(more, options, memory, /*isWhole=*/false)};
  candidate.options.limits->rounds += options.limits->rounds;
  if (options.limits->isCut)
    return false;
  for (const WeighedLayers *each : {&less, &all})
    if (!each->weighed.refusal.empty()) {
      candidate.refuse(each->weighed.refusal);
      return true;
    }
  candidate.sumSeconds = extrapolateSeconds(less, all, layers);
  candidate.isExtrapolated = true;
  return true;
}

/// Reports progress: one more candidate is weighed, or `simulated` is simulated.
void Trials::report(const Candidate *simulated) {
  std::lock_guard lock(mutex);
  progress.candidates = choice.candidates.size();
  ++(simulated ? progress.simulated : progress.weighed);
  if (simulated && simulated->verdict == Verdict::Open &&
      (!progress.bestSeconds || simulated->simulatedSeconds < progress.bestSeconds))
    progress.bestSeconds = simulated->simulatedSeconds;
  if (request.onProgress)
    request.onProgress(progress);
}

namespace {
/// The state of a candidate's searches before another look at it.
struct SearchState {
  SearchLimits limits;
  std::optional<SearchMemo> searched;

  explicit SearchState(const ShardOptions &options) : limits(*options.limits) {
    if (options.searched)
      searched = *options.searched;
  }
  /// Undoes that look.
  void restore(const ShardOptions &options) const {
    *options.limits = limits;
    if (searched)
      *options.searched = *searched;
  }
};
} // namespace

/// Runs a task for each of these candidates, in order, while time and steps are left; for the first
/// `numNeeded` in any case. Where a candidate's program is kept, its task runs in that context if
/// it can. Returns which results to take, which depends on the threads only if time runs out.
std::vector<bool> Trials::look(ArrayRef<size_t> indices, size_t numNeeded,
                               ArrayRef<ModuleOp> programs,
                               llvm::function_ref<void(size_t, Replicas::GetProgram)> task) {
  std::mutex lookMutex;
  std::vector<std::optional<uint64_t>> steps(indices.size()); // of finished tasks
  std::vector<std::optional<SearchState>> states(indices.size());
  uint64_t before = choice.countSteps();
  auto isLeftFor = [&](size_t i) { // as far as known: tasks before may still run
    uint64_t taken = before;
    for (size_t k = 0; k < i && steps[k]; ++k)
      taken += *steps[k];
    return i < numNeeded || taken < request.limits.mostSteps;
  };
  auto runOne = [&](size_t i, Replicas::GetProgram get) {
    {
      std::lock_guard lock(lookMutex);
      if (!isLeftFor(i) || (i >= numNeeded && isTimeOver()))
        return;
    }
    const Candidate &candidate = choice.candidates[indices[i]];
    states[i].emplace(candidate.options);
    task(i, get);
    std::lock_guard lock(lookMutex);
    steps[i] = 1 + candidate.options.limits->rounds - states[i]->limits.rounds;
  };
  replicas.run(indices.size(), programs, runOne,
               [&](size_t i) { return kept.findContext(indices[i]); });
  // A thread may have begun a task before the steps of earlier ones were known.
  std::vector<bool> isTaken(indices.size());
  for (auto [i, index] : llvm::enumerate(indices)) {
    isTaken[i] = steps[i] && isLeftFor(i);
    if (steps[i] && !isTaken[i]) {
      states[i]->restore(choice.candidates[index].options);
      kept.drop(index);
    }
    choice.numLooks += isTaken[i];
  }
  return isTaken;
}

/// Whether few layers would save little: most of such a search's work is shared by all layers. Its
/// result is seldom far from the best.
static bool isBestWhole(const Candidate &candidate) {
  return candidate.options.search.size() > 1 && !candidate.options.hasPipeline();
}

/// Weighs the whole program with a candidate and keeps the program if it is among the best.
Weighed Trials::weighKept(size_t index, ModuleOp program) {
  Weighed weighed =
      weigh(program, choice.candidates[index].options, request.memory, /*isWhole=*/true);
  if (weighed.fused)
    kept.keep(index, weighed.getSeconds(), std::move(weighed.fused));
  return weighed;
}

/// Weighs all candidates, with few layers where that saves work.
void Trials::weighLayers() {
  SmallVector<size_t> order;
  for (size_t i = 0; i < isWhole.size(); ++i)
    order.push_back(i);
  // Quick and often good ones first: without stages, then searches, then with stages.
  if (request.limits.isQuickFirst)
    llvm::stable_sort(order, [&](size_t a, size_t b) {
      auto rank = [&](size_t i) {
        return std::pair(choice.candidates[i].options.hasPipeline(),
                         isBestWhole(choice.candidates[i]));
      };
      return rank(a) < rank(b);
    });
  std::optional<Layers> layers;
  if (!request.weighsAll && order.size() > kMaxSimulated)
    layers = Layers::find(module);
  OwningOpRef<ModuleOp> few, more;
  if (layers && layers->getCount() >= kLeastLayers) {
    few = layers->keep(kFewLayers);
    more = layers->keep(kMoreLayers);
  }
  if (!few || !more)
    return weighWhole(order);
  // If there is time for all, the longest tasks begin first.
  if (!request.limits.isQuickFirst)
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t i) { return isBestWhole(choice.candidates[i]); });
  std::vector<Weighed> whole(order.size());
  std::vector<Candidate> layered(order.size());
  std::vector<char> isKnown(order.size(), true); // not bool: threads write neighbouring elements
  auto isTaken = look(order, 0, {module, *few, *more}, [&](size_t i, Replicas::GetProgram get) {
    const Candidate &candidate = choice.candidates[order[i]];
    if (isBestWhole(candidate)) {
      whole[i] = weighKept(order[i], get(module));
    } else {
      layered[i] = candidate;
      isKnown[i] =
          ::weighLayers(layered[i], get(*few), get(*more), layers->getCount(), request.memory);
    }
    report();
  });
  for (auto [i, index] : llvm::enumerate(order)) {
    if (!isTaken[i] || !isKnown[i])
      continue;
    isWeighed[index] = true;
    if (isBestWhole(choice.candidates[index]))
      take(index, whole[i]);
    else
      choice.candidates[index] = std::move(layered[i]);
  }
}

/// Records what the whole program takes with a candidate.
static void take(Candidate &candidate, const Weighed &weighed) {
  candidate.isExtrapolated = false;
  candidate.sumSeconds = weighed.getSeconds();
  candidate.leastBytes = weighed.getLeastBytes();
  candidate.estimatedMemory = weighed.memory;
  if (!weighed.refusal.empty())
    candidate.refuse(weighed.refusal);
}

void Trials::take(size_t index, const Weighed &weighed) {
  isWeighed[index] = true;
  isWhole[index] = true;
  ::take(choice.candidates[index], weighed);
}

/// Weighs the whole program with these candidates; the first `numNeeded` in any case.
void Trials::weighWhole(ArrayRef<size_t> indices, size_t numNeeded) {
  std::vector<Weighed> weighed(indices.size());
  auto isTaken = look(indices, numNeeded, module, [&](size_t i, Replicas::GetProgram get) {
    weighed[i] = weighKept(indices[i], get(module));
    if (!isWeighed[indices[i]])
      report();
  });
  bool isLess = false; // less than extrapolated: the layers are not alike after all
  for (auto [index, found, isNew] : llvm::zip_equal(indices, weighed, isTaken)) {
    if (!isNew)
      continue;
    double extrapolated = choice.candidates[index].sumSeconds;
    take(index, found);
    isLess |= found.refusal.empty() && found.getSeconds() < (1 - kTolerance) * extrapolated;
  }
  if (isLess)
    weighRest();
}

/// Weighs the whole program with all remaining candidates.
void Trials::weighRest() {
  SmallVector<size_t> rest;
  for (size_t i = 0; i < isWhole.size(); ++i)
    if (!isWhole[i])
      rest.push_back(i);
  if (!rest.empty())
    weighWhole(rest);
}

/// Why a candidate cannot fit; empty if it may.
static std::string findExcess(const Candidate &candidate, int64_t limit) {
  auto format = [](int64_t bytes) { return formatBytes(static_cast<uint64_t>(bytes)); };
  if (limit && candidate.getEstimatedBytes() / kFarAbove > limit)
    return "a device needs about " + format(candidate.getEstimatedBytes()) + ", the limit is " +
           format(limit);
  if (limit && candidate.leastBytes > limit)
    return "a device needs at least " + format(candidate.leastBytes) + ", the limit is " +
           format(limit);
  return "";
}

/// Compiles a candidate up to allocation and simulates it, unless the lower bound of its memory
/// exceeds the limit, or its estimate does by far. Returns whether it fits; if not, refuses it with
/// the reason.
bool Trials::tryOne(Candidate &candidate, ModuleOp program, OwningOpRef<ModuleOp> fused) const {
  int64_t limit = choice.memoryLimit;
  std::string error = findExcess(candidate, limit);
  std::optional<TrialPlan> trial;
  if (error.empty())
    trial = request.tryPlan(program, candidate.options, std::move(fused), error);
  if (!trial) {
    candidate.refuse(error);
    return false;
  }
  candidate.simulatedSeconds = trial->getSeconds();
  candidate.memoryBytes = static_cast<int64_t>(trial->getNeeds().getAllocated());
  candidate.trial = std::make_shared<TrialPlan>(std::move(*trial));
  if (!limit || candidate.memoryBytes <= limit)
    return true;
  candidate.refuse("a device " + describeExcess(candidate.memoryBytes, limit));
  return false;
}

/// A device's memory, by the best figure known.
static int64_t getNeeded(const Candidate &candidate) {
  return candidate.memoryBytes ? candidate.memoryBytes
                               : std::max(candidate.leastBytes, candidate.getEstimatedBytes());
}

/// The same candidate with all results cleared.
static Candidate searchAgain(const Candidate &candidate) {
  Candidate again;
  again.name = candidate.name;
  again.options = candidate.options;
  again.options.searched = std::make_shared<SearchMemo>();
  return again;
}

/// tryOne; a search whose plan exceeds the limit is run again with less memory, between an amount
/// that was too much and one that was too little to find any splits. Unless the user gives a limit,
/// the first search has none, which takes a fraction of the time.
void Trials::tryWithin(Candidate &candidate, ModuleOp program, OwningOpRef<ModuleOp> fused) const {
  int64_t limit = choice.memoryLimit;
  if (tryOne(candidate, program, std::move(fused)) || candidate.options.search.empty() || !limit ||
      getNeeded(candidate) <= limit)
    return;
  auto scale = [limit](int64_t memory, int64_t needed) {
    return static_cast<int64_t>(double(memory) * double(limit) / double(needed));
  };
  int64_t tooLittle = 0, tooMuch = limit;
  int64_t next = candidate.options.searchMemory ? scale(limit, getNeeded(candidate)) : limit;
  for (int i = 0; i < kMostSqueezes && (tried.empty() || !isTimeOver()); ++i) {
    Candidate smaller = searchAgain(candidate);
    smaller.options.searchMemory = std::max<int64_t>(next, 1);
    Weighed weighed = weigh(program, smaller.options, request.memory, /*isWhole=*/true);
    ::take(smaller, weighed);
    bool isFound = smaller.verdict == Verdict::Open;
    if (isFound && tryOne(smaller, program, std::move(weighed.fused))) {
      candidate = std::move(smaller);
      return;
    }
    (isFound ? tooMuch : tooLittle) = next;
    next = isFound && !tooLittle ? scale(next, std::max(getNeeded(smaller), limit))
                                 : (tooLittle + tooMuch) / 2;
  }
}

/// Tries candidates out and keeps those that fit.
void Trials::tryOut(ArrayRef<size_t> indices) {
  std::vector<Candidate> results(indices.size());
  auto isTaken = look(indices, 1, module, [&](size_t i, Replicas::GetProgram get) {
    results[i] = choice.candidates[indices[i]];
    ModuleOp program = get(module);
    tryWithin(results[i], program, kept.take(indices[i], program.getContext()));
    report(&results[i]);
  });
  for (auto [index, result, isNew] : llvm::zip_equal(indices, results, isTaken)) {
    if (!isNew)
      continue;
    isDone[index] = true;
    choice.candidates[index] = std::move(result);
    if (choice.candidates[index].verdict == Verdict::Open)
      tried.push_back(&choice.candidates[index]);
  }
}

/// If nothing fits, runs searches that were cut again, to their end, until a plan fits.
void Trials::finishSearches() {
  for (auto [i, candidate] : llvm::enumerate(choice.candidates)) {
    if (!tried.empty())
      return;
    if (!candidate.options.limits->isCut)
      continue;
    uint64_t rounds = candidate.options.limits->rounds;
    candidate = searchAgain(candidate);
    candidate.options.limits = std::make_shared<SearchLimits>();
    candidate.options.limits->rounds = rounds;
    kept.drop(i);
    weighWhole(i, /*numNeeded=*/1);
    if (candidate.verdict == Verdict::Open)
      tryOut(i);
  }
}

/// If nothing fits, repeats without a limit the searches that found no splits within it. A search
/// only estimates memory, and cuts stages before it knows the splits, so such a plan may still fit.
void Trials::searchWithoutLimit() {
  for (auto [i, candidate] : llvm::enumerate(choice.candidates)) {
    if (!tried.empty())
      return;
    if (!candidate.options.searchMemory || candidate.options.search.empty() ||
        candidate.verdict != Verdict::Refused || getNeeded(candidate))
      continue;
    Candidate again = searchAgain(candidate);
    again.options.searchMemory = 0;
    auto isTaken = look(i, 1, module, [&](size_t, Replicas::GetProgram get) {
      ModuleOp program = get(module);
      Weighed weighed = weigh(program, again.options, request.memory, /*isWhole=*/true);
      ::take(again, weighed);
      if (again.verdict == Verdict::Open)
        tryOne(again, program, std::move(weighed.fused));
      report(&again);
    });
    if (!isTaken.front() || again.verdict != Verdict::Open)
      continue;
    isDone[i] = true;
    candidate = std::move(again);
    tried.push_back(&candidate);
  }
}

/// Reports that no candidate fits, and which one needs least.
LogicalResult Trials::refuseAll() {
  weighRest(); // to say which needs least
  std::vector<Candidate> &candidates = choice.candidates;
  int64_t limit = choice.memoryLimit;
  const Candidate *least = nullptr;
  for (const Candidate &candidate : candidates) {
    auto bytesOf = [](const Candidate &c) {
      return std::max(c.leastBytes, c.memoryBytes ? c.memoryBytes : c.getEstimatedBytes());
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
  std::optional<TrialPlan> trial = request.tryPlan(module, least->options, nullptr, ignored);
  InFlightDiagnostic error =
      module.emitError("no strategy fits into the memory limit; the one that needs least is ")
      << least->name << ": " << least->describe();
  if (trial)
    error << ": " << rt::describe(trial->getNeeds());
  if (trial && request.suggest)
    error << request.suggest(least->options, trial->getNeeds(), limit);
  return error;
}

/// Whether two candidates are the same program as far as sum and memory tell: swapping axes that
/// are used alike makes no difference, and a search may find a known strategy.
static bool areAlike(const Candidate &a, const Candidate &b) {
  return a.sumSeconds == b.sumSeconds && a.leastBytes == b.leastBytes &&
         a.getEstimatedBytes() == b.getEstimatedBytes();
}

/// The least that a candidate's step may take.
static double getLeastSeconds(const Candidate &candidate) {
  return (candidate.isExtrapolated ? 1 - kTolerance : 1) * candidate.sumSeconds;
}

/// Whether a candidate takes far longer than `first`, the first that fits or, if there is none yet,
/// the first that is looked at.
static bool isFarSlower(const Candidate &candidate, const Candidate &first) {
  return getLeastSeconds(candidate) > kFarSlower * first.sumSeconds;
}

/// Whether a candidate need not be simulated when `looked` others are or will be; `first` is the
/// first of them.
bool Trials::isEnough(const Candidate &candidate, size_t looked, const Candidate *first) const {
  return looked >= request.leastSimulated &&
         (looked >= kMaxSimulated || (first && isFarSlower(candidate, *first)));
}

/// The next open weighed candidates, by rising least sum. Ends before one that is like the first of
/// them, which is only tried if that one does not fit.
SmallVector<size_t> Trials::findNext() const {
  SmallVector<size_t> open;
  for (auto [i, candidate] : llvm::enumerate(choice.candidates))
    if (candidate.verdict == Verdict::Open && isWeighed[i] && !isDone[i])
      open.push_back(i);
  auto leastOf = [&](size_t index) { return getLeastSeconds(choice.candidates[index]); };
  llvm::stable_sort(open, [&](size_t a, size_t b) { return leastOf(a) < leastOf(b); });
  SmallVector<size_t> next;
  for (size_t index : open) {
    const Candidate &candidate = choice.candidates[index];
    const Candidate *first = !tried.empty()  ? tried.front()
                             : !next.empty() ? &choice.candidates[next.front()]
                                             : nullptr;
    bool isKnown = isWhole[index] && !next.empty() && isWhole[next.front()];
    if (isEnough(candidate, tried.size() + next.size(), first) || next.size() == kTogether ||
        (isKnown && areAlike(candidate, choice.candidates[next.front()])))
      break;
    next.push_back(index);
  }
  return next;
}

/// Weighs the next unweighed candidate; false if there is none.
bool Trials::weighOneMore() {
  for (auto [i, candidate] : llvm::enumerate(choice.candidates))
    if (!isWeighed[i]) {
      weighWhole(i, /*numNeeded=*/1);
      return true;
    }
  return false;
}

/// Tries out those with the least sums.
void Trials::shortlist() {
  while (tried.empty() || !isOver()) {
    SmallVector<size_t> next = findNext();
    if (next.empty()) {
      if (!tried.empty() || !weighOneMore())
        return;
      continue;
    }
    SmallVector<size_t> unknown;
    llvm::copy_if(next, std::back_inserter(unknown), [&](size_t index) { return !isWhole[index]; });
    if (!unknown.empty()) {
      weighWhole(unknown, /*numNeeded=*/1);
      continue;
    }
    llvm::erase_if(next, [&](size_t index) {
      isDone[index] = llvm::any_of(
          tried, [&](Candidate *other) { return areAlike(*other, choice.candidates[index]); });
      return isDone[index];
    });
    tryOut(next);
  }
}

/// Whether a candidate would have been looked at further with more time.
bool Trials::isLeft(size_t index) const {
  const Candidate &candidate = choice.candidates[index];
  if (!isWeighed[index])
    return true;
  return !isDone[index] && !isEnough(candidate, tried.size(), tried.front()) &&
         llvm::none_of(tried, [&](Candidate *other) { return areAlike(*other, candidate); });
}

/// The fastest that was simulated and fits; of those that are as fast, the one that would be if all
/// waits for messages were twice as long. Of equal ones the first, which has the least sum.
Candidate &Trials::findBest() const {
  double fastest = std::numeric_limits<double>::infinity();
  for (const Candidate *candidate : tried)
    fastest = std::min(fastest, candidate->simulatedSeconds);
  auto getRisk = [&](const Candidate *candidate) {
    return candidate->simulatedSeconds <= kAsFast * fastest
               ? candidate->simulatedSeconds + candidate->trial->getExposedSeconds()
               : std::numeric_limits<double>::infinity();
  };
  return **std::min_element(tried.begin(), tried.end(),
                            [&](auto *a, auto *b) { return getRisk(a) < getRisk(b); });
}

/// A search counts all messages in full. If the best candidate is one and leaves many exposed,
/// another search counts those for less that work can run beside.
void Trials::searchForOverlap() {
  const Candidate &best = findBest();
  if (best.options.search.empty() || isOver() ||
      best.trial->getExposedSeconds() < kMuchExposed * best.simulatedSeconds)
    return;
  Candidate overlapping = searchAgain(best);
  overlapping.name += ", for overlap";
  overlapping.options.hiddenShare = kHiddenShare;
  overlapping.options.limits =
      std::make_shared<SearchLimits>(SearchLimits{request.limits.isOver, request.limits.mostSteps});
  size_t index = choice.candidates.size();
  choice.candidates.push_back(std::move(overlapping));
  for (std::vector<bool> *flags : {&isWeighed, &isWhole, &isDone})
    flags->push_back(false);
  weighWhole(index);
  Candidate &candidate = choice.candidates.back();
  if (candidate.verdict != Verdict::Open || !isWhole[index] || isTimeOver())
    return;
  if (llvm::none_of(tried, [&](Candidate *other) { return areAlike(*other, candidate); }))
    tryOut(index);
  isDone[index] = true;
}

LogicalResult Trials::run() {
  choice.candidates.reserve(choice.candidates.size() + 1); // `tried` has their addresses
  // A search that weighs a candidate is not run again to compile it.
  for (Candidate &candidate : choice.candidates)
    if (!candidate.options.search.empty())
      candidate.options.searched = std::make_shared<SearchMemo>();
  weighLayers();
  shortlist();
  finishSearches();
  searchWithoutLimit();
  if (tried.empty())
    return refuseAll();
  searchForOverlap();
  bool isStopped = isOver();
  for (auto [i, candidate] : llvm::enumerate(choice.candidates))
    if (candidate.verdict == Verdict::Open)
      candidate.verdict = isStopped && isLeft(i) ? Verdict::Left : Verdict::Slower;
  choice.choose(findBest());
  return success();
}

LogicalResult gridloom::pickCandidate(ModuleOp module, const StrategyRequest &request,
                                      Choice &choice) {
  return Trials(module, request, choice).run();
}
