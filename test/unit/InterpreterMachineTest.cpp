//===- InterpreterMachineTest.cpp - programs on virtual ranks -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

using namespace gridloom;
using namespace gridloom::testing;
using loom::ElementKind;
using loom::HostTensor;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class InterpreterMachine : public ::testing::Test {
protected:
  /// Runs a program and returns its only output, as doubles; empty on failure.
  std::vector<double> runOne(const std::string &text, const NamedTensors &inputs,
                             InterpreterOptions options = {}) {
    auto module = context.parse(text);
    if (!module)
      return {};
    llvm::FailureOr<NamedTensors> outputs = run(*module, inputs, std::move(options));
    return succeeded(outputs) ? outputs->begin()->second.toDoubles() : std::vector<double>();
  }

  /// A partitioned function of `in` (sharded as `from`) and `out` (as `to`) over data=2, model=2.
  static std::string program(const std::string &from, const std::string &inType,
                             const std::string &body, const std::string &to,
                             const std::string &outType, const std::string &outGlobal = "") {
    std::string global = outGlobal.empty() ? "" : ", loom.global_type = " + outGlobal;
    return R"(
      dist.mesh @mesh <["data" = 2, "model" = 2]>
      func.func @main_stage0(%x: )" +
           inType + R"( {loom.name = "in", dist.sharding = #dist.sharding<@mesh, )" + from + R"(>})
          -> ()" +
           outType + R"( {loom.name = "out", dist.sharding = #dist.sharding<@mesh, )" + to + ">" +
           global + R"(})
          attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 1 : i64} {
        )" +
           body + "\n return %y : " + outType + "\n}";
  }

  Context context;
};

NamedTensors in(HostTensor tensor) {
  NamedTensors inputs;
  inputs["in"] = std::move(tensor);
  return inputs;
}

TEST_F(InterpreterMachine, OneFunctionWithWeightsAndPrologue) {
  auto module = context.parse(R"(
    loom.weight @w : tensor<2x2xf32> from <"", offset = 0, bytes = 16>
    loom.derived @wt : tensor<2x2xf32> {
      %0 = loom.get_weight @w : tensor<2x2xf32>
      %1 = loom.transpose %0 [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
      loom.yield %1 : tensor<2x2xf32>
    }
    func.func @main(%x: tensor<1x2xf32> {loom.name = "in"}) -> (tensor<1x2xf32> {loom.name = "out"})
        attributes {loom.entry = "main", loom.dims = {}} {
      %w = loom.get_weight @wt : tensor<2x2xf32>
      %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32>
      return %y : tensor<1x2xf32>
    })");
  GeneratedWeights weights;
  auto w = weights.load(*module->getOps<loom::WeightOp>().begin())->toDoubles();
  auto outputs = run(*module, in(floats({1, 2}, {2, -1})));
  ASSERT_TRUE(succeeded(outputs)) << context.takeError();
  EXPECT_THAT((*outputs)["out"].toDoubles(), ElementsAre(static_cast<float>(2 * w[0] - w[1]),
                                                         static_cast<float>(2 * w[2] - w[3])));
  EXPECT_TRUE(failed(run(*module, {})));
  EXPECT_THAT(context.takeError(), HasSubstr("input 'in' has no value"));
  EXPECT_TRUE(failed(run(*module, in(floats({2, 1}, {2, -1})))));
  EXPECT_THAT(context.takeError(), HasSubstr("has shape [2, 1]"));
}

TEST_F(InterpreterMachine, RanksAreRowMajorOverTheMesh) {
  std::string body = R"(
    %0 = dist.axis_index ["data", "model"] : tensor<i64>
    %1 = dist.axis_index ["model", "data"] : tensor<i64>
    %2 = loom.reshape %0 : (tensor<i64>) -> tensor<1xi64>
    %3 = loom.reshape %1 : (tensor<i64>) -> tensor<1xi64>
    %y = loom.concatenate %2, %3 dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>)";
  EXPECT_THAT(runOne(program(R"([{"data", "model"}])", "tensor<1xi64>", body,
                             R"([{"data", "model"}])", "tensor<2xi64>"),
                     in(ints({4}, {0, 0, 0, 0}))),
              ElementsAre(0, 0, 1, 2, 2, 1, 3, 3))
      << context.takeError();
}

TEST_F(InterpreterMachine, Collectives) {
  HostTensor x = ints({4}, {1, 2, 30, 40}), row = ints({2, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  std::string both = R"([{"data", "model"}])";
  auto apply = [&](const std::string &op, const std::string &to, const std::string &type) {
    auto result = runOne(program(both, "tensor<1xi64>", "%y = " + op, to, type), in(x));
    EXPECT_EQ(context.takeError(), "");
    return result;
  };
  EXPECT_THAT(apply(R"(dist.all_reduce %x over ["model"] sum : tensor<1xi64>)", R"([{"data"}])",
                    "tensor<1xi64>"),
              ElementsAre(3, 70));
  EXPECT_THAT(apply(R"(dist.all_reduce %x over ["data", "model"] max : tensor<1xi64>)", "[{}]",
                    "tensor<1xi64>"),
              ElementsAre(40));
  EXPECT_THAT(
      apply(R"(dist.all_gather %x over ["data"] dim = 0 : (tensor<1xi64>) -> tensor<2xi64>)",
            R"([{"model"}])", "tensor<2xi64>"),
      ElementsAre(1, 30, 2, 40));
  EXPECT_THAT(
      apply(
          R"(dist.all_gather %x over ["model", "data"] dim = 0 : (tensor<1xi64>) -> tensor<4xi64>)",
          "[{}]", "tensor<4xi64>"),
      ElementsAre(1, 30, 2, 40));
  EXPECT_THAT(
      apply(
          R"(dist.permute %x over ["data", "model"] [3, 0, 1, 2] : (tensor<1xi64>) -> tensor<1xi64>)",
          both, "tensor<1xi64>"),
      ElementsAre(40, 1, 2, 30));
  EXPECT_THAT(
      runOne(
          program(
              R"([{"model"}, {}])", "tensor<1x4xi64>",
              R"(%y = dist.all_to_all %x over ["model"] split = 1 concat = 0 : (tensor<1x4xi64>) -> tensor<2x2xi64>)",
              R"([{}, {"model"}])", "tensor<2x2xi64>"),
          in(row)),
      ElementsAre(1, 2, 3, 4, 10, 20, 30, 40));
  EXPECT_THAT(
      runOne(
          program(
              R"([{"model"}, {}])", "tensor<1x4xi64>",
              R"(%y = dist.reduce_scatter %x over ["model"] dim = 1 sum : (tensor<1x4xi64>) -> tensor<1x2xi64>)",
              R"([{}, {"model"}])", "tensor<1x2xi64>"),
          in(row)),
      ElementsAre(11, 22, 33, 44));
  EXPECT_THAT(
      runOne(
          program(
              "[{}, {}]", "tensor<2x4xi64>",
              R"(%y = dist.shard_slice %x over ["model", "data"] dim = 1 : (tensor<2x4xi64>) -> tensor<2x1xi64>)",
              R"([{}, {"data", "model"}])", "tensor<2x1xi64>"),
          in(row)),
      ElementsAre(1, 3, 2, 4, 10, 30, 20, 40));
}

TEST_F(InterpreterMachine, GroupsRunAsynchronously) {
  std::string body = R"(
    %f = dist.start {
      %0, %1 = dist.all_reduce %x, %x over ["model"] sum : tensor<1xi64>, tensor<1xi64>
      dist.yield %1 : tensor<1xi64>
    } : !dist.future<tensor<1xi64>>
    %g = dist.start {
      %0 = dist.all_reduce %x over ["data"] max : tensor<1xi64>
      dist.yield %0 : tensor<1xi64>
    } : !dist.future<tensor<1xi64>>
    %b = dist.done %g : !dist.future<tensor<1xi64>> -> tensor<1xi64>
    %a = dist.done %f : !dist.future<tensor<1xi64>> -> tensor<1xi64>
    %y = loom.add %a, %b : tensor<1xi64>)";
  EXPECT_THAT(runOne(program(R"([{"data", "model"}])", "tensor<1xi64>", body,
                             R"([{"data", "model"}])", "tensor<1xi64>"),
                     in(ints({4}, {1, 2, 30, 40}))),
              ElementsAre(33, 43, 100, 110))
      << context.takeError();
}

TEST_F(InterpreterMachine, ShardsThatDoNotDivideArePoisoned) {
  // Three rows over four ranks; the fourth rank has only padding.
  std::string both = R"([{"data", "model"}])";
  EXPECT_THAT(runOne(program(both, "tensor<1xf32>", "%y = loom.negate %x : tensor<1xf32>", both,
                             "tensor<1xf32>", "tensor<3xf32>"),
                     in(floats({3}, {1, 2, 3}))),
              ElementsAre(-1, -2, -3))
      << context.takeError();
  // A reduction that does not mask the padding gives another result.
  EXPECT_THAT(
      runOne(program(both, "tensor<1xf32>",
                     R"(%y = dist.all_reduce %x over ["data", "model"] sum : tensor<1xf32>)",
                     "[{}]", "tensor<1xf32>"),
             in(floats({3}, {1, 2, 3}))),
      ElementsAre(::testing::IsNan()));
  // Granules of two: the four ranks hold 2, 2, 2 and 0 of six elements.
  std::string granules = R"([{"data", "model"} * 2])";
  EXPECT_THAT(runOne(program(granules, "tensor<2xi64>", "%y = loom.negate %x : tensor<2xi64>",
                             granules, "tensor<2xi64>", "tensor<6xi64>"),
                     in(ints({6}, {1, 2, 3, 4, 5, 6}))),
              ElementsAre(-1, -2, -3, -4, -5, -6))
      << context.takeError();
}

TEST_F(InterpreterMachine, WeightsArePaddedWithZeros) {
  std::string weight = R"(loom.weight @w : tensor<3xf32> from <"", offset = 0, bytes = 12>)";
  std::string body = R"(
    %w = loom.get_weight @w {sharding = #dist.sharding<@mesh, [{"data", "model"}]>} : tensor<1xf32>
    %y = dist.all_gather %w over ["data", "model"] dim = 0 : (tensor<1xf32>) -> tensor<4xf32>)";
  std::vector<double> values =
      runOne(weight + program("[{}]", "tensor<1xf32>", body, "[{}]", "tensor<4xf32>"),
             in(floats({1}, {0})));
  ASSERT_EQ(values.size(), 4u) << context.takeError();
  EXPECT_THAT(values, ElementsAre(::testing::Ne(0), ::testing::Ne(0), ::testing::Ne(0), 0));
}

TEST_F(InterpreterMachine, ReplicasMustBeEqual) {
  EXPECT_THAT(runOne(program(R"([{"model"}])", "tensor<1xi64>",
                             "%y = loom.negate %x : tensor<1xi64>", "[{}]", "tensor<1xi64>"),
                     in(ints({2}, {5, 6}))),
              ElementsAre());
  EXPECT_THAT(context.takeError(),
              AllOf(HasSubstr("output 'out' differs between its replicas on rank 0"),
                    HasSubstr("element 0 is -5 and -6")));
}

/// Two stages of two devices each, and two micro-batches.
constexpr const char *kPipeline = R"(
  module attributes {dist.stage_axis = "stage"} {
  dist.mesh @mesh <["stage" = 2, "micro" = 2, "data" = 2]>
  func.func @main_stage0(%x: tensor<1xi64> {loom.name = "in", dist.sharding = #dist.sharding<@mesh, [{"micro", "data"}]>})
      attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64, dist.microbatches = 2 : i64} {
    %m = dist.axis_index ["micro"] : tensor<i64>
    %b = loom.broadcast %m dims = [] : (tensor<i64>) -> tensor<1xi64>
    dist.send %x to 1 channel SEND0 : tensor<1xi64> loc("first")
    dist.send %b to 1 channel SEND1 : tensor<1xi64> loc("second")
    return
  }
  func.func @main_stage1() -> (tensor<1xi64> {loom.name = "out", dist.sharding = #dist.sharding<@mesh, [{"micro", "data"}]>})
      attributes {loom.entry = "main", loom.dims = {}, dist.stage = 1 : i64, dist.microbatches = 2 : i64} {
    %x = dist.recv from 0 channel 0 : tensor<1xi64> loc("left")
    %b = dist.recv from 0 channel 1 : tensor<1xi64> loc("right")
    %0 = loom.multiply %x, %x : tensor<1xi64>
    %y = loom.add %0, %b : tensor<1xi64>
    return %y : tensor<1xi64>
  }
  })";

std::string pipeline(const std::string &first, const std::string &second) {
  std::string text = kPipeline;
  text.replace(text.find("SEND0"), 5, first);
  text.replace(text.find("SEND1"), 5, second);
  return text;
}

TEST_F(InterpreterMachine, PipelinesStreamMicrobatches) {
  EXPECT_THAT(runOne(pipeline("0", "1"), in(ints({4}, {1, 2, 3, 4}))), ElementsAre(1, 4, 10, 17))
      << context.takeError();
}

TEST_F(InterpreterMachine, TransfersInTheWrongOrderDeadlock) {
  EXPECT_THAT(runOne(pipeline("1", "0"), in(ints({4}, {1, 2, 3, 4}))), ElementsAre());
  EXPECT_THAT(context.takeError(),
              AllOf(HasSubstr("deadlocks: rank 0 waits at dist.send of 'first'"),
                    HasSubstr("rank 2 waits at dist.recv of 'left' in micro-batch 0")));
}

TEST_F(InterpreterMachine, StagesThatDisagreeOnACollectiveAreNamed) {
  std::string text = R"(
    dist.mesh @mesh <["pipe" = 2]>
    func.func @main_stage0(%x: tensor<2xf32> {loom.name = "in"})
        attributes {loom.entry = "main", loom.dims = {}, dist.stage = 0 : i64} {
      %0 = dist.all_reduce %x over ["pipe"] sum : tensor<2xf32> loc("gradient")
      return
    }
    func.func @main_stage1(%x: tensor<2xf32> {loom.name = "in"}) -> (tensor<2xf32> {loom.name = "out"})
        attributes {loom.entry = "main", loom.dims = {}, dist.stage = 1 : i64} {
      %0 = dist.all_reduce %x over ["pipe"] KIND : tensor<2xf32> loc("norm")
      return %0 : tensor<2xf32>
    })";
  std::string same = text, other = text;
  same.replace(same.find("KIND"), 4, "sum");
  other.replace(other.find("KIND"), 4, "max");
  EXPECT_THAT(runOne(same, in(floats({2}, {1, 2}))), ElementsAre(2, 4)) << context.takeError();
  EXPECT_THAT(runOne(other, in(floats({2}, {1, 2}))), ElementsAre());
  EXPECT_THAT(context.takeError(),
              AllOf(HasSubstr("of rank 1 meets dist.all_reduce of 'gradient' of rank 0"),
                    HasSubstr("disagree on their order of communication")));
}

TEST_F(InterpreterMachine, KernelsAndMatmulsComputeWhatTheyFuse) {
  // A transposed right side, scaled, with a bias and a weight with padded rows.
  std::string text = R"(
    loom.weight @w : tensor<3x2xf32> from <"", offset = 0, bytes = 24>
    plan.kernel @k {
    ^bb0(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>):
      %0 = loom.subtract %a, %b : tensor<2x2xf32>
      loom.yield %0 : tensor<2x2xf32>
    }
    func.func @main(%x: tensor<2x3xf32> {loom.name = "in"}) -> (tensor<2x2xf32> {loom.name = "out"})
        attributes {loom.entry = "main", loom.dims = {}} {
      %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 5>} : tensor<3x2xf32>
      %bias = loom.constant dense<[0.25, -0.5]> : tensor<2xf32>
      %p = plan.matmul %x, %w, %bias <sizes = [2, 2, 3], lhs = [3, 1], rhs = [7, 1], out = [2, 1] alpha = 2.0 : f64 epilogue = <bias = true>>
          : (tensor<2x3xf32>, tensor<3x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
      %w2 = loom.get_weight @w : tensor<3x2xf32>
      %two = loom.constant dense<2.0> : tensor<2x2xf32>
      %0 = loom.dot_general %x, %w2 batch = [] x [] contract = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
      %1 = loom.multiply %0, %two : tensor<2x2xf32>
      %2 = loom.broadcast %bias dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
      %3 = loom.add %1, %2 : tensor<2x2xf32>
      %y = plan.call @k(%p, %3) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %y : tensor<2x2xf32>
    })";
  auto module = context.parse(text);
  ASSERT_TRUE(module);
  InterpreterOptions exact;
  exact.exact = true;
  auto outputs = run(*module, in(floats({2, 3}, {1, 2, 3, -1, 0.5, 2})), exact);
  ASSERT_TRUE(succeeded(outputs)) << context.takeError();
  EXPECT_THAT((*outputs)["out"].getValues<int64_t>(), ElementsAre(0, 0, 0, 0));
}

/// The same tiny two-layer network unsplit, and split over data and model with a partial sum.
TEST_F(InterpreterMachine, SplitEqualsUnsplitBitByBitInExactMode) {
  std::string weights = R"(
    loom.weight @w1 : tensor<6x8xf32> from <"", offset = 0, bytes = 192>
    loom.weight @w2 : tensor<8x5xf32> from <"", offset = 0, bytes = 160>)";
  std::string whole = weights + R"(
    func.func @main(%x: tensor<4x6xf32> {loom.name = "in"}) -> (tensor<4x5xf32> {loom.name = "out"})
        attributes {loom.entry = "main", loom.dims = {}} {
      %w1 = loom.get_weight @w1 : tensor<6x8xf32>
      %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
      %g = loom.gelu erf %h : tensor<4x8xf32>
      %w2 = loom.get_weight @w2 : tensor<8x5xf32>
      %y = loom.dot_general %g, %w2 batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
      %s = loom.softmax %y dim = 1 : tensor<4x5xf32>
      return %s : tensor<4x5xf32>
    })";
  std::string split = weights + program(R"([{"data"}, {}])", "tensor<2x6xf32>", R"(
      %w1 = loom.get_weight @w1 {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<6x4xf32>
      %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<2x6xf32>, tensor<6x4xf32>) -> tensor<2x4xf32>
      %g = loom.gelu erf %h : tensor<2x4xf32>
      %w2 = loom.get_weight @w2 {sharding = #dist.sharding<@mesh, [{"model"}, {}]>} : tensor<4x5xf32>
      %p = loom.dot_general %g, %w2 batch = [] x [] contract = [1] x [0] : (tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
      %r = dist.all_reduce %p over ["model"] sum : tensor<2x5xf32>
      %y = loom.softmax %r dim = 1 : tensor<2x5xf32>)",
                                        R"([{"data"}, {}])", "tensor<2x5xf32>");
  auto first = context.parse(whole), second = context.parse(split);
  ASSERT_TRUE(first && second);
  NamedTensors inputs = in(HostTensor::fromDoubles(ElementKind::F32, {4, 6}, makeUniform(1, 24)));
  for (bool exact : {true, false}) {
    InterpreterOptions options;
    options.exact = exact;
    auto expected = run(*first, inputs, options), actual = run(*second, inputs, options);
    ASSERT_TRUE(succeeded(expected) && succeeded(actual)) << context.takeError();
    if (exact)
      EXPECT_TRUE((*expected)["out"].isBitwiseEqual((*actual)["out"]));
    else
      EXPECT_THAT(
          (*actual)["out"].toDoubles(),
          ::testing::Pointwise(::testing::DoubleNear(1e-6), (*expected)["out"].toDoubles()));
  }
}

} // namespace
