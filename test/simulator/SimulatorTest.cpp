//===- SimulatorTest.cpp - programs in the simulator ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/Simulator.h"

#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Sharding.h"
#include "dialects/plan/Work.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace gridloom;

namespace {

constexpr const char *kKernel = R"(
  plan.kernel @negate {
  ^bb0(%a: tensor<16xf32>):
    %0 = loom.negate %a : tensor<16xf32>
    loom.yield %0 : tensor<16xf32>
  }
)";

/// "%a to %b on the compute stream"
std::string launch(const char *from, const char *to) {
  std::string type = "!plan.buffer<tensor<16xf32>>";
  return std::string("plan.launch @negate ins(") + from + " : " + type + ") outs(" + to + " : " +
         type + ") on compute\n";
}

class SimulatorTest : public testing::Test {
protected:
  SimulatorTest() {
    context
        .loadDialect<func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
  }

  std::vector<sim::ProgramRun> simulate(const std::string &text,
                                        const sim::MeasuredCosts *measured = nullptr) {
    module = parseSourceString<ModuleOp>(kKernel + text, &context);
    if (!module)
      return {};
    FailureOr<std::vector<sim::ProgramRun>> runs = sim::simulate(*module, measured);
    EXPECT_TRUE(succeeded(runs));
    return succeeded(runs) ? *runs : std::vector<sim::ProgramRun>();
  }

  /// The time of one launch of the kernel.
  double getLaunchSeconds() {
    double seconds = 0;
    SymbolTableCollection symbols;
    module->walk([&](plan::LaunchOp op) {
      seconds = cluster::getComputeSeconds(*dist::getMachine(*module), plan::getWork(op, symbols));
    });
    return seconds;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

constexpr const char *kBuffers = R"(
    %x = plan.buffer input "x" {bytes = 64 : i64} : <tensor<16xf32>>
    %a = plan.buffer arena {offset = 0 : i64, bytes = 64 : i64} : <tensor<16xf32>>
    %b = plan.buffer arena {offset = 64 : i64, bytes = 64 : i64} : <tensor<16xf32>>
    %c = plan.buffer arena {offset = 0 : i64, bytes = 64 : i64} : <tensor<16xf32>>
    %y = plan.buffer output "y" {bytes = 64 : i64} : <tensor<16xf32>>
)";

std::string program(const std::string &steps, const std::string &attributes = "") {
  return std::string("plan.program @main {\n") + kBuffers + steps +
         "} {entry = \"main\", dims = {batch = 8 : i64}, stage = 0 : i64, arena_bytes = 128 : i64" +
         attributes + "}\n";
}

std::string block(const std::string &steps) { return "plan.block {\n" + steps + "}\n"; }

TEST_F(SimulatorTest, EveryKernelIsLaunched) {
  auto runs = simulate(program(
      block(launch("%x", "%a") + launch("%a", "%b") + launch("%b", "%c") + launch("%c", "%y"))));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].entry, "main");
  EXPECT_EQ(runs[0].dims, "batch=8");
  double each = getLaunchSeconds();
  EXPECT_GE(each, dist::getMachine(*module)->kinds[0].launchSeconds);
  EXPECT_DOUBLE_EQ(runs[0].seconds, 4 * each);
  ASSERT_EQ(runs[0].stages.size(), 1u);
  const sim::StageRun &stage = runs[0].stages[0];
  ASSERT_EQ(stage.timed.size(), 4u);
  EXPECT_EQ(stage.steps[0].name, "negate");
  EXPECT_EQ(stage.steps[0].stream, "compute");
  EXPECT_NEAR(runs[0].stats.compute, 4e3 * each, 1e-5);
}

TEST_F(SimulatorTest, KernelsReadOnlyTheSlicesTheyUse) {
  auto runs = simulate(R"(
  plan.kernel @cut {
  ^bb0(%a: tensor<16xf32>):
    %0 = loom.slice %a [4] to [8] by [1] : (tensor<16xf32>) -> tensor<4xf32>
    %1 = loom.negate %0 : tensor<4xf32>
    loom.yield %1 : tensor<4xf32>
  }
  plan.program @main {
    %x = plan.buffer input "x" {bytes = 64 : i64} : <tensor<16xf32>>
    %y = plan.buffer output "y" {bytes = 16 : i64} : <tensor<4xf32>>
    plan.block {
      plan.launch @cut ins(%x : !plan.buffer<tensor<16xf32>>) outs(%y : !plan.buffer<tensor<4xf32>>) on compute
    }
  } {entry = "main", dims = {batch = 8 : i64}, stage = 0 : i64, arena_bytes = 0 : i64}
)");
  ASSERT_EQ(runs.size(), 1u);
  SymbolTableCollection symbols;
  module->walk([&](plan::LaunchOp op) {
    cluster::Work work = plan::getWork(op, symbols);
    EXPECT_EQ(work.readBytes, 16);
    EXPECT_EQ(work.writtenBytes, 16);
  });
}

TEST_F(SimulatorTest, MemoryIsWhatIsLive) {
  auto runs = simulate(program(
      block(launch("%x", "%a") + launch("%a", "%b") + launch("%b", "%c") + launch("%c", "%y"))));
  ASSERT_EQ(runs.size(), 1u);
  const sim::MemoryCurve &memory = runs[0].stages[0].memory;
  EXPECT_EQ(memory.kept, 128u); // input and output
  EXPECT_EQ(memory.arenaPeak, 128u);
  EXPECT_EQ(memory.getPeak(), memory.getAllocated());
  std::vector<uint64_t> bytes;
  for (auto [seconds, live] : memory.points)
    bytes.push_back(live);
  // Live: a; a and b; b and c; c; nothing.
  EXPECT_THAT(bytes, testing::ElementsAre(192, 256, 256, 192, 128));
}

TEST_F(SimulatorTest, LoopsRunAsOftenAsTheyCan) {
  std::string text = R"(
    %more = plan.buffer arena {offset = 64 : i64, bytes = 1 : i64} : <tensor<i1>>
  )" + block(launch("%x", "%a")) +
                     "plan.while %more : <tensor<i1>> {\n" +
                     block(launch("%a", "%y") + launch("%a", "%y")) + "}";
  for (auto [attribute, trips] : {std::pair("", 1),
                                  {" {plan.trips = 10 : i64}", 10},
                                  {" {plan.trips = 0 : i64}", 0},
                                  {" {plan.trips = 10000000 : i64}", 10000000}}) {
    auto runs = simulate(program(text + attribute + "\n" + block(launch("%x", "%y"))));
    ASSERT_EQ(runs.size(), 1u);
    double expected = (2 + 2.0 * trips) * getLaunchSeconds();
    EXPECT_NEAR(runs[0].seconds, expected, 1e-9 * expected);
    EXPECT_LT(runs[0].stages[0].timed.size(), 1000000u);
  }
}

TEST_F(SimulatorTest, OfABranchTheDearerBodyRuns) {
  for (bool isSwapped : {false, true}) {
    std::string cheap = block(launch("%x", "%y")),
                dear = block(launch("%x", "%a") + launch("%a", "%y"));
    auto runs = simulate(program(R"(
      %take = plan.buffer arena {offset = 64 : i64, bytes = 1 : i64} : <tensor<i1>>
      plan.if %take : <tensor<i1>> then {
    )" + (isSwapped ? dear : cheap) +
                                 "} else {\n" + (isSwapped ? cheap : dear) + "}\n"));
    ASSERT_EQ(runs.size(), 1u);
    EXPECT_DOUBLE_EQ(runs[0].seconds, 2 * getLaunchSeconds());
  }
}

/// One stage of a two-stage pipeline with micro-batches.
std::string makeStage(int stage, int64_t micro, bool sends) {
  std::string direction = sends ? "send" : "recv", other = std::to_string(1 - stage);
  std::string group = "plan.group " + direction + " over [] sequence 0 " +
                      (sends ? "ins(%a : !plan.buffer<tensor<16xf32>>) outs()"
                             : "ins() outs(%a : !plan.buffer<tensor<16xf32>>)") +
                      " on " + direction + " stage " + other + " {stage = " + other +
                      " : i64, channel = 0 : i64}\n";
  std::string record = "plan.record 0 on ", wait = "plan.wait 0 on ";
  std::string steps =
      sends
          ? launch("%x", "%a") + record + "compute\n" + wait + "send stage " + other + "\n" + group
          : group + record + "recv stage " + other + "\n" + wait + "compute\n" + launch("%a", "%y");
  std::string number = std::to_string(stage);
  return "plan.program @main_stage" + number + R"( {
    %x = plan.buffer input "x" {bytes = 64 : i64, slots = )" +
         std::to_string(micro) + R"( : i64} : <tensor<16xf32>>
    %a = plan.buffer registered {offset = 0 : i64, bytes = 64 : i64, slots = 2 : i64} : <tensor<16xf32>>
    %y = plan.buffer output "y" {bytes = 64 : i64, slots = )" +
         std::to_string(micro) + R"( : i64} : <tensor<16xf32>>
    plan.repeat )" +
         std::to_string(micro) + " {\n" + block(steps) +
         "}\n} {entry = \"main\", dims = {}, stage = " + number +
         " : i64, registered_bytes = 128 : i64}\n";
}

TEST_F(SimulatorTest, MicrobatchesFillThePipeline) {
  for (int64_t micro : {2, 8}) {
    auto runs =
        simulate(makeStage(0, micro, /*sends=*/true) + makeStage(1, micro, /*sends=*/false));
    ASSERT_EQ(runs.size(), 1u);
    ASSERT_EQ(runs[0].stages.size(), 2u);
    double forward = getLaunchSeconds(), m = static_cast<double>(micro);
    // Transfers take no time without a pipeline axis.
    EXPECT_DOUBLE_EQ(runs[0].seconds, (m + 1) * forward);
    EXPECT_NEAR(runs[0].stats.bubble, 1 / (m + 1), 1e-3);
    const sim::MemoryCurve &memory = runs[0].stages[1].memory;
    EXPECT_EQ(memory.registeredPeak, 128u); // both slots, always
    EXPECT_EQ(memory.kept, static_cast<uint64_t>(128 * micro));
    EXPECT_EQ(runs[0].stages[0].timed.back().iteration, micro - 1);
  }
}

TEST_F(SimulatorTest, OfVeryManyMicrobatchesTheLastGoOnAsTheFirst) {
  constexpr int64_t micro = 3000000;
  auto runs = simulate(makeStage(0, micro, /*sends=*/true) + makeStage(1, micro, /*sends=*/false));
  ASSERT_EQ(runs.size(), 1u);
  const sim::ProgramRun &run = runs[0];
  double forward = getLaunchSeconds(), m = static_cast<double>(micro);
  EXPECT_NEAR(run.seconds, (m + 1) * forward, 1e-9 * m * forward);
  EXPECT_NEAR(run.stats.bubble, 1 / (m + 1), 1e-6);
  EXPECT_NEAR(run.stats.compute, 1e3 * m * forward, 1e-3 * m * forward);
  ASSERT_EQ(run.partial.size(), 1u);
  EXPECT_EQ(run.partial[0].what, "micro-batches");
  EXPECT_EQ(run.partial[0].count, micro);
  size_t shown = 0;
  for (const sim::StageRun &stage : run.stages) {
    EXPECT_EQ(stage.memory.registeredPeak, 128u);
    EXPECT_EQ(stage.memory.kept, static_cast<uint64_t>(128 * micro));
    for (const sim::SimulatedStep &step : stage.steps)
      EXPECT_EQ(step.times, micro);
    shown += stage.timed.size();
  }
  EXPECT_GT(run.partial[0].shown, 1000);
  EXPECT_LE(shown, 1u << 17);
}

TEST_F(SimulatorTest, LoopsInMicrobatchesAreBounded) {
  constexpr int64_t micro = 1000, trips = 1000000;
  std::string text = R"(
    %more = plan.buffer arena {offset = 64 : i64, bytes = 1 : i64} : <tensor<i1>>
    plan.repeat )" + std::to_string(micro) +
                     " {\nplan.while %more : <tensor<i1>> {\n" + block(launch("%a", "%y")) +
                     "} {plan.trips = " + std::to_string(trips) + " : i64}\n}\n";
  auto runs = simulate(program(text));
  ASSERT_EQ(runs.size(), 1u);
  double expected = static_cast<double>(micro * trips) * getLaunchSeconds();
  EXPECT_NEAR(runs[0].seconds, expected, 1e-8 * expected);
  // Sums are of all iterations, too.
  EXPECT_NEAR(runs[0].stats.compute, 1e3 * expected, 1e-3 * expected);
  ASSERT_EQ(runs[0].stages[0].steps.size(), 1u);
  EXPECT_EQ(runs[0].stages[0].steps[0].times, micro * trips);
  EXPECT_NEAR(runs[0].stages[0].steps[0].seconds, expected, 1e-6 * expected);
  EXPECT_LT(runs[0].stages[0].timed.size(), 1u << 19);
  ASSERT_EQ(runs[0].partial.size(), 2u);
  EXPECT_EQ(runs[0].partial[0].what, "iterations of a loop");
  EXPECT_EQ(runs[0].partial[0].count, trips);
  EXPECT_EQ(runs[0].partial[1].count, micro);
}

TEST_F(SimulatorTest, StagesThatWaitForEachOtherAreAnError) {
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  module = parseSourceString<ModuleOp>(kKernel + makeStage(0, 2, true) + makeStage(1, 2, true),
                                       &context);
  ASSERT_TRUE(module);
  EXPECT_TRUE(failed(sim::simulate(*module)));
  EXPECT_THAT(message, testing::HasSubstr("wait for each other forever: stage 0 sends to stage 1"));
}

/// A trace in which a step called negate takes so many microseconds.
static sim::MeasuredCosts measureNegate(const std::string &duration) {
  std::string error;
  std::optional<sim::MeasuredCosts> costs = sim::MeasuredCosts::parse(
      R"({"traceEvents": [{"ph": "X", "name": "negate", "cat": "compute", "dur": )" + duration +
          "}]}",
      "t.json", error);
  EXPECT_TRUE(costs) << error;
  return costs.value_or(sim::MeasuredCosts());
}

TEST_F(SimulatorTest, MeasuredTimesTakeThePlaceOfEstimates) {
  sim::MeasuredCosts costs = measureNegate("250000");
  auto runs = simulate(program(block(launch("%x", "%a") + launch("%a", "%y"))), &costs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_DOUBLE_EQ(runs[0].seconds, 0.5);
  EXPECT_EQ(sim::countMeasured(runs), std::pair(size_t(2), size_t(2)));
}

TEST_F(SimulatorTest, TimesThatNoIntegerHolds) {
  sim::MeasuredCosts costs = measureNegate("1e30");
  auto runs = simulate(program(block(launch("%x", "%a") + launch("%a", "%y"))), &costs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_DOUBLE_EQ(runs[0].seconds, 2e24);
  EXPECT_GT(runs[0].stats.compute, 1e12);
}

TEST_F(SimulatorTest, TracesAreTheRuntimes) {
  auto runs = simulate(makeStage(0, 2, true) + makeStage(1, 2, false));
  std::string text;
  for (const std::string &part : sim::formatTrace(runs))
    text += part;
  for (const char *part :
       {R"("name":"rank 0")", R"("name":"rank 1")", R"("name":"compute")", R"("name":"send.1")",
        R"("name":"recv.0")", R"("name":"negate")", R"("name":"send #0")", R"("name":"memory")"})
    EXPECT_THAT(text, testing::HasSubstr(part));
}

} // namespace
