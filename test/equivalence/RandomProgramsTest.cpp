//===- RandomProgramsTest.cpp - compiled on many ranks and on one ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Random programs are compiled for a mesh with random shardings, and for one rank, and run with all
// ranks in this process. Outputs must be equal bit by bit where arithmetic is exact; elsewhere they
// may differ by a bound that follows from the program. By default a few programs run;
// GRIDLOOM_EXHAUSTIVE=1 runs 96 of each mesh, GRIDLOOM_PROGRAM=N (a number that a failure names)
// only that one.
//
//===----------------------------------------------------------------------===//
#include "PlanJobs.h"
#include "ProgramGenerator.h"

#include "compiler/driver/Phases.h"
#include "compiler/driver/Registration.h"
#include "compiler/emit/PlanWriter.h"
#include "compiler/target/Target.h"
#include "test/Share.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include "gmock/gmock.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::testing;

namespace {

/// What a mesh's programs test besides splits.
enum class Subject {
  Splits,
  Micro,  ///< micro-batches with axes of every use, user shardings, and programs that mix rows
  Stages, ///< annotated stages in any order that dependences allow
  Chunks, ///< matmuls in chunks that overlap communication
};

/// A mesh and how its axes may be used.
struct MeshCase {
  const char *name, *mesh;
  std::vector<const char *> axes; ///< that split tensors
  int64_t stages = 1, microbatches = 1;
  Subject subject = Subject::Splits;
  int64_t rows = 4; ///< the batch is a multiple of this: at least two rows per device
};

std::ostream &operator<<(std::ostream &stream, const MeshCase &mesh) { return stream << mesh.mesh; }

const MeshCase kMeshes[] = {
    {"x2", "x=2", {"x"}},
    {"x3", "x=3", {"x"}},
    {"x4", "x=4", {"x"}},
    {"x2y2", "x=2,y=2", {"x", "y"}},
    {"pipe2", "pipe=2", {}, 2},
    {"x2pipe2micro4", "x=2,pipe=2", {"x"}, 2, 4},
    {"x2y3", "x=2,y=3", {"x", "y"}},
    {"x2pipe3micro2", "x=2,pipe=3", {"x"}, 3, 2},
    {"x8", "x=8", {"x"}},
    {"x4y2", "x=4,y=2", {"x", "y"}},
    {"x2y2z2", "x=2,y=2,z=2", {"x", "y", "z"}},
    {"x2y2pipe2micro4", "x=2,y=2,pipe=2", {"x", "y"}, 2, 4, Subject::Splits, 8},
    {"x2pipe2micro2mixed", "x=2,pipe=2", {"x"}, 2, 2, Subject::Micro},
    {"x2y2pipe2micro4mixed", "x=2,pipe=2,y=2", {"x", "y"}, 2, 4, Subject::Micro, 8},
    {"x3y2pipe2micro3mixed", "pipe=2,x=3,y=2", {"x", "y"}, 2, 3, Subject::Micro, 18},
    {"x2pipe3stages", "x=2,pipe=3", {"x"}, 3, 1, Subject::Stages},
    {"x2y2pipe2micro2stages", "x=2,y=2,pipe=2", {"x", "y"}, 2, 2, Subject::Stages, 8},
    {"x3pipe2chunks", "x=3,pipe=2", {"x"}, 2, 1, Subject::Chunks},
    {"x2y2pipe2micro2chunks", "x=2,y=2,pipe=2", {"x", "y"}, 2, 2, Subject::Chunks, 8},
};
/// Programs per compilation, which has a large fixed cost.
constexpr int kBatch = 6;
/// Program numbers per mesh: a multiple of kBatch.
constexpr int64_t kPrograms = 200 * kBatch;

/// A program with its compile options.
struct Trial {
  int64_t number;
  RandomProgram program;
  std::vector<std::string> shard; ///< user shardings
};

class RandomPrograms : public ::testing::TestWithParam<MeshCase> {
protected:
  RandomPrograms()
      : folder(std::filesystem::temp_directory_path() /
               ("gridloom-random-" + std::to_string(::getpid()))),
        context(makeRegistry(), mlir::MLIRContext::Threading::DISABLED) {
    std::filesystem::create_directories(folder);
    context.loadAllAvailableDialects();
    context.getDiagEngine().registerHandler([this](mlir::Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && error.empty())
        error = loom::getNodeName(diagnostic.getLocation()) + ": " + diagnostic.str();
    });
    std::mt19937 random(7);
    std::vector<float> weights;
    for (int64_t i = 0; i < kNumWeightElements; ++i)
      weights.push_back(static_cast<float>(int(random() % 5) - 2));
    const char *data = reinterpret_cast<const char *>(weights.data());
    std::vector<char> bytes(data, data + weights.size() * sizeof(float));
    digest = getDigest(bytes);
    std::ofstream(folder / "weights", std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ~RandomPrograms() override { std::filesystem::remove_all(folder); }

  static mlir::DialectRegistry makeRegistry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  Trial makeTrial(int64_t number) const;
  void runBatch(const std::vector<Trial> &trials);
  std::map<std::string, PlanTensors> compileAndRun(const std::vector<Trial> &trials, bool split,
                                                   std::string &failure);
  bool compile(const std::vector<Trial> &trials, const ShardOptions &options,
               const std::string &plan);
  ShardOptions getOptions(const std::vector<Trial> &trials) const;
  void compare(const Trial &trial, const PlanTensors &expected, const PlanTensors &actual);
  std::string describe(const Trial &trial) const {
    std::string text = "GRIDLOOM_PROGRAM=" + std::to_string(trial.number) + ", mesh " +
                       GetParam().mesh + ", shard";
    for (const std::string &shard : trial.shard)
      text += " " + shard;
    return text + "\n" + trial.program.text;
  }

  std::filesystem::path folder;
  mlir::MLIRContext context;
  std::string digest, error; ///< of the weights; from the compiler
  int64_t outputs = 0, exact = 0, operations = 0, refused = 0, cutInTime = 0;
};

/// A third of the programs are simplified first.
bool isSimplified(int64_t number) { return number / kBatch % 3 == 1; }

/// Programs that may mix rows in spite of micro-batches. They are compiled alone, because one that
/// needs the whole batch prevents micro-batches for all.
bool mixesRows(const MeshCase &mesh, int64_t number) {
  return mesh.subject == Subject::Micro && number / kBatch % 2 == 1;
}

/// Puts operations into stages at random, each no earlier than its operands; leaves some open.
/// Returns whether every stage has an operation.
bool drawStages(mlir::func::FuncOp function, int64_t stages, std::mt19937_64 &random) {
  std::vector<int64_t> count(stages, 0);
  llvm::DenseMap<mlir::Value, int64_t> made;
  for (mlir::Operation &op : function.front().without_terminator()) {
    int64_t earliest = 0;
    for (mlir::Value operand : op.getOperands())
      earliest = std::max(earliest, made.lookup(operand));
    bool floats = op.getNumOperands() == 0 || mlir::isa<loom::BroadcastOp>(op);
    int64_t stage = earliest;
    op.removeAttr(dist::kStage);
    if (!floats && random() % 2) {
      stage += static_cast<int64_t>(random() % (stages - earliest));
      op.setAttr(dist::kStage, mlir::Builder(op.getContext()).getI64IntegerAttr(stage));
    }
    count[stage] += !floats;
    for (mlir::Value result : op.getResults())
      made[result] = stage;
  }
  return std::find(count.begin(), count.end(), 0) == count.end();
}

/// Annotates every function with stages, which depend only on its name; functions that are too
/// small get none.
void annotateStages(mlir::ModuleOp module, int64_t stages) {
  for (auto function : module.getOps<mlir::func::FuncOp>()) {
    std::string name = function.getSymName().str();
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937_64 random(seed);
    bool found = false;
    for (int tries = 0; tries < 20 && !found; ++tries)
      found = drawStages(function, stages, random);
    for (mlir::Operation &op : function.front())
      if (!found)
        op.removeAttr(dist::kStage);
  }
}

/// The program of this number, with user shardings in three of four programs.
Trial RandomPrograms::makeTrial(int64_t number) const {
  const MeshCase &mesh = GetParam();
  std::string name = "p" + std::to_string(number);
  bool mixes = mixesRows(mesh, number);
  bool batched = (mesh.microbatches > 1 && !mixes) || number % 5 == 4;
  ProgramGenerator generator(name, number, batched ? mesh.rows : 0);
  Trial trial{number, generator.generate(), {}};
  std::mt19937_64 random(number);
  // One program's shardings may prevent micro-batches for all that are compiled with it.
  bool hasShardings =
      mesh.subject == Subject::Micro ? mixes || number / kBatch % 4 == 2 : mesh.microbatches == 1;
  if (mesh.axes.empty() || !hasShardings || number % 4 == 0)
    return trial;
  for (const auto &[value, rank] : trial.program.values) {
    // Simplification may remove a weight.
    bool gone = isSimplified(number) && value.find("_w") != std::string::npos;
    if (rank == 0 || gone || random() % 3 != 0)
      continue;
    std::vector<std::string> dims(rank);
    for (const char *axis : mesh.axes)
      if (uint64_t dim = random() % (rank + 1); dim < static_cast<uint64_t>(rank))
        dims[dim] += (dims[dim].empty() ? "" : ",") + std::string(axis);
    std::string list;
    for (const std::string &dim : dims)
      list += (list.empty() ? "{" : ",{") + dim + "}";
    trial.shard.push_back(value + "=[" + list + "]");
  }
  return trial;
}

ShardOptions RandomPrograms::getOptions(const std::vector<Trial> &trials) const {
  const MeshCase &mesh = GetParam();
  ShardOptions options;
  options.mesh = mesh.mesh;
  options.microbatches = mesh.microbatches;
  for (const Trial &trial : trials)
    options.shard.insert(options.shard.end(), trial.shard.begin(), trial.shard.end());
  // Depending on the batch: data and tensor parallelism, or random seeds. A program's shardings by
  // name do not depend on the others in the batch.
  int64_t batch = trials.front().number / kBatch;
  bool strategy = batch % 3 == 0;
  for (const char *axis : mesh.axes) {
    if (mesh.subject == Subject::Micro) {
      std::vector<std::string> *uses[] = {&options.dp, &options.tp, &options.random};
      uses[std::mt19937_64(batch * 31 + axis[0])() % 3]->push_back(axis);
    } else if (mesh.microbatches > 1 || (strategy && axis == std::string("x"))) {
      options.dp.push_back(axis);
    } else if (strategy && batch % 2 == 0) {
      options.tp.push_back(axis);
    } else {
      options.random.push_back(axis);
    }
  }
  return options;
}

bool RandomPrograms::compile(const std::vector<Trial> &trials, const ShardOptions &options,
                             const std::string &plan) {
  std::string text = "module attributes {loom.model = {path = \"" + (folder / "weights").string() +
                     "\", bytes = " + std::to_string(kNumWeightElements * 4) +
                     " : i64, sha256 = \"" + digest + "\"}, loom.folded = []} {\n";
  for (const Trial &trial : trials)
    text += trial.program.text;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text + "}\n", &context);
  if (!module)
    return false;
  const MeshCase &mesh = GetParam();
  bool split = !options.mesh.empty();
  PhaseContext phases;
  phases.shard = options;
  if (split && mesh.subject == Subject::Chunks)
    phases.communicate.chunks = 2 + trials.front().number / kBatch % 2;
  bool simplify = isSimplified(trials.front().number);
  for (const Phase &phase : getPhases()) {
    if (!phase.addPasses || (phase.name == "simplify" && !simplify))
      continue;
    if (split && mesh.subject == Subject::Stages && phase.name == "shard")
      annotateStages(*module, mesh.stages);
    mlir::PassManager manager(&context);
    phase.addPasses(manager, phases);
    if (failed(manager.run(*module)))
      return error = "phase " + phase.name.str() + ": " + error, false;
    if (phase.name == "shard" && dist::getMesh(*module).hasAxis(dist::MeshOp::kMicroAxis))
      cutInTime += static_cast<int64_t>(trials.size());
  }
  EmitSummary summary;
  auto files = emitPlan(*module, plan, *parseTarget({}, error), summary);
  if (failed(files))
    return false;
  error = writePlan(*files, plan, /*force=*/true);
  return error.empty();
}

/// Values of an input: whole numbers that depend only on its name.
PlanTensor makeValues(const RandomInput &input) {
  PlanTensor tensor{input.element, input.shape, {}};
  std::seed_seq seed(input.name.begin(), input.name.end());
  std::mt19937 random(seed);
  int64_t count = 1;
  for (int64_t size : input.shape)
    count *= size;
  auto append = [&](auto value) {
    const char *bytes = reinterpret_cast<const char *>(&value);
    tensor.bytes.insert(tensor.bytes.end(), bytes, bytes + sizeof(value));
  };
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = input.low + static_cast<int64_t>(random() % (input.high - input.low + 1));
    if (input.element == "f32")
      append(static_cast<float>(value));
    else
      append(value);
  }
  return tensor;
}

std::map<std::string, PlanTensors> RandomPrograms::compileAndRun(const std::vector<Trial> &trials,
                                                                 bool split, std::string &failure) {
  std::string plan = (folder / (split ? "split.plan" : "one.plan")).string();
  error.clear();
  if (!compile(trials, split ? getOptions(trials) : ShardOptions(), plan)) {
    failure = error;
    return {};
  }
  std::map<std::string, PlanTensors> entries;
  for (const Trial &trial : trials)
    for (const RandomInput &input : trial.program.inputs)
      entries[trial.program.name][input.name] = makeValues(input);
  for (const Trial &trial : trials)
    entries.try_emplace(trial.program.name);
  // Twice: the second run starts with the memory that the first one left.
  return runEntries(plan, entries, split ? 2 : 1, failure);
}

void RandomPrograms::compare(const Trial &trial, const PlanTensors &expected,
                             const PlanTensors &actual) {
  for (const RandomOutput &output : trial.program.outputs) {
    auto one = expected.find(output.name), many = actual.find(output.name);
    ASSERT_TRUE(one != expected.end() && many != actual.end()) << output.name << " is missing\n"
                                                               << describe(trial);
    ASSERT_EQ(one->second.shape, many->second.shape) << describe(trial);
    const std::vector<char> &left = one->second.bytes, &right = many->second.bytes;
    ++outputs;
    exact += output.error == 0;
    if (one->second.type != "f32") {
      ASSERT_TRUE(left == right) << output.name << " differs\n" << describe(trial);
      continue;
    }
    for (size_t i = 0; i < left.size(); i += sizeof(float)) {
      float a, b;
      std::memcpy(&a, &left[i], sizeof(float));
      std::memcpy(&b, &right[i], sizeof(float));
      // -0 equals 0: a sum of only padding may give either.
      ASSERT_TRUE(std::isfinite(a) && std::isfinite(b) &&
                  std::abs(double(a) - double(b)) <= 2 * output.error)
          << output.name << " differs at " << i / sizeof(float) << ": " << a << " on one rank, "
          << b << " on many; tolerance " << 2 * output.error << "\n"
          << describe(trial);
    }
  }
}

void RandomPrograms::runBatch(const std::vector<Trial> &trials) {
  std::string failure;
  auto actual = compileAndRun(trials, /*split=*/true, failure);
  std::map<std::string, PlanTensors> expected;
  if (failure.empty())
    expected = compileAndRun(trials, /*split=*/false, failure);
  if (!failure.empty()) {
    // Run the programs alone to see which one fails.
    int64_t before = refused;
    for (const Trial &trial : trials) {
      // The program may be too small for the mesh, or have no tensor that a strategy can split.
      bool tooSmall = failure.find("splits nothing of the model") != std::string::npos ||
                      failure.find("the model cannot be cut into") != std::string::npos;
      if (trials.size() == 1 && tooSmall)
        ++refused;
      else if (trials.size() == 1)
        ADD_FAILURE() << failure << "\n" << describe(trial);
      else
        runBatch({trial});
    }
    EXPECT_TRUE(HasFailure() || refused > before)
        << failure << "\nonly when compiled together, from program " << trials.front().number
        << " on";
    return;
  }
  for (const Trial &trial : trials) {
    operations += trial.program.numOperations;
    compare(trial, expected[trial.program.name], actual[trial.program.name]);
  }
}

TEST_P(RandomPrograms, SplitIsUnsplit) {
  constexpr int64_t kNumMeshes = std::size(kMeshes);
  int64_t mesh = 0;
  while (kMeshes[mesh].name != GetParam().name)
    ++mesh;
  if (const char *only = std::getenv("GRIDLOOM_PROGRAM")) {
    int64_t number = std::stoll(only);
    if (number / kPrograms != mesh)
      GTEST_SKIP() << "program " << number << " runs on another mesh";
    return runBatch({makeTrial(number)});
  }
  bool exhaustive = std::getenv("GRIDLOOM_EXHAUSTIVE") != nullptr;
  Share share(kNumMeshes);
  std::vector<int64_t> batches(exhaustive ? 16 : 2);
  std::iota(batches.begin(), batches.end(), 0);
  share.order(batches);
  int64_t run = 0;
  for (int64_t batch : batches) {
    if (!share.hasTime() || (!exhaustive && HasFailure()))
      break;
    run += kBatch;
    std::vector<Trial> trials;
    for (int64_t i = 0; i < kBatch; ++i)
      trials.push_back(makeTrial(mesh * kPrograms + batch * kBatch + i));
    if (!mixesRows(GetParam(), trials.front().number))
      runBatch(trials);
    else
      for (const Trial &trial : trials)
        runBatch({trial});
  }
  bool whole = run == std::ssize(batches) * kBatch;
  if (!whole)
    std::printf("seed %llu: %lld of %lld programs had time\n",
                static_cast<unsigned long long>(share.getSeed()), static_cast<long long>(run),
                static_cast<long long>(std::ssize(batches) * kBatch));
  std::printf("compiled: %s: %lld cases, %lld operations, %lld of %lld outputs bit by bit; "
              "%lld in micro-batches; %lld refused: too small for the mesh\n",
              GetParam().name, static_cast<long long>(run - refused),
              static_cast<long long>(operations), static_cast<long long>(exact),
              static_cast<long long>(outputs), static_cast<long long>(cutInTime),
              static_cast<long long>(refused));
  if (!whole)
    return;
  // More are refused if compiled alone.
  EXPECT_LT(refused, GetParam().subject == Subject::Micro ? run / 2 : run / 4);
  // Most programs that do not mix rows can run in micro-batches. One that cannot, e.g. by a user's
  // sharding, prevents it for all that are compiled with it.
  if (GetParam().microbatches > 1)
    EXPECT_GE(cutInTime, GetParam().subject == Subject::Micro ? kBatch : run / 4);
}

INSTANTIATE_TEST_SUITE_P(Meshes, RandomPrograms, ::testing::ValuesIn(kMeshes),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
