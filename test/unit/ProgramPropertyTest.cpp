//===- ProgramPropertyTest.cpp - random pipelines, in any allowed order -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Random stages with collectives and transfers are scheduled, allocated and then run at random
// speeds. Damaged programs must be refused by verification or still run correctly.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Allocate.h"
#include "passes/schedule/Schedule.h"
#include "test/unit/InterpreterTesting.h"
#include "test/unit/ProgramSimulator.h"

#include "mlir/Pass/PassManager.h"

using namespace gridloom;
using namespace gridloom::testing;
using namespace mlir;

namespace {

/// Writes the stage functions of a random pipeline as text.
class PipelineWriter {
public:
  explicit PipelineWriter(std::mt19937 &random) : random(random) {}

  std::string write() {
    unsigned numStages = 1 + random() % 3;
    microbatches = (const int[]){1, 2, 3, 6}[random() % 4];
    stages.resize(numStages);
    for (Stage &stage : stages) {
      for (int i = 0, count = random() % 3; i < count; ++i)
        stage.arguments.push_back(pickSize());
      for (int size : stage.arguments)
        stage.values.push_back({"%arg" + std::to_string(stage.values.size()), size});
    }
    for (int i = 0, count = 4 + random() % 24; i < count; ++i)
      addOperation();
    return finish();
  }

private:
  struct Value {
    std::string name;
    int size;
  };
  struct Stage {
    std::vector<int> arguments;
    std::vector<Value> values;
    std::string body;
  };

  int pickSize() { return (const int[]){16, 32, 40, 128}[random() % 4]; }
  static std::string type(int size) { return "tensor<" + std::to_string(size) + "xf32>"; }
  std::string newName() { return "%v" + std::to_string(next++); }

  Value pickValue(Stage &stage) {
    if (stage.values.empty()) {
      // A constant as first value.
      Value value{newName(), pickSize()};
      stage.body += "  " + value.name + " = loom.constant dense<1.0> : " + type(value.size) + "\n";
      stage.values.push_back(value);
    }
    // Late values are likelier: chains rather than stars.
    size_t count = stage.values.size(), back = std::min<size_t>(random() % count, random() % count);
    return stage.values[count - 1 - back];
  }

  void addOperation() {
    Stage &stage = stages[random() % stages.size()];
    switch (random() % 8) {
    case 0:
    case 1:
      return addCall(stage, "exp", {pickValue(stage)});
    case 2:
      return addCall(stage, "mix", {pickValue(stage)});
    case 3: {
      Value first = pickValue(stage), second = pickValue(stage);
      return addCall(stage, "add", {first, first.size == second.size ? second : first});
    }
    case 4:
      return addReduce(stage);
    case 5: {
      Value value = pickValue(stage);
      std::string name = newName(), flat = type(value.size);
      std::string cut = "tensor<2x" + std::to_string(value.size / 2) + "xf32>";
      stage.body +=
          "  " + name + "c = loom.reshape " + value.name + " : (" + flat + ") -> " + cut + "\n";
      stage.body += "  " + name + " = loom.reshape " + name + "c : (" + cut + ") -> " + flat + "\n";
      stage.values.push_back({name, value.size});
      return;
    }
    default:
      if (stages.size() > 1)
        addTransfer();
    }
  }

  void addCall(Stage &stage, const std::string &kernel, const std::vector<Value> &inputs) {
    std::string name = newName(), names, types, result = type(inputs[0].size);
    for (const Value &input : inputs) {
      names += (names.empty() ? "" : ", ") + input.name;
      types += (types.empty() ? "" : ", ") + type(input.size);
    }
    stage.body += "  " + name + " = plan.call @" + kernel + std::to_string(inputs[0].size) + "(" +
                  names + ") : (" + types + ") -> " + result + "\n";
    stage.values.push_back({name, inputs[0].size});
  }

  void addStart(Stage &stage, const std::string &op, const std::string &result, int size) {
    std::string name = newName(), t = type(size);
    stage.body += "  " + name + "f = dist.start {\n    " + (result.empty() ? "" : "%r = ") + op +
                  "\n    dist.yield" + (result.empty() ? "" : " %r : " + t) +
                  "\n  } : !dist.future<" + (result.empty() ? "" : t) + ">\n";
    stage.body += "  " + (result.empty() ? "" : result + " = ") + "dist.done " + name +
                  "f : !dist.future<" + (result.empty() ? "" : t) + ">" +
                  (result.empty() ? "" : " -> " + t) + "\n";
    if (!result.empty())
      stage.values.push_back({result, size});
  }

  void addReduce(Stage &stage) {
    Value value = pickValue(stage);
    std::string axes = (const char *[]){R"(["a"])", R"(["b"])", R"(["a", "b"])"}[random() % 3];
    addStart(stage,
             "dist.all_reduce " + value.name + " over " + axes + " sum : " + type(value.size),
             newName(), value.size);
  }

  void addTransfer() {
    unsigned from = random() % stages.size(), to = random() % (stages.size() - 1);
    to += to >= from;
    Value value = pickValue(stages[from]);
    std::string channel = " channel " + std::to_string(numChannels++) + " : " + type(value.size);
    addStart(stages[from], "dist.send " + value.name + " to " + std::to_string(to) + channel, "",
             value.size);
    addStart(stages[to], "dist.recv from " + std::to_string(from) + channel, newName(), value.size);
  }

  std::string finish() {
    std::string text = "module {\ndist.mesh @mesh <[\"a\" = 2, \"b\" = 2, \"micro\" = " +
                       std::to_string(microbatches) + "]>\n";
    std::string first = "#plan.in_place<output = 0, input = 0>",
                second = "#plan.in_place<output = 0, input = 1>";
    for (int size : {16, 32, 40, 128}) {
      auto kernel = [&](std::string name, std::string inPlace, std::string arguments,
                        std::string op) {
        text += "plan.kernel @" + name + std::to_string(size) + " " + inPlace + " {\n^bb0(" +
                arguments + "):\n  %0 = " + op + " : " + type(size) +
                "\n  loom.yield %0 : " + type(size) + "\n}\n";
      };
      kernel("exp", "in_place = [" + first + "]", "%x: " + type(size), "loom.exp %x");
      kernel("mix", "", "%x: " + type(size), "loom.negate %x");
      kernel("add", "in_place = [" + first + ", " + second + "]",
             "%x: " + type(size) + ", %y: " + type(size), "loom.add %x, %y");
    }
    for (size_t i = 0; i < stages.size(); ++i) {
      Stage &stage = stages[i];
      std::string arguments, results, returned, returnedTypes;
      std::string sharding = R"(dist.sharding = #dist.sharding<@mesh, [{"micro"} ]>})";
      for (size_t j = 0; j < stage.arguments.size(); ++j)
        arguments += (j ? ", " : "") + ("%arg" + std::to_string(j)) + ": " +
                     type(stage.arguments[j]) + " {loom.name = \"x" + std::to_string(j) + "\", " +
                     sharding;
      for (int j = 0, count = stage.values.empty() ? 0 : random() % 4; j < count; ++j) {
        Value value = pickValue(stage);
        results += (j ? ", " : "") + type(value.size) + " {loom.name = \"y" + std::to_string(j) +
                   "\", " + sharding;
        returned += (j ? ", " : "") + value.name;
        returnedTypes += (j ? ", " : "") + type(value.size);
      }
      text +=
          "func.func @s" + std::to_string(i) + "(" + arguments + ") -> (" + results +
          ") attributes {loom.entry = \"main\", loom.dims = {}, dist.stage = " + std::to_string(i) +
          " : i64, dist.microbatches = " + std::to_string(microbatches) + " : i64} {\n" +
          stage.body + "  return" +
          (returned.empty() ? "" : " " + returned + " : " + returnedTypes) + "\n}\n";
    }
    return text + "}\n";
  }

  std::mt19937 &random;
  std::vector<Stage> stages;
  int microbatches = 1, next = 0, numChannels = 0;
};

class ProgramProperty : public ::testing::Test {
protected:
  /// A pipeline, scheduled and allocated; null if a pass failed.
  OwningOpRef<ModuleOp> makePrograms(std::mt19937 &random) {
    text = PipelineWriter(random).write();
    OwningOpRef<ModuleOp> module = context.parse(text);
    if (!module)
      return module;
    PassManager pm(context.get());
    ScheduleOptions options;
    options.overlap = random() % 4 != 0;
    addSchedulePasses(pm, options);
    addAllocatePasses(pm);
    if (failed(pm.run(*module)))
      return {};
    return module;
  }

  bool verifies(ModuleOp module) {
    PassManager pm(context.get());
    pm.addPass(createVerifyScheduled());
    pm.addPass(createVerifyAllocated());
    bool passed = succeeded(pm.run(module));
    context.takeError();
    return passed;
  }

  static std::string simulate(ModuleOp module, std::mt19937 &random, int rounds) {
    SmallVector<plan::ProgramOp> programs(module.getOps<plan::ProgramOp>());
    for (int round = 0; round < rounds; ++round)
      if (std::string error = ProgramSimulator(random).run(programs); !error.empty())
        return error;
    return "";
  }

  /// Damages programs with `damage` and returns how many were refused; the others must run
  /// correctly.
  template <typename Fn> int countRefused(int seeds, Fn damage) {
    int refused = 0;
    for (int seed = 0; seed < seeds; ++seed) {
      std::mt19937 random(seed);
      OwningOpRef<ModuleOp> module = makePrograms(random);
      if (!module || !damage(*module, random))
        continue;
      if (!verifies(*module)) {
        ++refused;
        continue;
      }
      std::string error = simulate(*module, random, 20);
      EXPECT_EQ(error, "") << "seed " << seed << "\n" << text << "\n" << print(*module);
    }
    return refused;
  }

  static std::string print(ModuleOp module) {
    std::string printed;
    llvm::raw_string_ostream stream(printed);
    module->print(stream);
    return printed;
  }

  template <typename Op> static Op pick(ModuleOp module, std::mt19937 &random) {
    SmallVector<Op> ops;
    module.walk([&](Op op) { ops.push_back(op); });
    return ops.empty() ? Op() : ops[random() % ops.size()];
  }

  Context context;
  std::string text;
};

} // namespace

TEST_F(ProgramProperty, RunsRightAtAnySpeed) {
  for (int seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    OwningOpRef<ModuleOp> module = makePrograms(random);
    ASSERT_TRUE(module) << "seed " << seed << ": " << context.takeError() << "\n" << text;
    std::string error = simulate(*module, random, 10);
    ASSERT_EQ(error, "") << "seed " << seed << "\n" << text << "\n" << print(*module);
  }
}

TEST_F(ProgramProperty, AWaitLessIsRefusedOrNotNeeded) {
  int refused = countRefused(300, [](ModuleOp module, std::mt19937 &random) {
    auto wait = pick<plan::WaitOp>(module, random);
    if (wait)
      wait.erase();
    return wait != nullptr;
  });
  EXPECT_GT(refused, 50);
}

TEST_F(ProgramProperty, MovedBuffersAreRefusedOrFree) {
  int refused = countRefused(300, [](ModuleOp module, std::mt19937 &random) {
    auto program = pick<plan::ProgramOp>(module, random);
    SmallVector<plan::BufferOp> placed;
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>())
      if (buffer.getOffset())
        placed.push_back(buffer);
    if (placed.size() < 2)
      return false;
    placed[random() % placed.size()].setOffset(*placed[random() % placed.size()].getOffset());
    return true;
  });
  EXPECT_GT(refused, 50);
}

TEST_F(ProgramProperty, StepsInAnotherOrderAreRefusedOrRight) {
  int refused = countRefused(400, [](ModuleOp module, std::mt19937 &random) {
    auto block = pick<plan::BlockOp>(module, random);
    SmallVector<Operation *> steps;
    for (Operation &op : block.getBody().front())
      steps.push_back(&op);
    if (steps.size() < 2)
      return false;
    steps[random() % steps.size()]->moveBefore(steps[random() % steps.size()]);
    return true;
  });
  EXPECT_GT(refused, 50);
}
