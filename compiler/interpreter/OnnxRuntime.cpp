//===- OnnxRuntime.cpp - a model's outputs by ONNX Runtime ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/PlanRun.h"
#include "support/TemporaryFolder.h"

#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace gridloom;
using nlohmann::json;

namespace fs = std::filesystem;

/// Tensors are exchanged as raw files with a list of name, type and shape.
static const char *const script = R"(
import json, sys
try:
    import numpy, onnxruntime
except ImportError as error:
    print(error.name)
    sys.exit(3)
names = dict(f16="float16", f32="float32", f64="float64", bool="bool", i1="bool")
for bits in (8, 16, 32, 64):
    names[f"i{bits}"], names[f"u{bits}"], names[f"ui{bits}"] = f"int{bits}", f"uint{bits}", f"uint{bits}"
back = dict(float16="f16", float32="f32", float64="f64", bool="bool")
for bits in (8, 16, 32, 64):
    back[f"int{bits}"], back[f"uint{bits}"] = f"i{bits}", f"u{bits}"
model, folder = sys.argv[1:]
feeds = {}
for i, entry in enumerate(json.load(open(folder + "/inputs.json"))):
    if entry["type"] not in names:
        sys.exit(f"input '{entry['name']}' has type {entry['type']}, which numpy lacks")
    data = numpy.fromfile(f"{folder}/input{i}", names[entry["type"]])
    feeds[entry["name"]] = data.reshape(entry["shape"])
options = onnxruntime.SessionOptions()
options.log_severity_level = 4
# Otherwise sums of 8-bit products saturate at 16 bits on CPUs without VNNI.
options.add_session_config_entry("session.x64quantprecision", "1")
try:
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs() if i.name in feeds})
except Exception as error:
    sys.exit(" ".join(str(error).split()))
entries = []
for i, (output, value) in enumerate(zip(session.get_outputs(), outputs)):
    numpy.ascontiguousarray(value).tofile(f"{folder}/output{i}")
    entries.append(dict(name=output.name, type=back[value.dtype.name], shape=value.shape))
json.dump(entries, open(folder + "/outputs.json", "w"))
)";

static std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Pythons that may have ONNX Runtime, the likeliest first: GRIDLOOM_PYTHON alone, if set; else
/// those of the checkout or environment that holds this program, of the build, and of PATH.
static std::vector<std::string> findPythons() {
  if (const char *given = std::getenv("GRIDLOOM_PYTHON"))
    return {given};
  std::vector<std::string> pythons;
  auto add = [&](const fs::path &python) {
    std::error_code error;
    if (fs::exists(python, error) && !std::count(pythons.begin(), pythons.end(), python.string()))
      pythons.push_back(python.string());
  };
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    add(folder / ".venv/bin/python");
    add(folder / "bin/python3");
  }
  add(GRIDLOOM_BUILD_PYTHON);
  pythons.push_back("python3");
  return pythons;
}

/// The last line of a script's output.
static std::string readLastLine(const fs::path &log) {
  std::string said = readFile(log);
  while (!said.empty() && said.back() == '\n')
    said.pop_back();
  size_t line = said.rfind('\n');
  return line == std::string::npos ? said : said.substr(line + 1);
}

/// Runs the script. Returns its last line on failure; with `isMissing` set, the name of the package
/// that this Python lacks.
static std::string runScript(std::string python, const std::string &model, const fs::path &folder,
                             bool &isMissing) {
  std::string path = folder.string(), log = (folder / "log").string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int stream : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, log.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
  std::string flag = "-c", text = script, file = model;
  char *arguments[] = {python.data(), flag.data(), text.data(), file.data(), path.data(), nullptr};
  pid_t child = 0;
  int failed = posix_spawnp(&child, python.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed)
    return "'" + python + "' cannot be started; set GRIDLOOM_PYTHON to a Python with onnxruntime";
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return "";
  isMissing = WIFEXITED(status) && WEXITSTATUS(status) == 3;
  std::string said = readLastLine(log);
  return said.empty() ? "ONNX Runtime ended without a word" : said;
}

/// Runs the script with the first Python that has the packages.
static std::string runScript(const std::string &model, const fs::path &folder) {
  std::string tried, package;
  for (const std::string &python : findPythons()) {
    bool isMissing = false;
    std::string error = runScript(python, model, folder, isMissing);
    if (!isMissing)
      return error;
    package = error;
    tried += (tried.empty() ? "" : ", ") + python;
  }
  return package + " is not installed for " + tried +
         "; install it, or set GRIDLOOM_PYTHON to a Python that has it";
}

PlanRunResult gridloom::runOnnxRuntime(const std::string &model,
                                       const std::map<std::string, PlanTensor> &inputs) {
  PlanRunResult result;
  TemporaryFolder temporary("gridloom-oracle");
  if (!temporary.getError().empty()) {
    result.error = temporary.getError();
    return result;
  }
  const fs::path &folder = temporary.getPath();
  json list = json::array();
  for (const auto &[name, tensor] : inputs) {
    std::ofstream(folder / ("input" + std::to_string(list.size())), std::ios::binary)
        .write(tensor.bytes.data(), static_cast<std::streamsize>(tensor.bytes.size()));
    list.push_back({{"name", name}, {"type", tensor.type}, {"shape", tensor.shape}});
  }
  std::ofstream(folder / "inputs.json") << list;
  result.error = runScript(model, folder);
  if (!result.error.empty())
    return result;
  json outputs = json::parse(readFile(folder / "outputs.json"), nullptr, false);
  if (!outputs.is_array()) {
    result.error = "ONNX Runtime's outputs cannot be read";
    return result;
  }
  result.ranks = 1;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string data = readFile(folder / ("output" + std::to_string(i)));
    result.outputs[outputs[i]["name"]] = {outputs[i]["type"], outputs[i]["shape"],
                                          std::vector<char>(data.begin(), data.end())};
  }
  return result;
}
