//===- RepeatedLayersTest.cpp - programs with some layers removed ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/RepeatedLayers.h"

#include "cluster/Presets.h"
#include "compiler/driver/Registration.h"
#include "compiler/planner/Weighing.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Training.h"
#include "test/unit/LayeredProgram.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace gridloom;

namespace {

class RepeatedLayersTest : public testing::Test {
protected:
  RepeatedLayersTest() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  mlir::OwningOpRef<mlir::ModuleOp> parse(const Shape &shape = {}) {
    auto module = mlir::parseSourceString<mlir::ModuleOp>(makeProgram(shape), &context);
    EXPECT_TRUE(module) << makeProgram(shape);
    auto machine = makeMachine(cluster::makeHosts(cluster::getUsualPreset("cpu"), 4), 4);
    (*module)->setAttr(dist::kCluster, dist::makeMachineAttr(&context, machine));
    return module;
  }

  static int64_t countProducts(mlir::ModuleOp module) {
    int64_t count = 0;
    module.walk([&](loom::DotGeneralOp) { ++count; });
    return count;
  }

  mlir::MLIRContext context;
};

TEST_F(RepeatedLayersTest, AreFoundAndTakenOut) {
  auto module = parse();
  std::optional<Layers> layers = Layers::find(*module);
  ASSERT_TRUE(layers);
  // The repetition may begin in the middle of a layer, which leaves the first and last incomplete.
  EXPECT_GE(layers->getCount(), kLayers - 1);
  for (int64_t kept : {1, 3, 4}) {
    auto copy = layers->keep(kept);
    ASSERT_TRUE(copy);
    EXPECT_TRUE(succeeded(mlir::verify(*copy)));
    int64_t gone = layers->getCount() - kept;
    EXPECT_EQ(countProducts(*copy), countProducts(*module) - 2 * gone);
    auto func = *copy->getOps<mlir::func::FuncOp>().begin();
    EXPECT_EQ(func.getNumArguments(), 1 + kLayers - gone);
    EXPECT_EQ(func.getNumResults(), 1 + kLayers - gone);
  }
  EXPECT_EQ(countProducts(*module), 2 * kLayers + 2) << "the program itself has changed";
}

/// The parameter that a gradient belongs to does not change how it is computed.
TEST_F(RepeatedLayersTest, MayBeAboutDifferentParameters) {
  for (llvm::StringLiteral attribute : {loom::kGradientOf, loom::kAccumulates}) {
    auto module = parse();
    int number = 0;
    module->walk([&](loom::DotGeneralOp op) {
      op->setAttr(attribute, mlir::StringAttr::get(&context, ("w" + llvm::Twine(number++)).str()));
    });
    std::optional<Layers> layers = Layers::find(*module);
    ASSERT_TRUE(layers) << attribute.str();
    EXPECT_GE(layers->getCount(), kLayers - 1) << attribute.str();
  }
}

TEST_F(RepeatedLayersTest, OfAnotherSizeIsNone) {
  std::optional<Layers> layers = Layers::find(*parse({.isLastWider = true}));
  ASSERT_TRUE(layers);
  EXPECT_LT(layers->getCount(), kLayers);
}

TEST_F(RepeatedLayersTest, StayWhereTheyAreReadElsewhere) {
  for (Shape shape : {Shape{.returnsSome = true}, Shape{.readsFirst = true}}) {
    auto module = parse(shape);
    std::optional<Layers> layers = Layers::find(*module);
    ASSERT_TRUE(layers);
    EXPECT_FALSE(layers->keep(3));
  }
}

TEST_F(RepeatedLayersTest, TakeWhatTheExtrapolationSays) {
  auto module = parse();
  std::optional<Layers> layers = Layers::find(*module);
  ASSERT_TRUE(layers);
  auto few = layers->keep(3), more = layers->keep(4);
  auto weighAll = [&](const ShardOptions &given) {
    ShardOptions options = given;
    options.mergesStages = true;
    auto weighed = [&](mlir::ModuleOp part) { return weigh(part, options, {}, false); };
    return extrapolateSeconds({3, weighed(*few)}, {4, weighed(*more)}, layers->getCount());
  };
  ShardOptions options;
  options.stageAxis.clear();
  for (auto [data, model] : {std::pair(4, 1), {1, 4}, {2, 2}}) {
    options.mesh = "data=" + std::to_string(data) + ",model=" + std::to_string(model);
    options.dp.assign(data > 1, "data");
    options.tp.assign(model > 1, "model");
    Weighed whole = weigh(*module, options, {}, false);
    ASSERT_EQ(whole.refusal, "");
    EXPECT_NEAR(weighAll(options), whole.getSeconds(), 1e-9 * whole.getSeconds()) << options.mesh;
  }
  // With stages the extrapolation is a lower bound, off by at most one operation per stage.
  options.mesh = "model=2,pipe=2";
  options.dp.clear();
  options.tp = {"model"};
  options.stageAxis = "pipe";
  Weighed whole = weigh(*module, options, {}, false);
  ASSERT_EQ(whole.refusal, "");
  EXPECT_LE(weighAll(options), whole.getSeconds());
  EXPECT_GE(weighAll(options), 0.8 * whole.getSeconds());
}

} // namespace
