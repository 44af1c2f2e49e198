//===- Solver.cpp - from a problem to an assignment -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Solver.h"

#include "compiler/solver/Checker.h"
#include "compiler/solver/Elimination.h"
#include "compiler/solver/Enumeration.h"
#include "compiler/solver/Fold.h"
#include "compiler/solver/Search.h"

#include <cmath>

using namespace gridloom::solver;

/// Networks of at most this many nodes are enumerated, if that takes at most this many steps.
static constexpr size_t fewNodes = 32;
static constexpr uint64_t enumerationSteps = 2'000'000;
/// The most entries of an elimination's tables, 200 MB, and the most additions to fill them.
static constexpr double eliminationEntries = 16e6, eliminationWork = 2e9;
/// Rounds that are run even if time is over: one for a bound, more if there is no assignment yet.
static constexpr uint64_t leastRounds = 1, leastRoundsWithoutAny = 20;

namespace {

/// The steps to one solution, and their results.
class Solve {
public:
  Solve(const Problem &problem, const Options &options)
      : problem(problem), options(options), folding(problem) {}

  Solution run() {
    solution.fault = folding.fold();
    if (!solution.fault.empty()) {
      solution.isProvenInfeasible = true;
      return std::move(solution);
    }
    network.emplace(folding.getModel());
    if (!enumerate() && !eliminate())
      search();
    return std::move(solution);
  }

private:
  /// True if the problem is solved, or known to have no solution.
  bool enumerate() {
    if (network->getNumNodes() > fewNodes)
      return false;
    Enumeration enumeration(*network);
    if (!enumeration.run(enumerationSteps))
      return false;
    if (!enumeration.getBest()) {
      solution.fault = "no choice of strategies satisfies all edges and the usage limit of " +
                       std::to_string(problem.usageLimit);
      solution.isProvenInfeasible = true;
      return true;
    }
    finishOptimal(*enumeration.getBest());
    return true;
  }

  /// True if the network is narrow and its cheapest assignment fits into memory, or is not allowed.
  bool eliminate() {
    elimination.emplace(*network);
    if (!elimination->findOrder(eliminationEntries, eliminationWork)) {
      elimination.reset();
      return false;
    }
    State state(*network, elimination->solve());
    if (state.cost > network->mostCost + 0.5) {
      solution.fault = "no choice of strategies satisfies all edges";
      return solution.isProvenInfeasible = true;
    }
    if (!state.isFeasible(*network)) {
      unlimitedCost = state.cost;
      return false;
    }
    finishOptimal(state.chosen);
    return true;
  }

  void search() {
    Search search(*network, options.numThreads, elimination ? &*elimination : nullptr,
                  unlimitedCost);
    if (Assignment start = options.suggestStart ? options.suggestStart() : Assignment();
        !start.empty())
      search.startFrom(network->fromProblem(start, folding.getModel()));
    while (!isEnough(search)) {
      search.runRound();
      updateProgress(search);
      if (options.onProgress)
        options.onProgress(solution.progress);
    }
    if (search.isFeasible())
      finish(search.getState().chosen);
    else
      solution.fault = "no feasible assignment was found in " +
                       std::to_string(search.getNumRounds()) +
                       " rounds; there may be one: give --time or --work more";
  }

  bool isEnough(const Search &search) {
    if (search.isOptimal(options.gap) || search.getNumRounds() >= options.work)
      return true;
    // The state before the first round is arbitrary.
    solution.isCut = options.isEnough && search.getNumRounds() >= leastRounds &&
                     search.isFeasible() && options.isEnough(solution.progress);
    if (solution.isCut)
      return true;
    if (options.isFirstEnough)
      return search.isFeasible() || search.getNumRounds() >= Options::mostRoundsWithoutAny;
    uint64_t least = search.isFeasible() ? leastRounds : leastRoundsWithoutAny;
    return Options::Clock::now() >= options.deadline && search.getNumRounds() >= least;
  }

  void updateProgress(const Search &search) {
    Progress &progress = solution.progress;
    progress.work = search.getNumRounds();
    progress.isFeasible = search.isFeasible();
    if (progress.isFeasible)
      progress.cost = Cost(search.getState().cost);
    progress.lowerBound =
        Cost(std::clamp(search.getBound(), -double(infiniteCost), double(progress.cost)));
  }

  void finishOptimal(const std::vector<uint32_t> &chosen) {
    finish(chosen);
    solution.progress.lowerBound = solution.progress.cost;
  }

  /// Unfolds and checks the network's best assignment.
  void finish(const std::vector<uint32_t> &chosen) {
    const Model &model = folding.getModel();
    solution.assignment = folding.unfold(network->toProblem(chosen, model));
    Evaluation evaluation = evaluate(problem, solution.assignment);
    solution.fault = evaluation.fault;
    Progress &progress = solution.progress;
    progress.isFeasible = evaluation.isFeasible();
    progress.cost = evaluation.cost;
    progress.lowerBound = std::min(progress.lowerBound, progress.cost);
  }

  const Problem &problem;
  const Options &options;
  Folding folding;
  std::optional<Network> network;
  std::optional<Elimination> elimination; ///< if the network is narrow
  /// Of the cheapest assignment without limits of memory, if it is known.
  double unlimitedCost = -std::numeric_limits<double>::infinity();
  Solution solution;
};

} // namespace

Solution gridloom::solver::solve(const Problem &problem, const Options &options) {
  return Solve(problem, options).run();
}
