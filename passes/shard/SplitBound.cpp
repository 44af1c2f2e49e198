//===- SplitBound.cpp - lower bound on the time of any splits -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitBound.h"

#include "compiler/solver/Solver.h"
#include "passes/shard/Shard.h"
#include "passes/shard/SplitProblem.h"

using namespace mlir;
using namespace gridloom;

std::optional<double> gridloom::boundSplits(ModuleOp module, ArrayRef<StringAttr> axes,
                                            const std::function<bool()> &isOver) {
  const SearchSplitsOptions search; // the defaults of a search
  dist::Mesh mesh = dist::Mesh::get(module);
  SplitProblem problem(module, axes, /*batch=*/{}, mesh, search.mostTableBytes,
                       /*boundsTime=*/true);
  if (!problem.hasChoices())
    return std::nullopt;
  problem.connect();
  if (problem.isTooLarge())
    return std::nullopt;
  solver::Options options;
  options.work = search.work;
  options.gap = kSearchGap;
  if (isOver)
    options.isEnough = [&](const solver::Progress &) { return isOver(); };
  solver::Problem costs = problem.makeProblem(/*memoryBytes=*/0);
  solver::Solution solution = solver::solve(costs, options);
  if (solution.isCut)
    return std::nullopt;
  // Rounding changes a cost by at most a unit, even of an edge for a value that is read twice.
  auto rounded = static_cast<solver::Cost>(costs.getNumNodes() + costs.edges.size());
  return problem.getStepBound(std::max<solver::Cost>(0, solution.progress.lowerBound - rounded));
}
