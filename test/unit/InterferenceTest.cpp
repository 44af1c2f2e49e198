//===- InterferenceTest.cpp - which buffers are live at once --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Live ranges rule out most pairs of buffers, but none that cannot share memory.
//
//===----------------------------------------------------------------------===//
#include "passes/allocate/Interference.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace gridloom;

namespace {

constexpr const char *streams[] = {"compute", "send stage 1", "recv stage 1"};
constexpr const char *type = " : !plan.buffer<tensor<32xf32>>)";

/// Copies on several streams with occasional waits; with `repeats` a third of them in a repeat.
std::string makeProgram(std::mt19937 &random, bool repeats) {
  constexpr int buffers = 40, steps = 90;
  std::string text = "plan.program @main {\n"
                     "  %x = plan.buffer input \"x\" {bytes = 128 : i64} : "
                     "!plan.buffer<tensor<32xf32>>\n";
  for (int i = 0; i < buffers; ++i)
    text += "  %b" + std::to_string(i) +
            " = plan.buffer arena {bytes = 128 : i64} : !plan.buffer<tensor<32xf32>>\n";
  text += "  plan.block {\n";
  int events = 0;
  for (int i = 0; i < steps; ++i) {
    if (repeats && i == steps / 3)
      text += "  }\n  plan.repeat 5 {\n  plan.block {\n";
    if (repeats && i == 2 * steps / 3)
      text += "  }\n  }\n  plan.block {\n";
    std::string stream = streams[random() % 3], other = streams[random() % 3];
    // One of the latest buffers, so that most buffers have short lives.
    auto pick = [&] {
      return "%b" +
             std::to_string(std::min<unsigned>(i * buffers / steps + random() % 4, buffers - 1));
    };
    std::string from = random() % 8 == 0 ? "%x" : pick(), to = pick();
    text += "    plan.copy ins(" + from + type + " outs(" + to + type + " on " + stream + "\n";
    if (random() % 2 == 0 && stream != other) {
      std::string event = std::to_string(events++);
      text += "    plan.record " + event + " on " + stream + "\n    plan.wait " + event + " on " +
              other + "\n";
    }
  }
  return text + "  }\n} {entry = \"main\", dims = {}, stage = 0 : i64}\n";
}

TEST(Interference, StretchesLeaveOutNoPairThatConflicts) {
  mlir::MLIRContext context;
  context.loadDialect<loom::LoomDialect, dist::DistDialect, plan::PlanDialect,
                      mlir::func::FuncDialect>();
  std::mt19937 random(1);
  size_t left = 0, all = 0, conflicts = 0;
  for (int round = 0; round < 60; ++round) {
    bool repeats = round % 3 == 0;
    std::string text = makeProgram(random, repeats);
    mlir::ParserConfig config(&context, /*verifyAfterParse=*/false);
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, config);
    ASSERT_TRUE(module) << text;
    plan::ProgramOp program = *module->getOps<plan::ProgramOp>().begin();
    ProgramTimeline timeline(program, kInterferenceIterations);
    UseTimes times(program, timeline);
    std::vector<mlir::Value> buffers;
    std::vector<UseTimes::Stretch> stretches;
    for (auto buffer : program.getBody().front().getOps<plan::BufferOp>()) {
      buffers.push_back(buffer.getBuffer());
      stretches.push_back(times.get(buffer.getBuffer()));
    }
    std::set<std::pair<unsigned, unsigned>> overlapping;
    forEachOverlap(stretches, [&](unsigned i, unsigned j) {
      EXPECT_LT(i, j);
      EXPECT_TRUE(overlapping.insert({i, j}).second);
    });
    mlir::SymbolTableCollection symbols;
    for (unsigned i = 0; i < buffers.size(); ++i)
      for (unsigned j = i + 1; j < buffers.size(); ++j) {
        bool share = canShareMemory(timeline, buffers[i], buffers[j], /*inPlace=*/false, symbols);
        EXPECT_TRUE(share || overlapping.count({i, j})) << i << " and " << j << " of\n" << text;
        conflicts += !share;
      }
    if (repeats)
      continue; // buffers live across iterations overlap all others
    left += overlapping.size();
    all += buffers.size() * (buffers.size() - 1) / 2;
  }
  EXPECT_GT(conflicts, 0U);
  EXPECT_LT(left, all / 2);
}

} // namespace
