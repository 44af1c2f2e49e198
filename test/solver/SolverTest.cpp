//===- SolverTest.cpp - assignments, bounds and determinism ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Solver.h"

#include "compiler/solver/Elimination.h"
#include "compiler/solver/Enumeration.h"
#include "compiler/solver/Fold.h"
#include "compiler/solver/Search.h"
#include "test/solver/SolverTesting.h"

#include <gmock/gmock.h>

using namespace gridloom::solver;
using testing::HasSubstr;

static constexpr Shape small{1, 12, 4, 1.5};
/// Feasible, and too large to be solved in a moment.
static constexpr Shape large{80, 80, 6, 3, 1'000'000'000};

static void addRows(Rows &rows, const std::vector<std::vector<int64_t>> &values) {
  for (const std::vector<int64_t> &row : values)
    rows.addRow(row);
}

static Problem makeExample() {
  Problem problem;
  problem.intervals = {{30, 70}, {40, 70}, {50, 120}, {110, 140}, {110, 150}};
  addRows(problem.costs, {{15}, {55, 65}, {25, 45, 35}, {85, 75}, {95}});
  addRows(problem.usages, {{10}, {25, 25}, {15, 20, 15}, {10, 10}, {15}});
  problem.edges = {{0, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 4}};
  addRows(problem.edgeCosts, {{30, 40}, {50, 10, 40}, {90, 10, 20, 80}, {60, 20, 30}, {70, 60}});
  problem.usageLimit = 50;
  return problem;
}

TEST(Solver, SolvesTheExampleOfTheContest) {
  Solution solution = solve(makeExample(), {});
  EXPECT_EQ(solution.fault, "");
  EXPECT_EQ(solution.assignment, (Assignment{0, 0, 2, 1, 0}));
  EXPECT_EQ(solution.progress.cost, 445);
  EXPECT_EQ(solution.progress.lowerBound, 445);
}

TEST(Checker, NamesTheViolatedConstraint) {
  Problem problem = makeExample();
  EXPECT_EQ(evaluate(problem, {0, 0, 1, 0, 0}).fault,
            "the usage at time 50 is 55, above the limit of 50");
  EXPECT_THAT(evaluate(problem, {0, 2, 0, 0, 0}).fault, HasSubstr("node 1 has no strategy 2"));
  EXPECT_THAT(evaluate(problem, {0}).fault, HasSubstr("the assignment has 1 nodes"));
  problem.edges.push_back({0, 0});
  problem.edgeCosts.addRow(std::vector<int64_t>{infiniteCost});
  EXPECT_EQ(evaluate(problem, {0, 0, 2, 1, 0}).fault, "edge 5 has infinite cost");
  EXPECT_EQ(evaluate(problem, {0, 0, 2, 1, 0}).cost, infiniteCost);
}

TEST(Solver, EqualsExhaustiveSearch) {
  int numFeasible = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Problem problem = makeRandomProblem(seed, small);
    ASSERT_EQ(findFault(problem), "");
    std::optional<Cost> optimum = findOptimum(problem);
    Solution solution = solve(problem, {});
    ASSERT_EQ(solution.isProvenInfeasible, !optimum) << "seed " << seed << ": " << solution.fault;
    if (!optimum)
      continue;
    ++numFeasible;
    EXPECT_EQ(solution.progress.cost, *optimum) << "seed " << seed;
    EXPECT_EQ(solution.progress.lowerBound, *optimum) << "seed " << seed;
    EXPECT_EQ(evaluate(problem, solution.assignment).cost, *optimum) << "seed " << seed;
  }
  EXPECT_GT(numFeasible, 200);
  EXPECT_LT(numFeasible, 500);
}

// Search must solve what enumeration solves above.
TEST(Search, FindsTheOptimaOfSmallProblemsAndNoBoundAboveThem) {
  int numSearched = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Problem problem = makeRandomProblem(seed, {8, 12, 4, 2.5});
    std::optional<Cost> optimum = findOptimum(problem);
    Folding folding(problem);
    if (!optimum || !folding.fold().empty() || folding.getModel().limits.empty())
      continue;
    Network network(folding.getModel());
    Elimination elimination(network);
    bool isNarrow = seed % 2 == 0 && elimination.findOrder(1e6, 1e7);
    Search search(network, 1, isNarrow ? &elimination : nullptr);
    for (int round = 0; round < 200 && !search.isOptimal(0); ++round) {
      search.runRound();
      ASSERT_LE(search.getBound(), double(*optimum)) << "seed " << seed;
    }
    ASSERT_TRUE(search.isFeasible()) << "seed " << seed;
    Assignment assignment =
        folding.unfold(network.toProblem(search.getState().chosen, folding.getModel()));
    Evaluation evaluation = evaluate(problem, assignment);
    EXPECT_EQ(evaluation.fault, "") << "seed " << seed;
    EXPECT_EQ(double(evaluation.cost), search.getState().cost) << "seed " << seed;
    EXPECT_EQ(evaluation.cost, *optimum) << "seed " << seed;
    ++numSearched;
  }
  EXPECT_GT(numSearched, 50);
}

// Where cycles make the bound by messages weak.
TEST(Search, EliminationRaisesTheBound) {
  int numRaised = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Problem problem = makeRandomProblem(seed, {40, 40, 4, 1.5});
    Folding folding(problem);
    if (!folding.fold().empty() || folding.getModel().limits.empty())
      continue;
    Network network(folding.getModel());
    Elimination elimination(network);
    if (!elimination.findOrder(1e6, 1e7))
      continue;
    Search with(network, 1, &elimination), without(network, 1);
    for (int round = 0; round < 20; ++round) {
      with.runRound();
      without.runRound();
    }
    if (without.isFeasible())
      EXPECT_LE(with.getBound(), without.getState().cost) << "seed " << seed;
    numRaised += with.getBound() > without.getBound();
  }
  EXPECT_GT(numRaised, 0);
}

TEST(Solver, BoundsWhatLimitsOfMemoryMakeDearer) {
  Options options;
  options.work = 1;
  int numDearer = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Problem limited = makeRandomProblem(seed, {40, 40, 4, 1.5}), unlimited = limited;
    unlimited.usageLimit = 1'000'000;
    Solution least = solve(unlimited, {}), solution = solve(limited, options);
    if (!solution.progress.isFeasible || least.progress.lowerBound < least.progress.cost)
      continue;
    EXPECT_GE(solution.progress.lowerBound, least.progress.cost) << "seed " << seed;
    numDearer += solution.progress.cost > least.progress.cost;
  }
  EXPECT_GT(numDearer, 10);
}

TEST(Search, TheResultOfAWorkDoesNotDependOnThreads) {
  Problem problem = makeRandomProblem(7, large);
  std::vector<Solution> solutions;
  for (unsigned threads : {1, 2, 3}) {
    Options options;
    options.work = 60;
    options.numThreads = threads;
    solutions.push_back(solve(problem, options));
    ASSERT_EQ(solutions.back().fault, "");
  }
  EXPECT_EQ(solutions[0].progress.work, 60u) << "solved too early to show anything";
  for (const Solution &solution : solutions) {
    EXPECT_EQ(solution.assignment, solutions[0].assignment);
    EXPECT_EQ(solution.progress.cost, solutions[0].progress.cost);
    EXPECT_EQ(solution.progress.lowerBound, solutions[0].progress.lowerBound);
    EXPECT_EQ(solution.progress.work, solutions[0].progress.work);
  }
}

TEST(Problem, KeepsSomeStrategies) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Problem problem = makeRandomProblem(seed, small);
    Random random(seed);
    std::vector<std::vector<uint32_t>> kept(problem.getNumNodes());
    Assignment own, original;
    for (size_t node = 0; node < kept.size(); ++node) {
      for (uint32_t k = 0; k < problem.getNumStrategies(node); ++k)
        if (random.below(2) == 0)
          kept[node].push_back(k);
      if (kept[node].empty())
        kept[node].push_back(0);
      own.push_back(random.below(kept[node].size()));
      original.push_back(kept[node][own.back()]);
    }
    Problem part = keepStrategies(problem, kept);
    ASSERT_EQ(findFault(part), "") << "seed " << seed;
    Evaluation expected = evaluate(problem, original), found = evaluate(part, own);
    EXPECT_EQ(found.cost, expected.cost) << "seed " << seed;
    EXPECT_EQ(found.peakUsage, expected.peakUsage) << "seed " << seed;
  }
}

TEST(Solver, StartsFromASuggestion) {
  Problem problem = makeRandomProblem(7, large);
  Options options;
  options.work = 60;
  Solution good = solve(problem, options);
  ASSERT_EQ(good.fault, "");
  options.work = 1;
  Solution alone = solve(problem, options);
  EXPECT_GT(alone.progress.cost, good.progress.cost) << "one round is enough to show nothing";
  options.suggestStart = [&] { return good.assignment; };
  EXPECT_LE(solve(problem, options).progress.cost, good.progress.cost);
  options.suggestStart = [] { return Assignment(); };
  EXPECT_EQ(solve(problem, options).assignment, alone.assignment);
}

TEST(Network, CompletesWhatFoldingTookAway) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Problem problem = makeRandomProblem(seed, {20, 40, 6, 2.5});
    Folding folding(problem);
    if (!folding.fold().empty())
      continue;
    Network network(folding.getModel());
    Random random(seed);
    std::vector<uint32_t> chosen;
    for (uint32_t node = 0; node < network.getNumNodes(); ++node)
      chosen.push_back(random.below(network.size[node]));
    Assignment assignment = network.toProblem(chosen, folding.getModel());
    EXPECT_EQ(network.fromProblem(assignment, folding.getModel()), chosen) << "seed " << seed;
    // Strategies that are not left.
    for (size_t node = 0; node < assignment.size(); ++node)
      assignment[node] = uint32_t(problem.getNumStrategies(node));
    for (uint32_t node = 0; node < network.getNumNodes(); ++node)
      EXPECT_LT(network.fromProblem(assignment, folding.getModel())[node], network.size[node]);
  }
}

/// A ring of layers, each with a path and a shortcut to the next. They can share their cost tables.
static Problem makeLayers(size_t count, bool isShared) {
  Problem problem;
  auto last = static_cast<uint32_t>(2 * count);
  for (uint32_t node = 0; node < last; ++node) {
    problem.intervals.push_back({0, 0});
    addRows(problem.costs, {{3, 1, 2}});
    addRows(problem.usages, {{0, 0, 0}});
  }
  const std::vector<std::vector<int64_t>> tables = {{0, 7, 4, 5, 1, infiniteCost, 6, 2, 3},
                                                    {8, 1, 5, 0, 9, 2, 4, 4, 0},
                                                    {2, 0, 6, 1, 3, 3, 0, 7, 1}};
  for (uint32_t node = 0; node < last; node += 2)
    for (auto [k, edge] : {std::pair(0, Edge{node, node + 1}),
                           {1, {node + 1, (node + 2) % last}},
                           {2, {node, (node + 2) % last}}}) {
      problem.edges.push_back(edge);
      if (isShared && node > 0)
        problem.edgeCosts.repeatRow(static_cast<size_t>(k));
      else
        problem.edgeCosts.addRow(tables[static_cast<size_t>(k)]);
    }
  return problem;
}

/// Visits random problems that have an assignment, without limits of memory and unfolded: folds
/// would leave nothing to eliminate. Returns their number.
template <typename Visit> static int forEachUnlimited(Visit visit) {
  int count = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem problem = makeRandomProblem(seed, {8, 12, 4, 2.5});
    problem.usageLimit = 1'000'000;
    std::optional<Cost> optimum = findOptimum(problem);
    if (!optimum)
      continue;
    Model model(problem);
    Network network(model);
    Elimination elimination(network);
    EXPECT_TRUE(elimination.findOrder(1e7, 1e8));
    visit(problem, *optimum, model, network, elimination);
    ++count;
  }
  return count;
}

TEST(Elimination, EqualsExhaustiveSearch) {
  int numSolved = forEachUnlimited([](const Problem &problem, Cost optimum, const Model &model,
                                      const Network &network, Elimination &elimination) {
    std::vector<uint32_t> chosen = elimination.solve();
    EXPECT_EQ(network.getCost(chosen), double(optimum));
    EXPECT_EQ(evaluate(problem, network.toProblem(chosen, model)).cost, optimum);
  });
  EXPECT_GT(numSolved, 100);
}

TEST(Elimination, TakesAddedCosts) {
  int numChanged = 0;
  forEachUnlimited([&](const Problem &problem, Cost optimum, const Model &model,
                       const Network &network, Elimination &elimination) {
    Random random(static_cast<uint64_t>(optimum));
    std::vector<double> added(network.costs.size());
    for (double &more : added)
      more = double(random.below(50));
    Problem dearer = problem;
    dearer.costs = {};
    for (uint32_t node = 0; node < network.getNumNodes(); ++node) {
      for (uint32_t k = 0; k < network.size[node]; ++k) {
        Cost cost = problem.costs[node][k];
        dearer.costs.append(cost < infiniteCost ? cost + Cost(added[network.costsAt[node] + k])
                                                : cost);
      }
      dearer.costs.endRow();
    }
    Assignment chosen = network.toProblem(elimination.solve(added), model);
    EXPECT_EQ(evaluate(dearer, chosen).cost, findOptimum(dearer));
    numChanged += evaluate(problem, chosen).cost != optimum;
  });
  EXPECT_GT(numChanged, 50);
}

TEST(Elimination, LeavesWideNetworks) {
  Problem problem = makeRandomProblem(7, large);
  Network network{Model(problem)};
  EXPECT_FALSE(Elimination(network).findOrder(1e6, 1e7));
  Network narrow{Model(makeLayers(50, true))};
  EXPECT_TRUE(Elimination(narrow).findOrder(1e6, 1e7));
  EXPECT_FALSE(Elimination(narrow).findOrder(1e6, 100));
}

/// Layers of two strategies that are equally good; a change between layers costs 1. The ends of the
/// program prefer the second one a little.
TEST(Solver, LeavesNoSeamBetweenEqualLayers) {
  constexpr uint32_t count = 200;
  Problem problem;
  for (uint32_t node = 0; node < count; ++node) {
    problem.intervals.push_back({node, node + 1});
    bool isEnd = node < 2 || node + 2 >= count;
    addRows(problem.costs, {{isEnd ? 3 : 2, 2}});
    addRows(problem.usages, {{1, 1}});
    for (uint32_t back : {1U, 2U}) // shortcuts, so that no chain folds away
      if (node >= back) {
        problem.edges.push_back({node - back, node});
        problem.edgeCosts.addRow(std::vector<int64_t>{0, 1, 1, 0});
      }
  }
  problem.usageLimit = count;
  Solution solution = solve(problem, {});
  EXPECT_EQ(solution.fault, "");
  EXPECT_EQ(solution.progress.cost, 2 * int64_t(count));
  EXPECT_EQ(solution.progress.lowerBound, 2 * int64_t(count));
  EXPECT_EQ(solution.assignment, Assignment(count, 1));
}

/// More nodes than are enumerated, of which four in a row need four strategies and have three.
TEST(Solver, ProvesThatNoStrategiesSatisfyAllEdges) {
  constexpr uint32_t count = 60;
  Problem problem;
  for (uint32_t node = 0; node < count; ++node) {
    problem.intervals.push_back({node, node + 1});
    addRows(problem.costs, {{1, 1, 1}});
    addRows(problem.usages, {{1, 1, 1}});
  }
  for (uint32_t node = 0; node < count; ++node)
    for (uint32_t step : {1U, 2U, 3U}) {
      problem.edges.push_back({node, (node + step) % count});
      problem.edgeCosts.addRow(
          std::vector<int64_t>{infiniteCost, 0, 0, 0, infiniteCost, 0, 0, 0, infiniteCost});
    }
  problem.usageLimit = count;
  Solution solution = solve(problem, {});
  EXPECT_TRUE(solution.isProvenInfeasible);
  EXPECT_EQ(solution.fault, "no choice of strategies satisfies all edges");
}

TEST(Network, LayersShareTables) {
  for (bool isShared : {false, true}) {
    Network network{Model(makeLayers(50, isShared))};
    EXPECT_EQ(network.numEntries, 50u * 3 * 9);
    EXPECT_EQ(network.matrices.size(), 2u * 3 * 9);
  }
}

TEST(Folding, KeepsTheOptimumOfLayersThatShareTables) {
  std::optional<Cost> least = findOptimum(makeLayers(4, false));
  ASSERT_TRUE(least);
  for (bool isShared : {false, true}) {
    EXPECT_EQ(solve(makeLayers(4, isShared), {}).progress.cost, *least);
    EXPECT_EQ(solve(makeLayers(50, isShared), {}).assignment,
              solve(makeLayers(50, false), {}).assignment);
  }
}

/// Tests folding alone by enumerating the folded problem.
TEST(Folding, KeepsTheOptimum) {
  size_t before = 0, after = 0;
  for (uint64_t seed = 1000; seed < 1200; ++seed) {
    Problem problem = makeRandomProblem(seed, small);
    Folding folding(problem);
    std::optional<Cost> optimum = findOptimum(problem);
    if (!folding.fold().empty()) {
      EXPECT_FALSE(optimum) << "seed " << seed;
      continue;
    }
    Network network(folding.getModel());
    Enumeration enumeration(network);
    ASSERT_TRUE(enumeration.run(1'000'000));
    ASSERT_EQ(enumeration.getBest().has_value(), optimum.has_value()) << "seed " << seed;
    if (optimum) {
      EXPECT_EQ(network.getCost(*enumeration.getBest()), double(*optimum)) << "seed " << seed;
    }
    before += problem.getNumNodes();
    after += network.getNumNodes();
  }
  EXPECT_LT(after, before / 2) << "folding does too little";
}

TEST(Solver, NamesTheTimeThatCannotFit) {
  Problem problem = makeExample();
  problem.usageLimit = 49;
  Solution solution = solve(problem, {});
  EXPECT_TRUE(solution.isProvenInfeasible);
  EXPECT_EQ(solution.fault, "the least usage at time 50 is 50, above the limit of 49");
}

TEST(Solver, NamesTheEdgeAndTheNodeThatForbidAll) {
  Problem problem = makeExample();
  problem.edges.push_back({1, 2});
  problem.edgeCosts.addRow(std::vector<int64_t>(6, infiniteCost));
  EXPECT_EQ(solve(problem, {}).fault, "the edge of nodes 1 and 2 has infinite cost for all "
                                      "strategies that their other constraints allow");
  problem = makeExample();
  problem.edges.push_back({4, 4});
  problem.edgeCosts.addRow(std::vector<int64_t>{infiniteCost});
  EXPECT_EQ(solve(problem, {}).fault,
            "node 4 has no strategy that its costs, its edges and the usage limit allow");
}

TEST(Solver, TheFirstAssignmentCanBeEnough) {
  Problem problem = makeRandomProblem(7, large);
  Options options;
  options.isFirstEnough = true;
  Solution first = solve(problem, options);
  EXPECT_EQ(first.fault, "");
  EXPECT_LT(first.progress.work, 60u);
}

TEST(Solver, StopsWithinTheGap) {
  Problem problem = makeRandomProblem(7, large);
  Options options;
  options.work = 60;
  Progress best = solve(problem, options).progress;
  ASSERT_EQ(best.work, 60u) << "solved too early to show anything";
  options.gap = 0.5;
  Progress near = solve(problem, options).progress;
  EXPECT_LT(near.work, best.work);
  EXPECT_LE(near.cost - near.lowerBound, near.cost / 2);
}

TEST(Solver, StopsWhereWhatItHasIsEnough) {
  Problem problem = makeRandomProblem(7, large);
  Options options;
  options.work = 60;
  ASSERT_FALSE(solve(problem, options).isCut);
  for (uint64_t rounds : {1, 10, 30}) {
    options.isEnough = [&](const Progress &progress) { return progress.work >= rounds; };
    Solution cut = solve(problem, options);
    EXPECT_EQ(cut.fault, "");
    EXPECT_TRUE(cut.isCut);
    EXPECT_GE(cut.progress.work, rounds);
    EXPECT_LT(cut.progress.work, 60u);
    EXPECT_LE(cut.progress.lowerBound, cut.progress.cost);
  }
}

TEST(Solver, AnswersEvenIfTheTimeIsOver) {
  Options options;
  options.deadline = Options::Clock::now();
  EXPECT_EQ(solve(makeRandomProblem(7, large), options).fault, "");
}

/// Superlinear steps would show on a band of 10^6 edges, and on a star.
TEST(Solver, AnswersAMillionEdges) {
  for (bool isStar : {false, true}) {
    Problem problem;
    Random random(1);
    uint32_t nodes = isStar ? 50'001 : 250'000;
    for (uint32_t i = 0; i < nodes; ++i) {
      problem.intervals.push_back({i, i + 20});
      problem.costs.addRow(std::vector<int64_t>{random.below(9), random.below(9)});
      problem.usages.addRow(std::vector<int64_t>{1, 1 + random.below(3)});
    }
    for (uint32_t i = 0; i < (isStar ? 50'000u : 1'000'000u); ++i) {
      if (isStar)
        problem.edges.push_back({0, i + 1});
      else
        problem.edges.push_back({i / 4, (i / 4 + 1 + i % 4) % nodes});
      problem.edgeCosts.addRow(
          std::vector<int64_t>{0, random.below(9), random.below(9), random.below(9)});
    }
    problem.usageLimit = 50;
    ASSERT_EQ(findFault(problem), "");
    Options options;
    options.deadline = Options::Clock::now() + std::chrono::seconds(2);
    options.work = 12;
    Solution solution = solve(problem, options);
    EXPECT_EQ(solution.fault, "") << (isStar ? "star" : "band");
    EXPECT_GE(solution.progress.cost, solution.progress.lowerBound);
    EXPECT_GT(solution.progress.lowerBound, 0);
  }
}
