//===- MutationTest.cpp - whether planted faults are noticed --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Faults are planted one at a time in programs after partition, communicate, fuse and allocate. A
// fault is caught if a dialect's verifier, the phase's verification, or a comparison with the
// unsplit program notices it: by the interpreter's exact arithmetic before the schedule phase, by
// running the compiled plan after it. A survivor fails the test unless kReasons explains why it is
// harmless, and a minimum share of each kind must be caught. By default a sample runs;
// GRIDLOOM_EXHAUSTIVE=1 plants all, GRIDLOOM_MUTATION=TEXT those whose line has the text, with
// details.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"
#include "Specimens.h"

#include "test/equivalence/PlanJobs.h"

#include "compiler/driver/Phases.h"
#include "compiler/driver/Registration.h"
#include "compiler/emit/PlanWriter.h"
#include "compiler/interpreter/Compare.h"
#include "compiler/interpreter/Interpreter.h"
#include "compiler/target/Target.h"
#include "passes/allocate/Allocate.h"
#include "passes/communicate/Communicate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/partition/Partition.h"
#include "passes/schedule/Schedule.h"
#include "test/Share.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSwitch.h"

#include "gmock/gmock.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;
using loom::HostTensor;

namespace {

constexpr int64_t kWeightElements = 1024;
/// Number of inputs for the comparison. Exact arithmetic is in a finite field: different programs
/// hardly ever agree on a random input.
constexpr int kInputs = 3;
constexpr Tolerance kTolerance{1e-4, 1e-5};
/// The least number of kinds, and of faults of each kind: with fewer, no specimen has a place for
/// some kind of fault.
constexpr size_t kMinKinds = 28;
constexpr int kMinOfKind = 7;
/// The least number of faults in limited time; all 2,200 take seconds.
constexpr int kMinInTime = 500;
const char *const kLevels[] = {"partition", "communicate", "fuse", "allocate"};

/// A specimen, unsplit and after each phase, with its inputs and expected outputs.
struct Subject {
  const Specimen *specimen;
  mlir::OwningOpRef<mlir::ModuleOp> unsplit, levels[std::size(kLevels)];
  std::vector<NamedTensors> inputs, expectedExact, expected; // in exact arithmetic, and in floats
};

/// One fault: the n-th of a subject's level.
struct Plant {
  size_t subject;
  int level;
  size_t index;
  std::string kind, where;
};

std::vector<Mutation> findMutations(mlir::ModuleOp module, int level) {
  return level == 3 ? findPlanMutations(module) : findTensorMutations(module);
}

class MutationTest : public ::testing::Test {
protected:
  MutationTest()
      : folder(std::filesystem::temp_directory_path() /
               ("gridloom-mutation-" + std::to_string(::getpid()))),
        context(makeRegistry(), mlir::MLIRContext::Threading::DISABLED) {
    std::filesystem::create_directories(folder);
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty())
        error = diagnostic.str();
    });
    std::vector<float> values;
    for (double value : makeUniform(3, kWeightElements))
      values.push_back(static_cast<float>(2 * value - 1));
    const char *data = reinterpret_cast<const char *>(values.data());
    std::vector<char> bytes(data, data + values.size() * sizeof(float));
    digest = getDigest(bytes);
    std::ofstream(folder / "weights", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ~MutationTest() override { std::filesystem::remove_all(folder); }

  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  std::string makeText(const Specimen &specimen) const;
  NamedTensors makeInputs(const Specimen &specimen, mlir::ModuleOp module, int seed) const;
  bool prepare(const Specimen &specimen, Subject &subject);
  llvm::FailureOr<NamedTensors> interpret(mlir::ModuleOp module, const NamedTensors &inputs,
                                          bool exact);
  bool verifies(mlir::ModuleOp module, int level);
  std::string runPlan(const Subject &subject, mlir::ModuleOp module);
  std::string findDefence(const Subject &subject, mlir::ModuleOp module, int level);
  std::vector<Plant> collect(std::vector<Subject> &subjects, size_t number, int64_t &equivalent);

  std::filesystem::path folder;
  mlir::MLIRContext context;
  std::string digest, error; ///< of the weights; from the compiler
};

std::string MutationTest::makeText(const Specimen &specimen) const {
  std::string text = "module attributes {loom.model = {path = \"" + (folder / "weights").string() +
                     "\", bytes = " + std::to_string(4 * kWeightElements) + " : i64, sha256 = \"" +
                     digest + "\"}, loom.folded = []} {\n";
  for (auto [i, type] : llvm::enumerate(specimen.weights)) {
    int64_t elements = 1;
    llvm::SmallVector<llvm::StringRef> sizes;
    llvm::StringRef(type).drop_front(7).split(sizes, 'x');
    for (llvm::StringRef size : llvm::ArrayRef(sizes).drop_back()) {
      int64_t value = 0;
      size.getAsInteger(10, value);
      elements *= value;
    }
    text += "loom.weight @w" + std::to_string(i) + " : " + type +
            " from <\"\", offset = " + std::to_string(512 * i) +
            ", bytes = " + std::to_string(4 * elements) + ">\n";
  }
  text += "func.func @main(";
  for (auto [i, type] : llvm::enumerate(specimen.arguments)) {
    std::string name(1, 'a' + i);
    llvm::StringRef plain(type);
    plain.consume_front("index ");
    text += (i ? ", %" : "%") + name + ": " + plain.str() + " {loom.name = \"" + name + "\"}";
  }
  return text + ") -> (" + specimen.result +
         " {loom.name = \"out\"}) attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
         specimen.body + "\nreturn %r : " + specimen.result + "\n}\n}\n";
}

NamedTensors MutationTest::makeInputs(const Specimen &specimen, mlir::ModuleOp module,
                                      int seed) const {
  NamedTensors inputs;
  auto function = *module.getOps<mlir::func::FuncOp>().begin();
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes())) {
    auto tensor = llvm::cast<mlir::RankedTensorType>(type);
    loom::ElementKind kind = *loom::getElementKind(tensor.getElementType());
    std::vector<double> values = makeUniform(100UL * seed + i, tensor.getNumElements());
    // Mixed signs, all negative, all positive: a wrong neutral element shows in one of them.
    double low = seed == 2 ? 0.1 : -2, high = seed == 1 ? -0.1 : 2;
    for (double &value : values)
      value = loom::isFloatKind(kind) ? low + (high - low) * value : std::floor(7 * value);
    inputs[std::string(1, 'a' + i)] = HostTensor::fromDoubles(kind, tensor.getShape(), values);
  }
  return inputs;
}

llvm::FailureOr<NamedTensors> MutationTest::interpret(mlir::ModuleOp module,
                                                      const NamedTensors &inputs, bool exact) {
  FileWeights weights((folder / "weights").string());
  Interpreter interpreter(module, weights, {.exact = exact, .observer = {}});
  auto specialisations = getSpecialisations(module);
  if (specialisations.size() != 1)
    return mlir::failure();
  return interpreter.run(specialisations.front(), inputs);
}

/// Compiles the specimen and keeps the program after each level.
bool MutationTest::prepare(const Specimen &specimen, Subject &subject) {
  subject.specimen = &specimen;
  subject.unsplit = mlir::parseSourceString<mlir::ModuleOp>(makeText(specimen), &context);
  if (!subject.unsplit)
    return false;
  for (int i = 0; i < kInputs; ++i) {
    subject.inputs.push_back(makeInputs(specimen, *subject.unsplit, i));
    for (bool exact : {false, true}) {
      auto outputs = interpret(*subject.unsplit, subject.inputs.back(), exact);
      if (failed(outputs))
        return false;
      (exact ? subject.expectedExact : subject.expected).push_back(*std::move(outputs));
    }
  }
  PhaseContext phases;
  phases.shard.mesh = specimen.mesh;
  phases.shard.shard.assign(specimen.shard.begin(), specimen.shard.end());
  phases.shard.dp.assign(specimen.dp.begin(), specimen.dp.end());
  phases.shard.microbatches = specimen.microbatches;
  mlir::OwningOpRef<mlir::ModuleOp> module = subject.unsplit->clone();
  // Specimens are written as after the simplify phase.
  for (const Phase &phase : getPhases().drop_front(2)) {
    if (!phase.addPasses)
      continue;
    mlir::PassManager manager(&context);
    phase.addPasses(manager, phases);
    if (failed(manager.run(*module)))
      return false;
    for (auto [level, name] : llvm::enumerate(kLevels))
      if (phase.name == name)
        subject.levels[level] = module->clone();
  }
  return true;
}

bool MutationTest::verifies(mlir::ModuleOp module, int level) {
  mlir::PassManager manager(&context);
  switch (level) {
  case 0:
    manager.addPass(createVerifyPartitioned());
    break;
  case 1:
    manager.addNestedPass<mlir::func::FuncOp>(createVerifyCommunicated());
    break;
  case 2:
    manager.addPass(createVerifyLayouts());
    manager.addPass(createVerifyFused());
    break;
  default:
    manager.addPass(createVerifyScheduled());
    manager.addPass(createVerifyAllocated());
  }
  return succeeded(manager.run(module));
}

PlanTensor toPlanTensor(const HostTensor &tensor) {
  return {loom::nameOf(tensor.getKind()).str(), std::vector<int64_t>(tensor.getShape()),
          std::vector<char>(tensor.getData(), tensor.getData() + tensor.getNumBytes())};
}

/// Emits, loads and runs; returns the error or the difference as text, or an empty string.
std::string MutationTest::runPlan(const Subject &subject, mlir::ModuleOp module) {
  std::string plan = (folder / "mutant.plan").string();
  EmitSummary summary;
  auto files = emitPlan(module, plan, *parseTarget({}, error), summary);
  if (failed(files))
    return "emit: " + error;
  if (std::string failure = writePlan(*files, plan, /*force=*/true); !failure.empty())
    return failure;
  PlanTensors inputs;
  for (const auto &entry : subject.inputs.front())
    inputs[entry.first().str()] = toPlanTensor(entry.second);
  std::string failure;
  auto outputs = runEntries(plan, {{"main", inputs}}, 2, failure);
  if (!failure.empty())
    return "run: " + failure;
  for (const auto &entry : subject.expected.front()) {
    auto found = outputs["main"].find(entry.first().str());
    if (found == outputs["main"].end())
      return "no output";
    HostTensor actual(entry.second.getKind(), found->second.shape);
    if (actual.getNumBytes() != found->second.bytes.size())
      return "an output of another size";
    llvm::copy(found->second.bytes, actual.getMutableData());
    if (!compare(entry.second, actual, kTolerance).equal)
      return "compiled outputs differ";
  }
  return "";
}

/// The check that notices the fault; empty if none does.
std::string MutationTest::findDefence(const Subject &subject, mlir::ModuleOp module, int level) {
  error.clear();
  if (failed(mlir::verify(module)))
    return "dialect";
  if (!verifies(module, level))
    return "phase";
  if (level == 3)
    return error = runPlan(subject, module), error.empty() ? "" : "compiled";
  for (bool exact : {true, false})
    for (int i = 0; i < kInputs; ++i) {
      auto outputs = interpret(module, subject.inputs[i], exact);
      if (failed(outputs))
        return "interpreter";
      for (const auto &entry : (exact ? subject.expectedExact : subject.expected)[i]) {
        auto found = outputs->find(entry.first());
        if (found == outputs->end() ||
            !compare(entry.second, found->second, exact ? Tolerance() : kTolerance).equal)
          return exact ? "interpreter" : "floats";
      }
    }
  return "";
}

/// Percent of the faults of a kind that must be caught; the others are harmless, by kReasons.
int leastCaught(llvm::StringRef kind) {
  return llvm::StringSwitch<int>(kind)
      .Case("wrong neutral element", 65) // beside zeros any finite neutral element works
      .Cases({"overlapping buffers", "swapped operands", "wrong order"}, 80)
      .Cases({"missing mask", "off by one", "wrong event"}, 90)
      .Cases({"dropped collective", "early event", "stale buffer", "wrong reduction"}, 95)
      .Default(100);
}

/// Why a fault that nothing noticed is harmless; null if unknown.
const char *explain(const Plant &plant) {
  struct Reason {
    const char *kind, *where, *why;
  };
  static const char *const kZero = "the other operand's padding is zero, and so is its product";
  static const Reason kReasons[] = {
      {"overlapping buffers", "after allocate", "the memory is free while the buffer is in use"},
      {"dropped wait", "after allocate", "other events order all conflicting uses"},
      {"wrong event", "after allocate", "the other event orders all conflicting uses as well"},
      {"wrong order", "after allocate", "no conflicting uses lose their order"},
      {"early event", "attention after allocate: plan.record 'k'",
       "the gather waits for all compute before it, so that its result may lie anywhere; where it "
       "came to lie this step has nothing"},
      {"wrong reduction", "'softmax'", "a softmax is the same whatever is subtracted before exp"},
      {"wrong neutral", "'softmax'", "a softmax is the same whatever is subtracted before exp"},
      {"swapped operands", "embedding", "the two differ only at rows that are not selected"},
      {"dropped collective", "'v'",
       "each device reads its own columns of v: nothing need be gathered"},
      {"missing mask", "perceptron", kZero},
      {"off by one", "perceptron", kZero},
      {"wrong neutral", "perceptron", kZero},
      {"wrong neutral", "'dot'", kZero},
      {"wrong neutral", "constant ''", kZero},
      {"off by one", "pieces", "at the edge both sides hold the element, or it is masked"},
      {"stale buffer", "pieces", "what differs is masked where it arrives"},
  };
  for (const Reason &reason : kReasons)
    if (plant.kind.find(reason.kind) != std::string::npos &&
        plant.where.find(reason.where) != std::string::npos)
      return reason.why;
  return nullptr;
}

/// At most `most` of each kind and level, spread over all subjects.
std::vector<Plant> sample(const std::vector<Plant> &all, size_t most) {
  std::map<std::pair<int, std::string>, std::vector<const Plant *>> kinds;
  for (const Plant &plant : all)
    kinds[{plant.level, plant.kind}].push_back(&plant);
  std::vector<Plant> chosen;
  for (auto &[key, plants] : kinds)
    for (size_t i = 0, count = std::min(plants.size(), most); i < count; ++i)
      chosen.push_back(*plants[i * plants.size() / count]);
  return chosen;
}

std::string print(mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  return text;
}

/// The results for all faults.
struct Tally {
  std::map<std::string, std::pair<int, int>> kinds; ///< planted, caught
  std::map<std::string, int> defences;
  std::vector<std::string> survivors;
  int planted = 0, caught = 0;

  void add(const Plant &plant, const std::string &defence) {
    auto &[kindPlanted, kindCaught] = kinds[plant.kind];
    ++kindPlanted, ++planted;
    kindCaught += !defence.empty();
    caught += !defence.empty();
    ++defences[defence.empty() ? "nothing" : defence];
    if (!defence.empty())
      return;
    const char *reason = explain(plant);
    if (!reason)
      ADD_FAILURE() << "survives, and nothing in kReasons says why it is no fault: " << plant.kind
                    << ": " << plant.where;
    survivors.push_back(plant.kind + ": " + plant.where + ": " + (reason ? reason : "unexplained"));
  }

  void print() const {
    for (const auto &[kind, count] : kinds)
      std::printf("  %-26s %4d of %4d caught\n", kind.c_str(), count.second, count.first);
    for (const auto &[defence, count] : defences)
      std::printf("  by %-12s %4d\n", defence.c_str(), count);
    for (const std::string &survivor : survivors)
      std::printf("  survives: %s\n", survivor.c_str());
    for (const auto &[kind, count] : kinds) {
      std::string name = kind;
      std::replace(name.begin(), name.end(), ' ', '-');
      std::printf("mutation: %s: %d cases\n", name.c_str(), count.first);
    }
  }
};

/// All faults of a subject; `equivalent` counts those recognised as harmless.
std::vector<Plant> MutationTest::collect(std::vector<Subject> &subjects, size_t number,
                                         int64_t &equivalent) {
  std::vector<Plant> plants;
  for (int level = 0; level < static_cast<int>(std::size(kLevels)); ++level) {
    mlir::ModuleOp module = *subjects[number].levels[level];
    mlir::OwningOpRef<mlir::ModuleOp> whole = module.clone();
    EXPECT_EQ(findDefence(subjects[number], *whole, level), "")
        << kSpecimens[number].name << " without a fault, after " << kLevels[level] << ": " << error;
    for (auto [index, mutation] : llvm::enumerate(findMutations(module, level))) {
      if (mutation.equivalent.empty())
        plants.push_back({number, level, index, mutation.kind,
                          std::string(kSpecimens[number].name) + " after " + kLevels[level] + ": " +
                              mutation.where});
      else
        ++equivalent;
    }
  }
  return plants;
}

TEST_F(MutationTest, FaultsAreNoticed) {
  std::vector<Subject> subjects(std::size(kSpecimens));
  std::vector<Plant> all;
  int64_t equivalent = 0;
  for (auto [i, specimen] : llvm::enumerate(kSpecimens)) {
    ASSERT_TRUE(prepare(specimen, subjects[i])) << specimen.name << ": " << error;
    llvm::append_range(all, collect(subjects, i, equivalent));
  }
  const char *only = std::getenv("GRIDLOOM_MUTATION");
  bool exhaustive = std::getenv("GRIDLOOM_EXHAUSTIVE") != nullptr || only;
  Tally tally;
  std::vector<Plant> chosen = exhaustive ? all : sample(all, 12);
  Share share;
  share.order(chosen);
  for (const Plant &plant : chosen) {
    if (!share.hasTime())
      break;
    if (only && (plant.kind + ": " + plant.where).find(only) == std::string::npos)
      continue;
    const Subject &subject = subjects[plant.subject];
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp(*subject.levels[plant.level]).clone();
    auto found = findMutations(*module, plant.level);
    ASSERT_EQ(found[plant.index].kind, plant.kind);
    found[plant.index].plant();
    std::string text = only ? print(*module) : "";
    std::string defence = findDefence(subject, *module, plant.level);
    tally.add(plant, defence);
    if (only)
      std::printf("%s: %s: %s %s\n%s\n", plant.kind.c_str(), plant.where.c_str(), defence.c_str(),
                  error.c_str(), defence.empty() ? text.c_str() : "");
  }
  tally.print();
  std::printf(
      "mutation: caught %d of %d; %lld more recognised as no faults; %zu could be planted\n",
      tally.caught, tally.planted, static_cast<long long>(equivalent), all.size());
  if (tally.planted < std::ssize(chosen))
    std::printf("seed %llu: %d of %zu had time\n", static_cast<unsigned long long>(share.getSeed()),
                tally.planted, chosen.size());
  if (only)
    return;
  bool whole = tally.planted == std::ssize(chosen);
  EXPECT_GE(tally.planted, kMinInTime);
  if (whole)
    EXPECT_GE(tally.kinds.size(), kMinKinds);
  for (const auto &[kind, count] : tally.kinds) {
    if (whole)
      EXPECT_GE(count.first, kMinOfKind) << kind;
    if (count.first >= kMinOfKind)
      // Rounded down: ten of twelve count as 90 %.
      EXPECT_GE(count.second, count.first * leastCaught(kind) / 100) << kind;
  }
}

} // namespace
