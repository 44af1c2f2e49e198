//===- CheckTest.cpp - the checker passes equal programs and fails others -===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "InterpreterTesting.h"

#include "compiler/interpreter/CheckInputs.h"
#include "compiler/interpreter/CheckOptions.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

namespace {

constexpr const char *kWeights = R"(
  loom.weight @up : tensor<6x8xf32> from <"", offset = 0, bytes = 192>
  loom.weight @down : tensor<8x4xf32> from <"", offset = 0, bytes = 128>)";

constexpr const char *kWhole = R"(
  func.func @main(%x: tensor<4x6xf32> {loom.name = "in"}) -> (tensor<4x4xf32> {loom.name = "out"})
      attributes {loom.entry = "main", loom.dims = {batch = 4 : i64}} {
    %w1 = loom.get_weight @up : tensor<6x8xf32> loc("up")
    %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32> loc("first")
    %g = loom.tanh %h : tensor<4x8xf32> loc("activation")
    %w2 = loom.get_weight @down : tensor<8x4xf32> loc("down")
    %y = loom.dot_general %g, %w2 batch = [] x [] contract = [1] x [0] : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32> loc("second")
    %s = loom.softmax %y dim = 1 : tensor<4x4xf32> loc("probabilities")
    return %s : tensor<4x4xf32>
  })";

/// Over data=2, model=2. The correct arguments are "sum" and `{"model"}, {}`.
std::string split(const std::string &reduction, const std::string &weight) {
  return std::string(kWeights) + R"(
  dist.mesh @mesh <["data" = 2, "model" = 2]>
  func.func @main_stage0(%x: tensor<2x6xf32> {loom.name = "in", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
      -> (tensor<2x4xf32> {loom.name = "out", dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>})
      attributes {loom.entry = "main", loom.dims = {batch = 4 : i64}, dist.stage = 0 : i64} {
    %w1 = loom.get_weight @up {sharding = #dist.sharding<@mesh, [{}, {"model"}]>} : tensor<6x4xf32> loc("up")
    %h = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0]
        {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {"model"}]>]} : (tensor<2x6xf32>, tensor<6x4xf32>) -> tensor<2x4xf32> loc("first")
    %g = loom.tanh %h {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {"model"}]>]} : tensor<2x4xf32> loc("activation")
    %w2 = loom.get_weight @down {sharding = #dist.sharding<@mesh, [)" +
         weight + R"(]>} : tensor<4x4xf32> loc("down")
    %p = loom.dot_general %g, %w2 batch = [] x [] contract = [1] x [0]
        {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}], unreduced = {"model" = sum}>]} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> loc("second")
    %y = dist.all_reduce %p over ["model"] )" +
         reduction +
         R"( {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]} : tensor<2x4xf32> loc("second")
    %s = loom.softmax %y dim = 1 {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {}]>]} : tensor<2x4xf32> loc("probabilities")
    return %s : tensor<2x4xf32>
  })";
}

class CheckTest : public ::testing::Test {
protected:
  CheckTest()
      : folder(std::filesystem::temp_directory_path() /
               ("gridloom-check-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder);
  }
  ~CheckTest() override { std::filesystem::remove_all(folder); }

  std::string write(const std::string &name, const std::string &text) {
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }

  /// Returns the exit code; `output` becomes what was printed.
  int check(const std::string &text) {
    options.paths = {write("whole.mlir", kWeights + std::string(kWhole)),
                     write("split.mlir", text)};
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    int code = runCheck(options);
    output = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
    return code;
  }

  std::filesystem::path folder;
  CheckOptions options;
  std::string output;
};

TEST_F(CheckTest, PassesAProgramThatIsRight) {
  options.exact = true;
  EXPECT_EQ(check(split("sum", R"({"model"}, {})")), 0);
  EXPECT_THAT(output,
              AllOf(HasSubstr("entry 'main' with batch=4"),
                    HasSubstr("split against whole: output 'out' f32[4, 4]: max abs"),
                    HasSubstr("split (exact) against whole: output 'out' exact[4, 4]: equal"),
                    HasSubstr("PASS: 2 outputs agree")));
}

TEST_F(CheckTest, FailsAWrongReductionAndNamesItsNode) {
  options.exact = options.bisect = true;
  EXPECT_EQ(check(split("max", R"({"model"}, {})")), 1);
  EXPECT_THAT(
      output,
      AllOf(HasSubstr("<-- DIFFERS"),
            HasSubstr("node 'second' (loom.dot_general, f32[4, 4]) is the first that differs"),
            HasSubstr("node 'second' (loom.dot_general, exact[4, 4]) is the first that differs"),
            HasSubstr("FAIL: 2 of 2 outputs differ")));
}

TEST_F(CheckTest, FailsReplicasThatDiffer) {
  options.bisect = true;
  // Without its all_reduce the output is a partial sum that differs between the ranks of "model".
  std::string text = split("sum", R"({"model"}, {})");
  size_t at = text.find(R"(over ["model"])");
  text.replace(at, 14, R"(over ["data"])");
  EXPECT_EQ(check(text), 1);
  EXPECT_THAT(output, AllOf(HasSubstr("output 'out' differs between its replicas on rank"),
                            HasSubstr("node 'second'"), HasSubstr("FAIL")));
}

TEST_F(CheckTest, FailsWhatCannotBeRead) {
  EXPECT_EQ(check("func.func @main( {"), 1);
  EXPECT_THAT(output, AllOf(HasSubstr("cannot read"), ::testing::Not(HasSubstr("PASS"))));
  options.paths = {(folder / "absent.plan").string()};
  EXPECT_EQ(runCheck(options), 1);
}

/// Adds its input to a state, in the specialisation `name` with the sizes `dims`.
std::string accumulate(const std::string &name, const std::string &dims) {
  return "func.func @" + name +
         R"((%x: tensor<4xf32> {loom.name = "in"}, %p: tensor<4xf32> {loom.name = "past", loom.state = "kept"})
      -> (tensor<4xf32> {loom.name = "out"}, tensor<4xf32> {loom.name = "present", loom.state = "kept"})
      attributes {loom.entry = "main", loom.dims = {n = )" +
         dims + R"( : i64}} {
    %a = loom.negate %x : tensor<4xf32> loc("first")
    %s = loom.add %p, %a : tensor<4xf32> loc("sum")
    %o = loom.tanh %s : tensor<4xf32> loc("last")
    return %o, %s : tensor<4xf32>, tensor<4xf32>
  })";
}

/// The same in two stages; stage `owner` holds the state.
std::string accumulateInStages(const std::string &name, const std::string &dims, int owner) {
  std::string whole = " dist.sharding = #dist.sharding<@mesh, [{}]>}";
  std::string attributes =
      "attributes {loom.entry = \"main\", dist.microbatches = 1 : i64, loom.dims = {n = " + dims +
      " : i64}, dist.stage = ";
  std::string in = "%x: tensor<4xf32> {loom.name = \"in\"," + whole,
              past = "%p: tensor<4xf32> {loom.name = \"past\", loom.state = \"kept\"," + whole,
              out = "tensor<4xf32> {loom.name = \"out\"," + whole,
              present = "tensor<4xf32> {loom.name = \"present\", loom.state = \"kept\"," + whole;
  std::string negate = "%a = loom.negate %x : tensor<4xf32> loc(\"first\")\n",
              add = "%s = loom.add %p, %a : tensor<4xf32> loc(\"sum\")\n",
              tanh = "%o = loom.tanh %s : tensor<4xf32> loc(\"last\")\n";
  if (owner == 0)
    return "func.func @" + name + "_stage0(" + in + ", " + past + ") -> (" + present + ") " +
           attributes + "0 : i64} {\n" + negate + add +
           "dist.send %s to 1 channel 0 : tensor<4xf32>\nreturn %s : tensor<4xf32>\n}\n" +
           "func.func @" + name + "_stage1() -> (" + out + ") " + attributes +
           "1 : i64} {\n%s = dist.recv from 0 channel 0 : tensor<4xf32>\n" + tanh +
           "return %o : tensor<4xf32>\n}\n";
  return "func.func @" + name + "_stage0(" + in + ") " + attributes + "0 : i64} {\n" + negate +
         "dist.send %a to 1 channel 0 : tensor<4xf32>\nreturn\n}\n" + "func.func @" + name +
         "_stage1(" + past + ") -> (" + out + ", " + present + ") " + attributes +
         "1 : i64} {\n%a = dist.recv from 0 channel 0 : tensor<4xf32>\n" + add + tanh +
         "return %o, %s : tensor<4xf32>, tensor<4xf32>\n}\n";
}

TEST_F(CheckTest, RunsSpecialisationsOverTheStatesTheyShare) {
  std::string whole = write("whole.mlir", accumulate("main", "4") + accumulate("main_n2", "2"));
  auto checkOwners = [&](int first, int second) {
    std::string stages =
        "module attributes {dist.stage_axis = \"pipe\"} { dist.mesh @mesh <[\"pipe\" = 2]>\n" +
        accumulateInStages("main", "4", first) + accumulateInStages("main_n2", "2", second) + "}";
    options.paths = {whole, write("stages.mlir", stages)};
    ::testing::internal::CaptureStdout();
    int code = runCheck(options);
    output = ::testing::internal::GetCapturedStdout();
    return code;
  };
  EXPECT_EQ(checkOwners(0, 0), 0);
  EXPECT_THAT(output, AllOf(HasSubstr("3 calls of one session"),
                            HasSubstr("call 3: stages against whole: output 'present'"),
                            HasSubstr("PASS: 10 outputs agree")));
  EXPECT_EQ(checkOwners(1, 1), 0) << output;
  // Each specialisation is correct alone, but the second keeps the state on another stage.
  EXPECT_EQ(checkOwners(0, 1), 1);
  EXPECT_THAT(output, AllOf(HasSubstr("call 1: stages against whole: output 'out' f32[4]: max abs"),
                            HasSubstr("<-- DIFFERS"), HasSubstr("FAIL: 4 of 10 outputs differ")));
}

TEST_F(CheckTest, StatesAreKeptInExactMode) {
  std::string whole = accumulate("main", "4") + accumulate("main_n2", "2");
  options.paths = {write("whole.mlir", whole), write("same.mlir", whole)};
  options.exact = true;
  ::testing::internal::CaptureStdout();
  int code = runCheck(options);
  output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output,
              HasSubstr("call 3: same (exact) against whole: output 'present' exact[4]: equal"));
}

TEST_F(CheckTest, SettingsAreThePlans) {
  Context context;
  auto module = context.parse(R"(
    module attributes {loom.training = {learning_rate = 3.0e-7 : f64}} {
      func.func @train_step(%rate: tensor<f32> {loom.name = "learning_rate", loom.role = "setting"},
                            %other: tensor<f32> {loom.name = "other", loom.role = "setting"})
          attributes {loom.entry = "train_step", loom.dims = {}} { return }
    })");
  ASSERT_TRUE(module) << context.takeError();
  auto inputs = makeInputs(*module->getOps<mlir::func::FuncOp>().begin(), {}, 3);
  ASSERT_TRUE(succeeded(inputs)) << context.takeError();
  EXPECT_EQ((*inputs)["learning_rate"].toDoubles().front(), 3.0e-7f);
  EXPECT_THAT((*inputs)["other"].toDoubles(), Each(AllOf(Ge(-1), Le(1))));
}

TEST_F(CheckTest, InputsAreMadeAsAsked) {
  Context context;
  auto module = context.parse(R"(
    loom.weight @table : tensor<7x2xf32> from <"", offset = 0, bytes = 56>
    func.func @main(%ids: tensor<50xi64> {loom.name = "ids"}, %mask: tensor<50xi64> {loom.name = "mask"},
                    %x: tensor<2x3xf32> {loom.name = "x"}) attributes {loom.entry = "main", loom.dims = {}} {
      %0 = loom.get_weight @table : tensor<7x2xf32>
      %1 = loom.reshape %ids : (tensor<50xi64>) -> tensor<5x10xi64>
      %2 = loom.gather %0, %1 dim = 0 : (tensor<7x2xf32>, tensor<5x10xi64>) -> tensor<5x10x2xf32>
      return
    })");
  ASSERT_TRUE(module);
  mlir::func::FuncOp function = *module->getOps<mlir::func::FuncOp>().begin();
  auto inputs = makeInputs(function, {"mask=1"}, 3);
  ASSERT_TRUE(succeeded(inputs)) << context.takeError();
  EXPECT_THAT((*inputs)["ids"].toInts(),
              AllOf(Each(AllOf(Ge(0), Le(6))), Contains(6), Contains(0)));
  EXPECT_THAT((*inputs)["mask"].toInts(), Each(1));
  EXPECT_THAT((*inputs)["x"].toDoubles(), Each(AllOf(Ge(-1), Le(1))));
  EXPECT_TRUE(makeInputs(function, {"mask=1"}, 3)->lookup("ids").isBitwiseEqual((*inputs)["ids"]));
  EXPECT_FALSE(makeInputs(function, {"mask=1"}, 4)->lookup("ids").isBitwiseEqual((*inputs)["ids"]));

  // Version 1.0, little endian, C order: [[1, 2, 3], [4, 5, 6.5]].
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(118 - 10, ' ');
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + char(header.size()) + '\0' + header;
  std::vector<float> values = {1, 2, 3, 4, 5, 6.5};
  file.append(reinterpret_cast<const char *>(values.data()), sizeof(float) * values.size());
  std::string path = write("x.npy", file);
  auto read = makeInputs(function, {"x=" + path}, 3);
  ASSERT_TRUE(succeeded(read)) << context.takeError();
  EXPECT_THAT((*read)["x"].toDoubles(), ElementsAre(1, 2, 3, 4, 5, 6.5));

  for (auto [given, message] :
       {std::pair("y=1", "the program has no input 'y'"), std::pair("x", "'x' is not NAME=VALUE"),
        std::pair("x=randint(1)", "input 'x': 'randint(1)' is not randint(LOW,HIGH)")}) {
    EXPECT_TRUE(failed(makeInputs(function, {given}, 3)));
    EXPECT_THAT(context.takeError(), HasSubstr(message));
  }
  EXPECT_TRUE(failed(makeInputs(function, {"mask=" + path}, 3)));
  EXPECT_THAT(context.takeError(),
              HasSubstr("x.npy holds f32 [2, 3], but the plan takes mask i64 [50]"));
}

} // namespace
