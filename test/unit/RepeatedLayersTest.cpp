//===- RepeatedLayersTest.cpp - programs with fewer of their layers -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/RepeatedLayers.h"

#include "cluster/Presets.h"
#include "compiler/driver/Registration.h"
#include "compiler/planner/Weighing.h"
#include "dialects/dist/MachineAttr.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace gridloom;

namespace {

constexpr int64_t kLayers = 14;

struct Shape {
  bool isLastWider = false; ///< the last layer has another size
  bool returnsSome = false; ///< two layers return what they make
  bool readsFirst = false;  ///< what follows the layers also reads one from the middle
};

std::string number(const char *name, int64_t i) { return name + std::to_string(i); }

/// Layers of two products, with a cache each and a residual stream, between two other products.
std::string makeProgram(const Shape &shape) {
  std::string weights, body;
  auto weight = [&](const std::string &name, int64_t rows, int64_t columns) {
    std::string type = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "xf32>";
    weights += "loom.weight @" + name + " : " + type +
               " from <\"\", offset = 0, bytes = " + std::to_string(rows * columns * 4) + ">\n";
    body += "  %" + name + " = loom.get_weight @" + name + " : " + type + "\n";
  };
  auto product = [&](const std::string &result, const std::string &left, const std::string &right,
                     int64_t inner, int64_t columns) {
    body += "  %" + result + " = loom.dot_general %" + left + ", %" + right +
            " batch = [] x [] contract = [1] x [0] : (tensor<32x" + std::to_string(inner) +
            "xf32>, tensor<" + std::to_string(inner) + "x" + std::to_string(columns) +
            "xf32>) -> tensor<32x" + std::to_string(columns) + "xf32> loc(\"" + result + "\")\n";
  };
  std::string arguments, results, types;
  weight("first", 64, 64);
  product("r0", "x", "first", 64, 64);
  for (int64_t i = 0; i < kLayers; ++i) {
    int64_t wide = shape.isLastWider && i + 1 == kLayers ? 512 : 256;
    weight(number("up", i), 64, wide);
    weight(number("down", i), wide, 64);
    product(number("h", i), number("r", i), number("up", i), 64, wide);
    product(number("d", i), number("h", i), number("down", i), wide, 64);
    std::string cache = number("cache", i);
    arguments += ", %" + cache + ": tensor<32x64xf32> {loom.name = \"" + cache +
                 "\", loom.state = \"" + cache + "\"}";
    body += "  %" + number("c", i) + " = loom.add %" + cache + ", %" + number("d", i) +
            " : tensor<32x64xf32> loc(\"" + number("keep", i) + "\")\n";
    body += "  %" + number("r", i + 1) + " = loom.add %" + number("r", i) + ", %" + number("c", i) +
            " : tensor<32x64xf32> loc(\"" + number("residual", i) + "\")\n";
    results += ", %" + number("c", i);
    types += ", tensor<32x64xf32> {loom.name = \"" + number("next", i) + "\", loom.state = \"" +
             cache + "\"}";
    if (shape.returnsSome && (i == 3 || i == 7)) {
      results += ", %" + number("h", i);
      types += ", tensor<32x256xf32> {loom.name = \"" + number("seen", i) + "\"}";
    }
  }
  std::string top = number("r", kLayers);
  if (shape.readsFirst) {
    body += "  %both = loom.add %" + top + ", %r5 : tensor<32x64xf32>\n";
    top = "both";
  }
  weight("last", 64, 1024);
  product("y", top, "last", 64, 1024);
  return weights + "func.func @main(%x: tensor<32x64xf32> {loom.name = \"x\"}" + arguments +
         ") -> (tensor<32x1024xf32> {loom.name = \"y\"}" + types +
         ") attributes {loom.dims = {}, loom.entry = \"main\"} {\n" + body + "  return %y" +
         results + " : tensor<32x1024xf32>" +
         [&] {
           std::string plain;
           for (int64_t i = 0; i < kLayers; ++i) {
             plain += ", tensor<32x64xf32>";
             if (shape.returnsSome && (i == 3 || i == 7))
               plain += ", tensor<32x256xf32>";
           }
           return plain;
         }() +
         "\n}\n";
}

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
  // The first and the last may lie in two stretches.
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
  // Stages take at least so much, and no more than what one operation adds to each.
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
