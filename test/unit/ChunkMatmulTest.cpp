//===- ChunkMatmulTest.cpp - chunked matmuls equal whole ones ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "EquivalenceCases.h"

#include "compiler/driver/Options.h"
#include "compiler/interpreter/CheckOptions.h"
#include "passes/communicate/Communicate.h"

#include "mlir/Pass/PassManager.h"

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

/// The program of one of two devices: a matmul and its collective.
struct Program {
  const char *name;
  /// Global and local types and shardings of x, w and the result.
  const char *types[3], *locals[3], *shardings[3];
  const char *body;
  int64_t chunks;
};

std::ostream &operator<<(std::ostream &stream, const Program &program) {
  return stream << program.name;
}

const Program kPrograms[] = {
    {"all_reduce",
     {"8x8", "8x6", "8x6"},
     {"8x4", "4x6", "8x6"},
     {"[{}, {\"m\"}]", "[{\"m\"}, {}]", "[{}, {}]"},
     R"(%0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
        %r = dist.all_reduce %0 over ["m"] sum : tensor<8x6xf32>)",
     4},
    {"all_reduce_cuts_the_other_operand",
     {"7x8", "8x6", "7x6"},
     {"7x4", "4x6", "7x6"},
     {"[{}, {\"m\"}]", "[{\"m\"}, {}]", "[{}, {}]"},
     R"(%0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<7x4xf32>, tensor<4x6xf32>) -> tensor<7x6xf32>
        %r = dist.all_reduce %0 over ["m"] sum : tensor<7x6xf32>)",
     3},
    {"reduce_scatter_of_the_other_dimension",
     {"8x8", "8x6", "8x6"},
     {"8x4", "4x6", "4x6"},
     {"[{}, {\"m\"}]", "[{\"m\"}, {}]", "[{\"m\"}, {}]"},
     R"(%0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
        %r = dist.reduce_scatter %0 over ["m"] dim = 0 sum : (tensor<8x6xf32>) -> tensor<4x6xf32>)",
     2},
    {"reduce_scatter_of_the_cut_dimension",
     {"8x8", "8x6", "8x6"},
     {"8x4", "4x6", "4x6"},
     {"[{}, {\"m\"}]", "[{\"m\"}, {}]", "[{\"m\"}, {}]"},
     R"(%0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<8x4xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
        %r = dist.reduce_scatter %0 over ["m"] dim = 0 sum : (tensor<8x6xf32>) -> tensor<4x6xf32>)",
     4},
    {"all_gather_of_the_cut_dimension",
     {"8x8", "8x5", "8x5"},
     {"4x8", "8x5", "8x5"},
     {"[{\"m\"}, {}]", "[{}, {}]", "[{}, {}]"},
     R"(%0 = dist.all_gather %x over ["m"] dim = 0 : (tensor<4x8xf32>) -> tensor<8x8xf32>
        %r = loom.dot_general %0, %w batch = [] x [] contract = [1] x [0] : (tensor<8x8xf32>, tensor<8x5xf32>) -> tensor<8x5xf32>)",
     4},
    {"all_gather_of_the_contracted_dimension",
     {"8x8", "8x5", "8x5"},
     {"8x4", "8x5", "8x5"},
     {"[{}, {\"m\"}]", "[{}, {}]", "[{}, {}]"},
     R"(%0 = dist.all_gather %x over ["m"] dim = 1 : (tensor<8x4xf32>) -> tensor<8x8xf32>
        %r = loom.dot_general %0, %w batch = [] x [] contract = [1] x [0] : (tensor<8x8xf32>, tensor<8x5xf32>) -> tensor<8x5xf32>)",
     2},
    {"all_gather_of_the_right_operand",
     {"7x8", "8x6", "7x6"},
     {"7x8", "4x6", "7x6"},
     {"[{}, {}]", "[{\"m\"}, {}]", "[{}, {}]"},
     R"(%0 = dist.all_gather %w over ["m"] dim = 0 : (tensor<4x6xf32>) -> tensor<8x6xf32>
        %r = loom.dot_general %x, %0 batch = [] x [] contract = [1] x [0] : (tensor<7x8xf32>, tensor<8x6xf32>) -> tensor<7x6xf32>)",
     3},
    {"all_gather_with_a_batch",
     {"2x8x4", "2x4x5", "2x8x5"},
     {"2x4x4", "2x4x5", "2x8x5"},
     {"[{}, {\"m\"}, {}]", "[{}, {}, {}]", "[{}, {}, {}]"},
     R"(%0 = dist.all_gather %x over ["m"] dim = 1 : (tensor<2x4x4xf32>) -> tensor<2x8x4xf32>
        %r = loom.dot_general %0, %w batch = [0] x [0] contract = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x5xf32>) -> tensor<2x8x5xf32>)",
     2},
};

std::string makeProgram(const Program &program) {
  auto describe = [&](const char *name, int i) {
    return std::string("{loom.name = \"") + name + "\", dist.sharding = #dist.sharding<@mesh, " +
           program.shardings[i] + ">, loom.global_type = tensor<" + program.types[i] + "xf32>}";
  };
  auto type = [&](int i) { return std::string("tensor<") + program.locals[i] + "xf32>"; };
  return "dist.mesh @mesh <[\"m\" = 2]>\nfunc.func @main(%x: " + type(0) + " " + describe("x", 0) +
         ", %w: " + type(1) + " " + describe("w", 1) + ") -> (" + type(2) + " " +
         describe("out", 2) +
         ")\n    attributes {loom.entry = \"main\", loom.dims = {}, dist.stage = 0 : i64, "
         "dist.microbatches = 1 : i64} {\n" +
         program.body + "\n  return %r : " + type(2) + "\n}\n";
}

loom::HostTensor makeInput(const char *shape, uint32_t seed) {
  std::vector<int64_t> sizes;
  std::stringstream stream(shape);
  for (std::string size; std::getline(stream, size, 'x');)
    sizes.push_back(std::stoll(size));
  std::mt19937 random(seed);
  std::vector<double> values(std::accumulate(sizes.begin(), sizes.end(), 1L, std::multiplies<>()));
  for (double &value : values)
    value = static_cast<int>(random() % 17) - 8;
  return floats(sizes, values);
}

class ChunkMatmul : public ::testing::TestWithParam<Program> {};

TEST_P(ChunkMatmul, IsTheWholeMatmul) {
  const Program &program = GetParam();
  Context context;
  auto module = context.parse(makeProgram(program));
  ASSERT_TRUE(module);
  NamedTensors inputs;
  inputs["x"] = makeInput(program.types[0], 1);
  inputs["w"] = makeInput(program.types[1], 2);
  InterpreterOptions exact{.exact = true, .observer = {}};
  auto expected = run(*module, inputs, exact);
  ASSERT_TRUE(succeeded(expected)) << context.takeError();

  mlir::PassManager manager(context.get());
  ChunkCollectiveMatmulOptions options;
  options.chunks = program.chunks;
  options.minBytes = 0;
  manager.addNestedPass<mlir::func::FuncOp>(createChunkCollectiveMatmul(options));
  addCommunicatePasses(manager);
  ASSERT_TRUE(succeeded(manager.run(*module))) << context.takeError();
  int64_t chunks = 0, whole = 0;
  module->walk([&](mlir::Operation *op) {
    if (dist::isCommunication(op))
      ++(op->hasAttr(kChunk) ? chunks : whole);
  });
  EXPECT_EQ(chunks, program.chunks);
  EXPECT_EQ(whole, 0);
  auto actual = run(*module, inputs, exact);
  ASSERT_TRUE(succeeded(actual)) << context.takeError();
  EXPECT_TRUE((*actual)["out"].isBitwiseEqual((*expected)["out"]));
}

INSTANTIATE_TEST_SUITE_P(Programs, ChunkMatmul, ::testing::ValuesIn(kPrograms),
                         [](const auto &info) { return std::string(info.param.name); });

/// Compiled and run on two ranks, compared with the unsplit program in the interpreter.
TEST(ChunkMatmulCompiled, AgreesWithTheInterpreter) {
  namespace fs = std::filesystem;
  fs::path folder = fs::temp_directory_path() / ("gridloom-chunked-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "weights", std::ios::binary) << std::string(1152, '\0');
  const Case test = {
      "chunked",
      {"tensor<128x64xf32>", "tensor<64x256xf32>"},
      "%r = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0] : (tensor<128x64xf32>, "
      "tensor<64x256xf32>) -> tensor<128x256xf32>",
      "tensor<128x256xf32>"};
  std::ofstream(folder / "source.mlir")
      << "module attributes {loom.model = {path = \"" << (folder / "weights").string()
      << "\", bytes = 1152 : i64, sha256 = \"" << getDigest(folder / "weights")
      << "\"}, loom.folded = []} {\n"
      << makeText(test) << "\n}\n";
  CompileOptions compile;
  compile.input = (folder / "source.mlir").string();
  compile.output = (folder / "test.plan").string();
  compile.startFrom = "shard";
  compile.mesh = "model=2";
  compile.shard = {"a=[{},{model}]", "b=[{model},{}]", "out=[{},{}]"};
  compile.chunkMatmul = 4;
  compile.dumpIr = (folder / "dump").string();
  compile.quiet = true;
  ASSERT_EQ(runCompile(compile), 0);
  auto read = [&](const char *name) {
    std::stringstream text;
    text << std::ifstream(folder / "dump" / name).rdbuf();
    return text.str();
  };
  std::string communicated = read("05-communicate.mlir"), scheduled = read("08-schedule.mlir");
  EXPECT_EQ(llvm::StringRef(communicated).count("dist.chunk"), 4U);
  // The other chunks are computed while the first is communicated.
  size_t first = scheduled.find("plan.group"), last = scheduled.rfind("plan.library");
  ASSERT_NE(last, std::string::npos);
  EXPECT_LT(first, last);
  CheckOptions check;
  check.paths = {compile.output};
  EXPECT_EQ(runCheck(check), 0);
  fs::remove_all(folder);
}

} // namespace
