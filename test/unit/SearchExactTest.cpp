//===- SearchExactTest.cpp - the split search against exhaustive search ---===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// On random small programs the search must find the least cost, and its bound must not exceed it.
// SplitEnumeration.h computes the least cost and says what is independent of the search.
//
//===----------------------------------------------------------------------===//
#include "SmallPrograms.h"
#include "SplitEnumeration.h"

#include "compiler/solver/Solver.h"
#include "passes/shard/SplitProblem.h"

#include "gtest/gtest.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

struct Shape {
  std::vector<int64_t> sizes;
  int mostOperations; ///< of a program, which limits the enumeration
};
class SearchExact : public ::testing::TestWithParam<int> {
protected:
  SearchExact() {
    context.loadDialect<loom::LoomDialect, dist::DistDialect, mlir::func::FuncDialect>();
  }
  /// Expects that the search finds the least cost of a program with a mesh, and returns whether its
  /// splits use an axis.
  bool check(const std::string &text, const char *preset, int64_t devices) {
    SCOPED_TRACE(text);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    if (!module)
      return false;
    module->getOperation()->setAttr(
        dist::kCluster, dist::makeMachineAttr(&context, makeTestMachine(preset, devices)));
    dist::Mesh mesh = dist::Mesh::get(*module);
    llvm::SmallVector<mlir::StringAttr> axes;
    for (const dist::Mesh::Axis &axis : mesh.getAxes())
      axes.push_back(axis.name);

    SplitProblem problem(*module, axes, /*batch=*/{}, mesh, /*mostBytes=*/uint64_t{1} << 30);
    EXPECT_TRUE(problem.hasChoices());
    problem.connect();
    solver::Solution solution = solver::solve(problem.makeProblem(/*memoryBytes=*/0), {});
    EXPECT_TRUE(solution.progress.isFeasible);
    auto cost = static_cast<double>(solution.progress.cost);
    auto bound = static_cast<double>(solution.progress.lowerBound);

    // The enumeration starts from a little above the search's result and must find that again.
    SplitEnumeration all(*module->getOps<mlir::func::FuncOp>().begin(), axes, mesh,
                         /*countsAll=*/true);
    double least = all.findLess(cost * (1 + 1e-9) + 1);
    EXPECT_EQ(least, cost) << all.countTried() << " tried";
    EXPECT_LE(bound, least);
    EXPECT_EQ(bound, cost) << "the search has not proven what it found";
    problem.apply(solution.assignment, "test");
    return !problem.getUsedAxes().empty();
  }
  mlir::MLIRContext context;
};

TEST_P(SearchExact, FindsTheLeastCost) {
  // Seeds are consecutive: the same on every machine, and a failing one is in the test's name.
  static const Shape shapes[] = {{{2}, 7},    {{3}, 7},    {{2, 2}, 7},    {{2, 3}, 7},
                                 {{3, 2}, 7}, {{3, 3}, 6}, {{2, 2, 2}, 6}, {{3, 2, 2}, 5}};
  int splitting = 0;
  for (int seed = GetParam() * 20; seed < (GetParam() + 1) * 20; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const Shape &shape = shapes[random() % std::size(shapes)];
    int operations = 2 + static_cast<int>(random() % (shape.mostOperations - 1));
    std::string text =
        writeMesh(shape.sizes) + SmallProgram(static_cast<uint64_t>(seed), operations).getText();
    SCOPED_TRACE("seed " + std::to_string(seed));
    int64_t devices = 1;
    for (int64_t size : shape.sizes)
      devices *= size;
    splitting += check(text, random() % 2 ? "HGX-H100" : "cpu", devices);
  }
  EXPECT_GE(splitting, 5) << "programs are so small that nothing is worth a split";
}

TEST_F(SearchExact, CountsTheEpilogueThatAMessageTakesApart) {
  EXPECT_TRUE(check(writeMesh({8}) + kLongSum, "HGX-H100", 8));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SearchExact, ::testing::Range(0, 15));

} // namespace
