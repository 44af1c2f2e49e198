//===- CompiledTest.cpp - compiled plans against the interpreter ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Each small program is compiled from the shard phase on, run on in-process ranks, and compared
// with the unsplit program in the interpreter.
//
//===----------------------------------------------------------------------===//
#include "EquivalenceCases.h"

#include "compiler/driver/Options.h"
#include "compiler/interpreter/CheckOptions.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

class Compiled : public ::testing::TestWithParam<std::tuple<Case, const char *>> {
protected:
  Compiled()
      : folder(std::filesystem::temp_directory_path() /
               ("gridloom-compiled-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder);
    std::vector<float> weights;
    for (double value : makeUniform(7, 24 * 12))
      weights.push_back(static_cast<float>(2 * value - 1));
    std::ofstream(folder / "weights", std::ios::binary)
        .write(reinterpret_cast<const char *>(weights.data()), weights.size() * sizeof(float));
  }
  ~Compiled() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
};

TEST_P(Compiled, AgreesWithTheInterpreter) {
  auto [test, mesh] = GetParam();
  std::string source = (folder / "source.mlir").string(), plan = (folder / "test.plan").string();
  std::ofstream(source) << "module attributes {loom.model = {path = \""
                        << (folder / "weights").string() << "\", bytes = 1152 : i64, sha256 = \""
                        << getDigest(folder / "weights") << "\"}, loom.folded = []} {\n"
                        << makeText(test) << "\n}\n";
  CompileOptions compile;
  compile.input = source;
  compile.output = plan;
  compile.startFrom = "shard";
  compile.mesh = mesh;
  compile.quiet = true;
  // Where no input has a first dimension to split, split the output's.
  bool bare = test.arguments.empty() || llvm::StringRef(test.arguments[0]).contains("<1x");
  if (bare && *mesh) {
    std::string dims = "{data}";
    for (size_t i = 1; i < llvm::StringRef(test.result).count('x'); ++i)
      dims += ",{}";
    compile.shard = {"out=[" + dims + "]"};
  }
  ASSERT_EQ(runCompile(compile), 0);
  CheckOptions check;
  check.paths = {plan};
  for (auto [i, argument] : llvm::enumerate(test.arguments)) {
    bool index = llvm::StringRef(argument).starts_with("index");
    std::string name(1, 'a' + i);
    if (index)
      check.inputs.push_back(name + "=randint(0,12)");
    else if (llvm::StringRef(argument).contains("xi64"))
      check.inputs.push_back(name + "=randint(-50,50)");
  }
  EXPECT_EQ(runCheck(check), 0);
}

std::string getName(const ::testing::TestParamInfo<std::tuple<Case, const char *>> &info) {
  std::string mesh = std::get<1>(info.param);
  std::string suffix = mesh.empty() ? "one" : mesh;
  std::replace_if(suffix.begin(), suffix.end(), [](char c) { return !std::isalnum(c); }, '_');
  return std::string(std::get<0>(info.param).name) + "_on_" + suffix;
}

INSTANTIATE_TEST_SUITE_P(Operations, Compiled,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values("", "data=2")),
                         getName);

} // namespace
