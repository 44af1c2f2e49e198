//===- TrainVerb.cpp - gridloom train -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/arrays/Generator.h"
#include "runtime/cli/Job.h"
#include "runtime/cli/TrainReport.h"
#include "runtime/core/Error.h"
#include "runtime/core/plan.pb.h"
#include "runtime/launch/StopSignal.h"
#include "runtime/train/CheckpointLock.h"
#include "runtime/train/Trainer.h"
#include "support/OutputFormat.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static const char *const examples = R"(
Examples:
  gridloom compile model.onnx --train --loss 'cross_entropy(logits, labels)' \
      --optimizer 'adamw(lr=3e-4)' --metric 'accuracy(logits, labels)' --dim batch=32 -o model.plan
  gridloom train model.plan --data digits --epochs 10
      digits has a file for each input, named as it is: x.npy [samples, 64], labels.npy [samples].
      Each epoch reads each sample once, in an order that --seed decides
  gridloom train model.plan --data digits --epochs 10 --eval-data digits-test --patience 3 \
      --checkpoint-dir run1 --checkpoint-every 500 --log run1.csv
      looks at other samples after each epoch, and ends after three epochs in which their loss did
      not fall; run1 has the last three checkpoints, run1.csv a row for each step
  gridloom train model.plan --data digits --epochs 20 --checkpoint-dir run1 --resume
      goes on where the last checkpoint was, with the sample that is next, up to epoch 20. The same
      command begins the run where there is no checkpoint yet
  gridloom train model.plan --data digits --steps 10000 --lr 1e-3 \
      --lr-schedule 'cosine(warmup=500, min=0.1)'
      another learning rate than the plan's, which rises for 500 steps and then falls to a tenth
  gridloom train model.plan --data texts --pad-to sequence
      with a plan of --dim sequence=128,512 and sequence.npy [samples] in texts, how long each
      sample is: batches of short texts run the smaller step
  gridloom train model.plan --data digits --epochs 10 --log-dir runs/1 --histograms-every 100
      'tensorboard --logdir runs' draws its curves, and how the weights are spread

Ctrl-C ends after the step at hand, saves a checkpoint if there is a --checkpoint-dir, and exits
with 130; a second one ends at once. docs/training.md has the format of data and checkpoints.)";

/// What --resume without a value continues, as its help says it.
static const char *const latestCheckpoint = "the latest in --checkpoint-dir";

namespace {

struct TrainSettings {
  JobSettings job;
  TrainingSettings training;
  std::string data, evalData, checkpoints, resumeFrom, log, events, onNonFinite = "stop";
  std::optional<double> learningRate;
  std::optional<uint64_t> seed, initSeed;
  int64_t logEvery = 0;
};

/// A number that this process shares with those that it forks.
class SharedNumber {
public:
  SharedNumber()
      : memory(mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory == MAP_FAILED)
      throw Error(ErrorCode::OutOfMemory, std::string("cannot share memory: ") + strerror(errno));
    new (memory) std::atomic<int>(0);
  }
  ~SharedNumber() { munmap(memory, sizeof(std::atomic<int>)); }
  SharedNumber(const SharedNumber &) = delete;
  SharedNumber &operator=(const SharedNumber &) = delete;
  std::atomic<int> &get() const { return *static_cast<std::atomic<int> *>(memory); }

private:
  void *memory;
};

/// What is made before a rank joins the job.
struct Prepared {
  std::shared_ptr<const Plan> plan;
  TrainingSetup setup;
};

} // namespace

static TrainingSettings readSettings(const TrainSettings &given) {
  TrainingSettings settings = given.training;
  settings.data = given.data;
  settings.evalData = given.evalData;
  settings.checkpoints = given.checkpoints;
  settings.resumeFrom = given.resumeFrom;
  settings.learningRate = given.learningRate;
  settings.seed = given.seed;
  settings.skipNonFinite = given.onNonFinite == "skip";
  settings.dims = readDims(given.job.dims);
  settings.inputs = readInputs(given.job.inputs);
  return settings;
}

static void prepare(TrainSettings &settings, Prepared &made) {
  made.plan = loadPlan(settings.job);
  if (settings.initSeed && !made.plan->drawsStates())
    throw Error(ErrorCode::InvalidArgument,
                "--init-seed " + std::to_string(*settings.initSeed) + ": " + settings.job.plan +
                    " begins with the model's weights and draws none; compile it with --init");
  made.setup = TrainingSetup::prepare(made.plan, readSettings(settings));
  if (!settings.log.empty())
    TrainingLog::check(settings.log, made.setup);
  if (!settings.events.empty())
    TrainingEvents::check(settings.events, made.setup);
  if (const std::string &folder = settings.checkpoints; !folder.empty()) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (!fs::is_directory(folder))
      throw Error(ErrorCode::InvalidArgument,
                  "--checkpoint-dir " + folder + " cannot be made: " +
                      (error ? error.message() : "a file of this name is in the way"));
  }
}

static void trainOnRank(const TrainSettings &settings, const TrainingSetup &setup, Session &session,
                        std::atomic<int> &signal) {
  std::optional<CheckpointLock> lock;
  std::optional<TrainReport> report;
  if (session.getRank() == 0 && !settings.checkpoints.empty()) { // before the log is begun
    lock.emplace(settings.checkpoints);
    setup.requireUnused();
  }
  if (session.getRank() == 0)
    report.emplace(setup, settings.log, settings.events, settings.logEvery);
  Trainer trainer(setup, session, report ? &*report : nullptr, &StopSignal::get);
  TrainingResult result = trainer.run();
  if (result.signal)
    signal = result.signal;
  if (report)
    report->finish(result);
  flushOutput(); // here, where errors are still reported
}

static int runTrain(TrainSettings settings) {
  Prepared made;
  settings.job.checkIndices = true; // a label beyond the classes would be trained as another one
  settings.job.ranksHandleSignals = true;
  beforeJoining(settings.job, [&] { prepare(settings, made); });
  SharedNumber signal;
  StopSignal stop;
  auto cache = std::make_shared<WeightCache>();
  int code = runRanks(settings.job, made.plan->getMesh().getNumRanks(),
                      [&](const World &world, Transport &transport) {
                        if (world.size > 1 && !settings.job.inProcess && world.source == "gridloom")
                          StopSignal::leaveToLauncher();
                        SessionOptions options;
                        options.initSeed = settings.initSeed;
                        JobRank rank =
                            startRank(settings.job, made.plan, cache, world, transport, options);
                        trainOnRank(settings, made.setup, *rank.session, signal.get());
                      });
  return signal.get() ? 128 + signal.get() : code;
}

static void addRunOptions(CLI::App &verb, TrainSettings &settings) {
  TrainingSettings &training = settings.training;
  const CLI::Validator count = wholeNumberFrom(1);
  verb.add_option(
          "--data", settings.data,
          "folder with a .npy file for each input of the training step, or a .npz file; the "
          "first dimension counts samples")
      ->required()
      ->type_name("DIR|FILE.npz")
      ->check(notEmpty());
  auto *steps = verb.add_option("--steps", training.steps,
                                "steps of the whole run, also those before --resume")
                    ->check(count);
  verb.add_option("--epochs", training.epochs, "how often to read all samples; default: once")
      ->check(count)
      ->excludes(steps);
  verb.add_option("--pad-to", training.padTo,
                  "dimension in which samples have different lengths, which a file of its name in "
                  "--data says, e.g. sequence.npy: each batch takes the smallest of the plan's "
                  "sizes that holds its longest sample")
      ->type_name("DIM")
      ->check(notEmpty());
  verb.add_option("--seed", settings.seed,
                  "seed of the samples' order, and of random inputs; default: 0, or the "
                  "checkpoint's. Weights that compile --init draws have --init-seed")
      ->check(wholeNumberFrom(0));
  verb.add_option("--init-seed", settings.initSeed,
                  "seed of the weights that compile --init draws, instead of compile --seed")
      ->check(wholeNumberFrom(0));
  verb.add_option("--lr", settings.learningRate, "learning rate; default: the plan's")
      ->check(numberWithin(0, 1e6));
  verb.add_option("--lr-schedule", training.schedule,
                  std::string("what the learning rate is multiplied by: ") + kScheduleGrammar)
      ->capture_default_str();
  verb.add_option("--on-nan", settings.onNonFinite,
                  "after a step whose loss or gradients are not finite, which changes nothing: "
                  "stop, or skip it with a note. Where a dynamic scale of the loss was too large, "
                  "the run goes on in any case")
      ->check(CLI::IsMember({"stop", "skip"}))
      ->capture_default_str();
  auto *eval = verb.add_option("--eval-data", settings.evalData,
                               "other samples, to evaluate with the plan's entry 'eval'")
                   ->type_name("DIR|FILE.npz")
                   ->check(notEmpty());
  verb.add_option("--eval-every", training.evalEvery,
                  "steps between evaluations; default: after each epoch. The last step has one")
      ->check(count)
      ->needs(eval);
  verb.add_option("--patience", training.patience,
                  "stop after this many evaluations in a row without a lower loss")
      ->check(count)
      ->needs(eval);
}

static void addFileOptions(CLI::App &verb, TrainSettings &settings) {
  TrainingSettings &training = settings.training;
  const CLI::Validator count = wholeNumberFrom(1);
  auto *folder = verb.add_option("--checkpoint-dir", settings.checkpoints,
                                 "folder for checkpoints; the last step saves one")
                     ->type_name("DIR")
                     ->check(notEmpty());
  verb.add_option("--checkpoint-every", training.checkpointEvery, "steps between checkpoints")
      ->check(count)
      ->needs(folder);
  verb.add_option("--keep", training.keep,
                  "latest checkpoints to keep, besides that of the evaluation with the lowest loss")
      ->check(count)
      ->needs(folder)
      ->capture_default_str();
  verb.add_option_function<std::string>(
          "--resume",
          [&settings](const std::string &path) {
            if (path.empty()) // CLI11 calls no check of a value that may be left out
              throw CLI::ValidationError("--resume", "it is empty");
            settings.training.resume = true;
            settings.resumeFrom = path == latestCheckpoint ? "" : path;
          },
          "continue a checkpoint; begins the run where --checkpoint-dir has none")
      ->default_str(latestCheckpoint)
      ->expected(0, 1)
      ->type_name("[DIR]");
  verb.add_option("--log", settings.log, "CSV file with a row for each step")
      ->type_name("FILE")
      ->check(notEmpty());
  auto *events = verb.add_option("--log-dir", settings.events,
                                 "folder for event files, which TensorBoard shows")
                     ->type_name("DIR")
                     ->check(notEmpty());
  verb.add_option("--histograms-every", training.histogramsEvery,
                  "steps between histograms of all parameters in --log-dir; default: none")
      ->check(count)
      ->needs(events);
  verb.add_option("--log-every", settings.logEvery,
                  "steps between printed lines where no terminal rewrites them; default: about 20 "
                  "lines")
      ->check(count);
}

Verb gridloom::rt::addTrain(CLI::App &app) {
  auto settings = std::make_shared<TrainSettings>();
  CLI::App *verb =
      app.add_subcommand("train", "Train a plan that was compiled with --train on data");
  verb->footer(examples);
  addPlanOptions(*verb, settings->job);
  for (const char *name : {"--entry", "--check-indices", "--seed"})
    verb->remove_option(verb->get_option(name));
  verb->get_option("--dim")->description(
      "NAME=SIZE[,NAME=SIZE]: which specialisation of the training step, where there are several");
  verb->get_option("--input")->description(std::string("value of an input that is no data: ") +
                                           kInputGrammar);
  verb->get_option("--weights")
      ->description("weights to begin with, of another .onnx or .safetensors file of the same "
                    "model, or of a checkpoint's folder");
  addRunOptions(*verb, *settings);
  addFileOptions(*verb, *settings);
  return {verb, [settings] { return runTrain(*settings); }};
}
