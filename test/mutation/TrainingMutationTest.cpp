//===- TrainingMutationTest.cpp - whether training faults are noticed -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Training steps are compiled for several meshes, and faults planted one at a time at every place
// of the program after the communicate phase, which later phases only order and allocate. `check
// --exact`, as a library, compares each with the unsplit program: two steps, an evaluation, a run
// of the model and another step in one session. Of each kind, leastCaught percent must be caught,
// and kReasons must explain why each survivor is harmless. By default a sample runs;
// GRIDLOOM_EXHAUSTIVE=1 plants all, GRIDLOOM_MUTATION=TEXT those whose line has the text.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"

#include "compiler/driver/Phases.h"
#include "compiler/driver/Registration.h"
#include "compiler/interpreter/CheckOptions.h"
#include "test/Share.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include "gmock/gmock.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

/// Percent of a kind's faults that must be caught. Some masks hide padding that is zero anyway.
int leastCaught(llvm::StringRef kind) { return kind == "tail not masked" ? 90 : 95; }

constexpr size_t kKinds = 8;
constexpr size_t kSample = 12; ///< per kind

/// A model, its training options, and its splits.
struct Specimen {
  const char *name;
  int64_t batch, parts;
  const char *loss, *optimizer, *clip;
  const char *mesh;
  std::vector<const char *> dp, shard;
  int64_t zero = 0;
};

// NOLINTNEXTLINE(bugprone-throwing-static-initialization): without its table there is no test.
const Specimen kSpecimens[] = {
    {"descent", 5, 1, "cross_entropy(y, labels)", "sgd(momentum=0.9)", "", "data=2", {"data"}, {}},
    {"parts", 14, 2, "cross_entropy(y, labels)", "adamw", "norm(1.0)", "data=3", {"data"}, {}},
    {"zero 1", 7, 1, "mse(y, target)", "adamw", "", "data=2", {"data"}, {}, 1},
    {"zero 3",
     7,
     1,
     "cross_entropy(y, labels, ignore_index=1)",
     "lamb(lr=0.1)",
     "",
     "data=3",
     {"data"},
     {},
     3},
    {"columns",
     4,
     1,
     "cross_entropy(y, labels, label_smoothing=0.1)",
     "rmsprop(momentum=0.5, centered=true)",
     "",
     "model=2",
     {},
     {"w1=[{},{model}]", "w2=[{model},{}]"}},
    {"both",
     5,
     1,
     "mse(y, target)",
     "adafactor(lr=0.1, min_factored=3, momentum=0.9)",
     "value(0.5)",
     "data=2,model=2",
     {"data"},
     {"w1=[{},{model}]", "w2=[{model},{}]"}},
};

/// tanh(norm(x w1 + b1)) w2 + b2 as import writes it, with 7 hidden values.
std::string makeFunction(const Specimen &specimen, const char *entry, int64_t parts) {
  std::string b = std::to_string(specimen.batch / parts);
  std::string batch = std::to_string(specimen.batch);
  std::string wide = "tensor<" + b + "x7xf32>", out = "tensor<" + b + "x3xf32>";
  std::string text =
      std::string("func.func @") + entry + "(%x: tensor<" + b +
      "x5xf32> {loom.name = \"x\", loom.dim_names = [\"batch\", \"\"]} loc(\"x\")) -> (" + out +
      " {loom.name = \"y\", loom.dim_names = [\"batch\", \"\"]}) attributes {" + "loom.entry = \"" +
      entry + "\", loom.dims = {batch = " + batch + " : i64}";
  if (parts > 1)
    text += ", loom.batch = {name = \"batch\", parts = " + std::to_string(parts) + " : i64}";
  return text + "} {\n" +
         R"(  %w1 = loom.get_weight @w1 : tensor<5x7xf32> loc("w1")
  %b1 = loom.get_weight @b1 : tensor<7xf32> loc("b1")
  %s = loom.get_weight @s : tensor<7xf32> loc("s")
  %w2 = loom.get_weight @w2 : tensor<7x3xf32> loc("w2")
  %b2 = loom.get_weight @b2 : tensor<3xf32> loc("b2")
  %0 = loom.dot_general %x, %w1 batch = [] x [] contract = [1] x [0] : (tensor<)" +
         b + "x5xf32>, tensor<5x7xf32>) -> " + wide + " loc(\"first\")\n" +
         "  %1 = loom.broadcast %b1 dims = [1] : (tensor<7xf32>) -> " + wide + " loc(\"bias\")\n" +
         "  %2 = loom.add %0, %1 : " + wide + " loc(\"bias\")\n" +
         "  %3 = loom.layer_norm %2, %s, %b1 epsilon = 0.5 : (" + wide +
         ", tensor<7xf32>, tensor<7xf32>) -> " + wide + " loc(\"norm\")\n" +
         "  %4 = loom.tanh %3 : " + wide + " loc(\"tanh\")\n" +
         "  %5 = loom.dot_general %4, %w2 batch = [] x [] contract = [1] x [0] : (" + wide +
         ", tensor<7x3xf32>) -> " + out + " loc(\"second\")\n" +
         "  %6 = loom.broadcast %b2 dims = [1] : (tensor<3xf32>) -> " + out + " loc(\"last\")\n" +
         "  %7 = loom.add %5, %6 : " + out + " loc(\"last\")\n" + "  return %7 : " + out + "\n}\n";
}

std::string makeText(const Specimen &specimen, const std::string &model) {
  std::string text = "module attributes {loom.model = {path = \"" + model +
                     "\"}, loom.folded = [], loom.ties, loom.trains} {\n";
  struct Weight {
    const char *declaration;
    int64_t elements;
  };
  int64_t offset = 0;
  for (auto [declaration, elements] : {Weight{"w1 : tensor<5x7xf32>", 35},
                                       {"b1 : tensor<7xf32>", 7},
                                       {"s : tensor<7xf32>", 7},
                                       {"w2 : tensor<7x3xf32>", 21},
                                       {"b2 : tensor<3xf32>", 3}}) {
    text += std::string("loom.weight @") + declaration +
            " from <\"\", offset = " + std::to_string(offset) +
            ", bytes = " + std::to_string(4 * elements) + ">\n";
    offset += 4 * elements;
  }
  return text + makeFunction(specimen, "train_step", specimen.parts) +
         makeFunction(specimen, "main", 1) + "}\n";
}

/// A specimen before the splits, as a file, and after the communicate phase.
struct Subject {
  std::string whole;
  mlir::OwningOpRef<mlir::ModuleOp> split;
};

struct Plant {
  size_t subject, index;
  std::string kind, where;
};

/// Why a fault that nothing noticed is harmless; null if unknown.
const char *explain(const Plant &plant) {
  struct Reason {
    const char *kind, *where, *why;
  };
  static const Reason kReasons[] = {
      // The padding of a gradient that does not divide is zero before the scatter.
      {"tail not masked", "loom.select 'train/gradient_norm'", "its padding holds zeros already"},
  };
  for (const Reason &reason : kReasons)
    if (plant.kind.find(reason.kind) != std::string::npos &&
        plant.where.find(reason.where) != std::string::npos)
      return reason.why;
  return nullptr;
}

class TrainingMutationTest : public ::testing::Test {
protected:
  TrainingMutationTest()
      : folder(std::filesystem::temp_directory_path() /
               ("gridloom-training-mutation-" + std::to_string(::getpid()))),
        context(makeRegistry(), mlir::MLIRContext::Threading::DISABLED) {
    std::filesystem::create_directories(folder);
    std::ofstream weights(folder / "m.onnx", std::ios::binary);
    std::minstd_rand random(1);
    for (int i = 0; i < 73; ++i) {
      float value = std::uniform_real_distribution<float>(-1, 1)(random);
      weights.write(reinterpret_cast<const char *>(&value), sizeof value);
    }
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty())
        error = diagnostic.str();
    });
  }
  ~TrainingMutationTest() override { std::filesystem::remove_all(folder); }

  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  std::string write(const std::string &name, mlir::ModuleOp module) {
    std::string path = (folder / name).string(), text;
    llvm::raw_string_ostream stream(text);
    module.print(stream, mlir::OpPrintingFlags().enableDebugInfo(true, false));
    std::ofstream(path) << text;
    return path;
  }
  bool prepare(const Specimen &specimen, Subject &subject);
  std::string findDefence(const Subject &subject, mlir::ModuleOp module);

  std::filesystem::path folder;
  mlir::MLIRContext context;
  std::string error, printed; ///< by the compiler, and by the last check
};

bool TrainingMutationTest::prepare(const Specimen &specimen, Subject &subject) {
  subject.split = mlir::parseSourceString<mlir::ModuleOp>(
      makeText(specimen, (folder / "m.onnx").string()), &context);
  if (!subject.split)
    return false;
  PhaseContext phases;
  phases.simplify.train.isOn = true;
  phases.simplify.train.losses = {specimen.loss};
  phases.simplify.train.optimizer = specimen.optimizer;
  phases.simplify.train.clip = specimen.clip;
  phases.shard.mesh = specimen.mesh;
  phases.shard.dp.assign(specimen.dp.begin(), specimen.dp.end());
  phases.shard.shard.assign(specimen.shard.begin(), specimen.shard.end());
  phases.shard.zero = specimen.zero;
  for (const Phase &phase : getPhases().drop_front()) {
    mlir::PassManager manager(&context);
    phase.addPasses(manager, phases);
    if (failed(manager.run(*subject.split)))
      return false;
    if (phase.name == "simplify")
      subject.whole = write(std::string(specimen.name) + ".mlir", *subject.split);
    if (phase.name == "communicate")
      return true;
  }
  return false;
}

/// The check that notices the fault; empty if none does.
std::string TrainingMutationTest::findDefence(const Subject &subject, mlir::ModuleOp module) {
  error.clear();
  if (failed(mlir::verify(module)))
    return "verifier";
  CheckOptions options;
  options.paths = {subject.whole, write("mutant.mlir", module)};
  options.exact = true;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  int code = runCheck(options);
  printed = ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
  if (code == 0)
    return "";
  if (printed.find("between its replicas") != std::string::npos)
    return "replicas";
  return printed.find("DIFFERS") != std::string::npos ? "outputs" : "interpreter";
}

/// At most `most` of each kind, spread over all subjects.
std::vector<Plant> sample(const std::vector<Plant> &all, size_t most) {
  std::map<std::string, std::vector<const Plant *>> kinds;
  for (const Plant &plant : all)
    kinds[plant.kind].push_back(&plant);
  std::vector<Plant> chosen;
  for (auto &[kind, plants] : kinds)
    for (size_t i = 0, count = std::min(plants.size(), most); i < count; ++i)
      chosen.push_back(*plants[i * plants.size() / count]);
  return chosen;
}

/// The results for the faults of a kind.
struct Tally {
  int planted = 0, caught = 0;
  std::map<std::string, int> defences;
};

TEST_F(TrainingMutationTest, FaultsAreNoticed) {
  std::vector<Subject> subjects(std::size(kSpecimens));
  std::vector<Plant> all;
  for (auto [i, specimen] : llvm::enumerate(kSpecimens)) {
    ASSERT_TRUE(prepare(specimen, subjects[i])) << specimen.name << ": " << error;
    ASSERT_EQ(findDefence(subjects[i], *subjects[i].split), "")
        << specimen.name << " without a fault: " << error << printed;
    for (auto [index, mutation] : llvm::enumerate(findTrainingMutations(*subjects[i].split)))
      all.push_back({i, index, mutation.kind, std::string(specimen.name) + ": " + mutation.where});
  }
  const char *only = std::getenv("GRIDLOOM_MUTATION");
  bool exhaustive = std::getenv("GRIDLOOM_EXHAUSTIVE") != nullptr || only;
  std::vector<Plant> chosen = exhaustive ? all : sample(all, kSample);
  Share share;
  share.order(chosen);
  std::map<std::string, Tally> kinds;
  std::vector<std::string> survivors;
  size_t planted = 0;
  for (const Plant &plant : chosen) {
    if (!share.hasTime())
      break;
    if (only && (plant.kind + ": " + plant.where).find(only) == std::string::npos)
      continue;
    mlir::OwningOpRef<mlir::ModuleOp> module =
        mlir::ModuleOp(*subjects[plant.subject].split).clone();
    auto found = findTrainingMutations(*module);
    ASSERT_EQ(found[plant.index].kind, plant.kind);
    found[plant.index].plant();
    std::string defence = findDefence(subjects[plant.subject], *module);
    Tally &tally = kinds[plant.kind];
    ++tally.planted, ++planted;
    tally.caught += !defence.empty();
    ++tally.defences[defence.empty() ? "nothing" : defence];
    if (only)
      std::printf("%s: %s: %s %s\n%s\n", plant.kind.c_str(), plant.where.c_str(), defence.c_str(),
                  error.c_str(), printed.c_str());
    if (!defence.empty())
      continue;
    const char *reason = explain(plant);
    EXPECT_TRUE(reason) << "survives, and nothing in kReasons says why it is no fault: "
                        << plant.kind << ": " << plant.where;
    survivors.push_back(plant.kind + ": " + plant.where + ": " + (reason ? reason : "unexplained"));
  }
  for (const auto &[kind, tally] : kinds) {
    std::printf("  %-26s %4d of %4d caught", kind.c_str(), tally.caught, tally.planted);
    for (const auto &[defence, count] : tally.defences)
      std::printf(", %d by %s", count, defence.c_str());
    std::printf("\n");
  }
  for (const std::string &survivor : survivors)
    std::printf("  survives: %s\n", survivor.c_str());
  std::printf("training mutation: caught %zu of %zu; %zu could be planted\n",
              planted - survivors.size(), planted, all.size());
  if (only)
    return;
  if (planted < chosen.size())
    std::printf("seed %llu: %zu of %zu had time\n",
                static_cast<unsigned long long>(share.getSeed()), planted, chosen.size());
  else
    EXPECT_EQ(kinds.size(), kKinds);
  for (const auto &[kind, tally] : kinds)
    // A sample may have one survivor more than its share.
    EXPECT_GE(100 * (tally.caught + !exhaustive), leastCaught(kind) * tally.planted) << kind;
}

} // namespace
