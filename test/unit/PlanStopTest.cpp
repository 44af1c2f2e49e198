//===- PlanStopTest.cpp - planning that is stopped early ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The clock counts its calls: the time is over at a given call. Simulated times and memory needs of
// candidates are made up.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"
#include "compiler/driver/Interrupt.h"
#include "compiler/driver/Registration.h"
#include "compiler/planner/Strategy.h"
#include "passes/shard/SearchLimits.h"
#include "test/unit/LayeredProgram.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gmock/gmock.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

using namespace gridloom;

namespace {

constexpr int64_t kLimit = 1 << 30;

class PlanStopTest : public testing::Test {
protected:
  PlanStopTest() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    module = mlir::parseSourceString<mlir::ModuleOp>(makeProgram({}), &context);
    EXPECT_TRUE(module);
    std::string error;
    request.cluster = cluster::findCluster("HGX-H100x2", error);
    request.clusterFlag = "--cluster HGX-H100x2";
    request.memoryLimit = kLimit;
    request.jobs = 1;
    request.tryPlan = [this](mlir::ModuleOp, const ShardOptions &options,
                             mlir::OwningOpRef<mlir::ModuleOp>, std::string &) {
      ++simulated;
      std::this_thread::sleep_for(takes);
      StageMemory stage;
      bool doesFit =
          (fits.empty() || options.mesh == fits) && (fitsIfCut || !options.limits->isCut);
      stage.needs.weights = doesFit ? 1 : 2 * kLimit;
      sim::ProgramRun run;
      run.seconds = 1.0 + static_cast<double>(options.mesh.size());
      return TrialPlan{{stage}, {run}};
    };
  }

  /// The time is over at call number `times`, counted from 0; never if negative.
  Choice choose(int times = -1) {
    asked = 0;
    request.limits.isOver = [this, times] {
      int before = asked++;
      return times >= 0 && before >= times;
    };
    simulated = 0;
    mlir::OwningOpRef<mlir::ModuleOp> copy = module->clone();
    auto chosen = chooseStrategy(*copy, request);
    EXPECT_TRUE(succeeded(chosen));
    return succeeded(chosen) ? *chosen : Choice();
  }

  /// All that is decided about candidates.
  static std::vector<std::string> list(const Choice &choice) {
    std::vector<std::string> all;
    for (const Candidate &each : choice.candidates)
      all.push_back(each.name + "; " + each.describe() + "; " + std::to_string(each.sumSeconds) +
                    "; " + std::to_string(each.simulatedSeconds));
    return all;
  }

  static void expectOneThatFits(const Choice &choice) {
    size_t chosen = 0;
    for (const Candidate &each : choice.candidates) {
      EXPECT_NE(each.verdict, Verdict::Open) << each.name;
      if (each.verdict != Verdict::Chosen)
        continue;
      ++chosen;
      EXPECT_GT(each.simulatedSeconds, 0) << each.name;
      EXPECT_LE(each.memoryBytes, kLimit) << each.name;
      EXPECT_EQ(each.name, choice.name);
    }
    EXPECT_EQ(chosen, 1u);
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  StrategyRequest request;
  std::string fits;                   ///< the only mesh whose plans fit in memory; empty: all fit
  bool fitsIfCut = true;              ///< whether plans of interrupted searches fit, too
  std::chrono::milliseconds takes{0}; ///< time that a simulation takes, so that two threads overlap
  std::atomic<int> simulated = 0;
  std::atomic<int> asked = 0; ///< calls of the clock
};

TEST_F(PlanStopTest, WheneverTheTimeIsOverThereIsAPlan) {
  Choice whole = choose();
  ASSERT_GT(whole.candidates.size(), 8u);
  EXPECT_EQ(whole.countLeft(), 0u);
  EXPECT_FALSE(whole.hasCutSearch());
  EXPECT_THAT(whole.describe(), testing::Not(testing::HasSubstr("left")));
  size_t before = whole.candidates.size();
  for (bool isQuickFirst : {false, true}) {
    request.limits.isQuickFirst = isQuickFirst;
    for (int times : {0, 1, 5, 20, 40, 1000000}) {
      Choice choice = choose(times);
      expectOneThatFits(choice);
      if (times == 0) {
        EXPECT_EQ(simulated, 1);
        EXPECT_EQ(choice.countLeft(), before - 1);
        EXPECT_THAT(choice.describe(), testing::HasSubstr(std::to_string(before - 1) + " left"));
      }
      if (times == 1000000)
        EXPECT_EQ(list(choice), list(whole)) << "the order in which they are weighed shows";
    }
  }
}

TEST_F(PlanStopTest, GoesOnUntilOneFits) {
  Choice whole = choose();
  for (size_t at : {size_t(0), whole.candidates.size() / 2, whole.candidates.size() - 1}) {
    ASSERT_NE(whole.candidates[at].verdict, Verdict::Refused) << whole.candidates[at].refusal;
    fits = whole.candidates[at].options.mesh;
    Choice choice = choose(0);
    expectOneThatFits(choice);
    EXPECT_EQ(choice.options.mesh, fits);
  }
  fits = "none of them";
  mlir::ScopedDiagnosticHandler quiet(&context, [](mlir::Diagnostic &) { return mlir::success(); });
  request.limits.isOver = [] { return true; };
  EXPECT_TRUE(failed(chooseStrategy(*module, request)));
}

TEST_F(PlanStopTest, FinishesASearchThatDoesNotFit) {
  Choice whole = choose();
  // These stages are cut several times.
  const ShardOptions &last = whole.candidates.back().options;
  ASSERT_TRUE(last.hasPipeline() && !last.search.empty());
  fits = last.mesh;
  Choice cut = choose(0);
  ASSERT_TRUE(cut.hasCutSearch());
  fitsIfCut = false;
  Choice choice = choose(0);
  expectOneThatFits(choice);
  EXPECT_EQ(choice.options.mesh, fits);
  EXPECT_FALSE(choice.options.limits->isCut);
}

TEST_F(PlanStopTest, TheTimeToCertifyIsPlanningTime) {
  Choice loose = choose();
  int before = asked;
  request.certifies = true;
  Choice close = choose();
  int all = asked;
  EXPECT_THAT(close.bound->scope, testing::HasSubstr("as the search prices"));
  ASSERT_GT(all, before + 1) << "not asked between meshes";
  for (int times : {0, before, before + 1, all - 1}) {
    Choice cut = choose(times);
    EXPECT_THAT(cut.bound->scope, testing::EndsWith("by work alone, without messages: planning "
                                                    "ended before the searches did"));
    if (times < before)
      continue;
    EXPECT_EQ(cut.bound->seconds, loose.bound->seconds) << times << " of " << all;
    EXPECT_LE(asked, times + 3) << "goes on after the time is over";
  }
}

TEST_F(PlanStopTest, SoManyStepsHaveOneResultOnAnyNumberOfThreads) {
  Choice whole = choose();
  uint64_t all = whole.countSteps();
  ASSERT_GT(all, 20u);
  for (bool isQuickFirst : {false, true}) {
    request.limits.isQuickFirst = isQuickFirst;
    for (uint64_t steps : {uint64_t(1), uint64_t(7), all / 2, all - 1, all}) {
      request.limits.mostSteps = steps;
      request.jobs = 1;
      Choice one = choose();
      expectOneThatFits(one);
      request.jobs = 3;
      Choice several = choose();
      EXPECT_EQ(list(several), list(one)) << steps << " steps";
      EXPECT_EQ(several.countSteps(), one.countSteps());
      EXPECT_EQ(several.hasCutSearch(), one.hasCutSearch());
    }
  }
  request.limits.mostSteps = all;
  EXPECT_EQ(list(choose()), list(whole));
}

TEST_F(PlanStopTest, EveryNumberOfStepsHasOneResultOnTwoThreads) {
  for (const char *strategy : {"auto", "search"}) {
    request.strategy = strategy;
    request.limits = {};
    Choice whole = choose();
    uint64_t all = whole.countSteps();
    for (uint64_t steps = 1; steps <= all; ++steps) {
      request.limits.mostSteps = steps;
      request.jobs = 1;
      Choice one = choose();
      if (one.name != whole.name)
        EXPECT_TRUE(one.countLeft() || one.hasCutSearch()) << steps << " steps";
      request.jobs = 2;
      takes = std::chrono::milliseconds(20);
      Choice two = choose();
      takes = {};
      ASSERT_EQ(list(two), list(one)) << steps << " steps";
      ASSERT_EQ(two.countSteps(), one.countSteps()) << steps << " steps";
      ASSERT_EQ(two.hasCutSearch(), one.hasCutSearch()) << steps << " steps";
    }
  }
}

TEST_F(PlanStopTest, SaysHowFarItIs) {
  request.jobs = 3;
  std::vector<PlanProgress> seen;
  request.onProgress = [&](const PlanProgress &progress) { seen.push_back(progress); };
  Choice choice = choose();
  ASSERT_FALSE(seen.empty());
  for (const PlanProgress &progress : seen) {
    EXPECT_EQ(progress.candidates, choice.candidates.size());
    EXPECT_EQ(progress.bestSeconds > 0, progress.simulated > 0);
  }
  EXPECT_EQ(seen.back().weighed, choice.candidates.size());
  EXPECT_EQ(seen.back().simulated, static_cast<size_t>(simulated));
}

TEST(InterruptOnceTest, KeepsOneSignalUntilItIsForgotten) {
  struct sigaction usual = {}, before = {}, now = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGINT, &usual, &before); // a shell may ignore it for background processes
  InterruptOnce::forget();
  {
    InterruptOnce first(true);
    std::raise(SIGINT);
    EXPECT_TRUE(InterruptOnce::wasInterrupted());
  }
  {
    InterruptOnce second(true);
    sigaction(SIGINT, nullptr, &now);
    EXPECT_TRUE(now.sa_handler == SIG_DFL) << "the second signal is to end the process";
  }
  InterruptOnce::forget();
  EXPECT_FALSE(InterruptOnce::wasInterrupted());
  {
    InterruptOnce other(true);
    sigaction(SIGINT, nullptr, &now);
    EXPECT_TRUE(now.sa_handler != SIG_DFL) << "the first one of another compilation is kept";
  }
  sigaction(SIGINT, &before, nullptr);
}

} // namespace
