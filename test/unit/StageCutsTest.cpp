//===- StageCutsTest.cpp - stage cuts against all cuts --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The dynamic program prunes cuts that cannot be the best; its choice must be the plain one's, also
// among equal cuts.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/StageCuts.h"

#include "dialects/dist/Dist.h"

#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <random>

using namespace gridloom;

namespace {

/// A chain of `count` operations on two devices.
std::string makeChain(size_t count) {
  std::string text = R"(dist.mesh @mesh <["pipe" = 2]>
func.func @main(%v0: tensor<64x64xf32> {loom.name = "x"}) -> (tensor<64x64xf32> {loom.name = "y"}) {
)";
  for (size_t i = 0; i < count; ++i)
    text += "  %v" + std::to_string(i + 1) + " = loom.add %v" + std::to_string(i) + ", %v0" +
            " : tensor<64x64xf32>\n";
  return text + "  return %v" + std::to_string(count) + " : tensor<64x64xf32>\n}\n";
}

/// Tries every start of every stage.
llvm::SmallVector<size_t> choosePlainly(const StageProfile &profile, size_t stages) {
  size_t n = profile.anchored.size();
  using Cost = std::pair<double, double>;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Cost>> best(stages + 1, std::vector<Cost>(n + 1, {infinite, infinite}));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = {0, 0};
  for (size_t stage = 1; stage <= stages; ++stage)
    for (size_t end = stage; end <= n; ++end)
      for (size_t start = stage - 1; start < end; ++start) {
        double sent = start == 0 ? 0 : profile.crossing[start];
        Cost cost = best[stage - 1][start];
        cost.first = std::max(cost.first, profile.between(start, end) + sent);
        cost.second += sent;
        if (cost < best[stage][end]) {
          best[stage][end] = cost;
          from[stage][end] = start;
        }
      }
  llvm::SmallVector<size_t> starts(stages);
  for (size_t stage = stages, end = n; stage > 0; --stage)
    starts[stage - 1] = end = from[stage][end];
  return starts;
}

class StageCutsTest : public testing::Test {
protected:
  StageCutsTest() {
    context.loadDialect<loom::LoomDialect, dist::DistDialect, mlir::func::FuncDialect>();
  }

  /// Cuts a chain of operations with the given seconds and bytes of results.
  void cut(const std::vector<double> &seconds, const std::vector<double> &bytes) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(makeChain(seconds.size()), &context);
    ASSERT_TRUE(module);
    auto func = *module->getOps<mlir::func::FuncOp>().begin();
    llvm::DenseMap<mlir::Operation *, size_t> index;
    for (mlir::Operation &op : func.front())
      index.insert({&op, index.size()});
    StageCosts costs{[&](mlir::Operation *op) { return seconds[index.lookup(op)]; },
                     [&](mlir::Value value) { return bytes[index.lookup(value.getDefiningOp())]; }};
    dist::Mesh mesh = dist::Mesh::get(*module);
    StageProfile profile(func, mesh, mlir::StringAttr::get(&context, "pipe"), costs);
    for (size_t stages = 1; stages <= seconds.size(); ++stages) {
      std::optional<StageStarts> starts = chooseCuts(profile, stages);
      ASSERT_TRUE(starts);
      EXPECT_EQ(starts->front(), choosePlainly(profile, stages)) << stages << " stages";
    }
  }

  mlir::MLIRContext context;
};

TEST_F(StageCutsTest, AreThoseOfThePlainProgram) {
  std::mt19937 random(0);
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<double> seconds, bytes;
    // Few distinct numbers, so that many cuts are equal; sometimes one that outweighs all others.
    for (size_t i = 0, count = 1 + random() % 24; i < count; ++i) {
      seconds.push_back(random() % 10 == 0 ? 1e-3 : 1e-6 * double(random() % 4));
      bytes.push_back(double(random() % 3) * (trial % 2 ? 1e5 : 1e8));
    }
    cut(seconds, bytes);
  }
}

TEST_F(StageCutsTest, OfHardlyAnyWork) { cut({0, 0, 0, 1e-6, 0}, {1e6, 1e6, 0, 1e6, 0}); }

} // namespace
