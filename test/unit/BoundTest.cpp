//===- BoundTest.cpp - the bound of all plans against a full search -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Random small programs on every mesh of some devices: all splits of every operation are enumerated
// (SplitEnumeration.h). The certified bound must equal the cheapest of them, unless micro-batches
// may be faster; the bound from work alone must not exceed it.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Bound.h"

#include "SmallPrograms.h"
#include "SplitEnumeration.h"
#include "compiler/planner/WorkBound.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include "gtest/gtest.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

/// All factorisations of a number into at most three ordered factors.
std::vector<std::vector<int64_t>> factorise(int64_t number) {
  std::vector<std::vector<int64_t>> all{{number}};
  for (int64_t first = 2; first < number; ++first) {
    if (number % first)
      continue;
    for (const std::vector<int64_t> &rest : factorise(number / first))
      if (rest.size() < 3) {
        all.push_back({first});
        all.back().insert(all.back().end(), rest.begin(), rest.end());
      }
  }
  return all;
}

class Bound : public ::testing::TestWithParam<int> {
protected:
  Bound() { context.loadDialect<loom::LoomDialect, dist::DistDialect, mlir::func::FuncDialect>(); }
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &text,
                                          const cluster::Machine &machine) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return module;
    // The bound counts equal operations once.
    mlir::PassManager pm(&context);
    pm.addPass(mlir::createCSEPass());
    EXPECT_TRUE(succeeded(pm.run(*module)));
    module->getOperation()->setAttr(dist::kCluster, dist::makeMachineAttr(&context, machine));
    return module;
  }
  /// The time in seconds of the fastest splits on all meshes, or `below` if none is faster than
  /// that.
  double findLess(int64_t devices, const std::string &text, const cluster::Machine &machine,
                  double below) {
    for (const std::vector<int64_t> &sizes : factorise(devices)) {
      auto module = parse(writeMesh(sizes) + text, machine);
      dist::Mesh mesh = dist::Mesh::get(*module);
      llvm::SmallVector<mlir::StringAttr> axes;
      for (const dist::Mesh::Axis &axis : mesh.getAxes())
        axes.push_back(axis.name);
      SplitEnumeration all(*module->getOps<mlir::func::FuncOp>().begin(), axes, mesh,
                           /*countsAll=*/false);
      below = std::min(below, all.findLess(below * kCostsPerSecond) / kCostsPerSecond);
    }
    return below;
  }
  mlir::MLIRContext context;
};

TEST_P(Bound, IsTheLeastOfAllMeshes) {
  int raised = 0;
  for (int seed = GetParam() * 20; seed < (GetParam() + 1) * 20; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    static constexpr int64_t counts[] = {2, 4, 6, 8, 9};
    int64_t devices = counts[random() % std::size(counts)];
    int operations = 2 + static_cast<int>(random() % (devices < 8 ? 5 : 4));
    std::string text = SmallProgram(static_cast<uint64_t>(seed) + 1000, operations).getText();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(devices) + " devices\n" +
                 text);
    cluster::Machine machine = makeTestMachine(random() % 2 ? "HGX-H100" : "cpu", devices);
    auto module = parse(text, machine);
    ASSERT_TRUE(module);
    BoundRequest request;
    request.seconds = 1;
    PlanBound loose = boundPlans(*module, machine, devices, request);
    request.certifies = true;
    PlanBound close = boundPlans(*module, machine, devices, request);
    WorkBound work(*module, machine);

    // Start a little above the bound, so that splits that take exactly as long are found, too.
    double below = close.seconds * (1 + 1e-5) + 40e-12,
           least = findLess(devices, text, machine, below);
    // These meshes have all axes of a stage's mesh.
    least = work.getStagedSeconds(devices, least, [&](int64_t) { return least; });
    EXPECT_LE(loose.seconds, close.seconds);
    raised += close.seconds > loose.seconds * (1 + 1e-9);
    EXPECT_LT(least, below) << "no splits take as little as the bound";
    // The enumeration rounds every operation and move to hundredths of a picosecond; work is not
    // rounded.
    EXPECT_GE(least, close.seconds - 20e-12) << "the bound is above what some splits take";
  }
  EXPECT_GE(raised, 3) << "the bound by work was hardly exceeded";
}

TEST_F(Bound, CountsTheEpilogueThatAMessageTakesApart) {
  cluster::Machine machine = makeTestMachine("HGX-H100", 8);
  auto module = parse(kLongSum, machine);
  ASSERT_TRUE(module);
  BoundRequest request;
  request.seconds = 1;
  request.certifies = true;
  double bound = boundPlans(*module, machine, 8, request).seconds,
         least = findLess(8, kLongSum, machine, bound * 1.01);
  EXPECT_LT(least, bound * (1 + 1e-6)) << "no splits take as little as the bound";
  EXPECT_GE(least, bound * (1 - 1e-6)) << "the bound is above what some splits take";
}

/// Two dependent operations on one row, which no micro-batches cut.
constexpr const char *chain = R"(
func.func @main(%x: tensor<1x64xf32>) -> tensor<1x64xf32> {
  %0 = loom.tanh %x : tensor<1x64xf32>
  %1 = loom.softmax %0 dim = 1 : tensor<1x64xf32>
  return %1 : tensor<1x64xf32>
}
)";

TEST_F(Bound, CountsTransfersBetweenStages) {
  cluster::Machine machine = makeTestMachine("HGX-H100", 16);
  auto module = parse(chain, machine);
  ASSERT_TRUE(module);
  WorkBound work(*module, machine);
  double latency = std::numeric_limits<double>::infinity();
  for (const cluster::Level &level : machine.levels)
    latency = std::min(latency, level.latencySeconds);
  double transfer = 2 * (cluster::getStartSeconds(machine) + latency);
  std::map<int64_t, double> searched = {{2, 0.5}, {4, 0.25}, {8, 0.75}, {16, 1}};
  auto getSearched = [&](int64_t stages) { return searched.at(stages); };
  EXPECT_DOUBLE_EQ(work.getStagedSeconds(16, 1, getSearched), 0.25 + 3 * transfer);
  EXPECT_LT(work.getStagedSeconds(16, 1), 0.1);
  EXPECT_DOUBLE_EQ(work.getStagedSeconds(16, 1e-9, getSearched), 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Bound, ::testing::Range(0, 15));

} // namespace
