//===- TrainingSetup.cpp - settings and data of a training run ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/TrainingSetup.h"

#include "runtime/arrays/Generator.h"
#include "runtime/arrays/Npy.h"
#include "runtime/core/Error.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <cassert>
#include <limits>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static Error usage(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

bool gridloom::rt::isMetric(const std::string &output) {
  for (const char *other : {"loss", "count", "gradient_norm", "committed", kLossScale})
    if (output == other)
      return false;
  return !output.ends_with(".count");
}

//===----------------------------------------------------------------------===//
// The plan's part
//===----------------------------------------------------------------------===//

/// The only specialisation of an entry that binds `dims`, under 0, or one for each size of `padTo`.
static std::map<int64_t, const EntrySpecialisation *>
choose(const Entry &entry, const std::map<std::string, int64_t> &dims, const std::string &padTo) {
  std::map<int64_t, const EntrySpecialisation *> sizes;
  std::string all;
  int64_t numFitting = 0;
  for (const EntrySpecialisation &candidate : entry.specialisations) {
    all += (all.empty() ? "" : "; ") + formatDims(candidate.dims);
    if (!padTo.empty() && !candidate.dims.contains(padTo))
      throw usage("--pad-to " + padTo + ": entry '" + entry.name +
                  "' has no such dimension; it has " + formatDims(candidate.dims));
    if (!candidate.binds(dims))
      continue;
    ++numFitting;
    sizes[padTo.empty() ? 0 : candidate.dims.at(padTo)] = &candidate;
  }
  if (numFitting == int64_t(sizes.size()) && numFitting > 0)
    return sizes;
  throw usage("entry '" + entry.name + "' has " + (numFitting == 0 ? "no" : "several") +
              " specialisations" + (dims.empty() ? "" : " of " + formatDims(dims)) +
              "; choose with --dim among: " + all +
              (padTo.empty() ? "; --pad-to NAME takes several of one dimension" : ""));
}

/// Finds the inputs that are read from data; their first dimension is the batch.
static void findColumns(const TrainingSettings &settings, const std::string &entry,
                        TrainedEntry &found) {
  const Argument *first = nullptr;
  for (const Argument &input : found.specialisation->inputs) {
    if (input.name == kLearningRate || settings.inputs.contains(input.name))
      continue;
    std::string remedy =
        "; give the value of an input that is no data with --input " + input.name + "=VALUE";
    if (input.shape.empty())
      throw usage("input " + input.describe() + " of entry '" + entry +
                  "' has no dimension for samples" + remedy);
    if (first && input.shape.front() != first->shape.front())
      throw usage("inputs " + first->describe() + " and " + input.describe() + " of entry '" +
                  entry + "' have different numbers of samples" + remedy);
    if (!first)
      first = &input;
    found.columns.push_back(input.name);
  }
  if (!first)
    throw usage("entry '" + entry + "' has no input to train on");
  found.batch = first->shape.front();
  if (found.batch < 1)
    throw usage("input " + first->describe() + " of entry '" + entry + "' has no samples");
}

/// Finds the dimensions of an input that vary with the sample's length, and the padding: zero, or
/// the label that no loss and no metric counts.
static void findPadding(const Plan &plan, const Argument &input, const std::string &padTo,
                        DataSet::Column &column) {
  if (!padTo.empty() && input.dimNames.front() == padTo)
    throw usage("--pad-to " + padTo + ": it is what counts the samples of input " +
                input.describe());
  for (size_t i = 1; i < input.dimNames.size(); ++i)
    if (!padTo.empty() && input.dimNames[i] == padTo)
      column.padded.push_back(i - 1);
  const TrainingTarget *target = plan.getTraining()->findTarget(input.name);
  if (column.padded.empty() || !target)
    return;
  if (!target->ignored)
    throw usage("--pad-to " + padTo + ": '" + input.name +
                "' cannot be padded, since no label of it counts for nothing; compile the model "
                "with the same ignore_index= in each loss and metric of '" +
                input.name + "'");
  auto [least, most] = getRange(input.type);
  // A double also holds the least number of 64 bits.
  bool isLeast =
      input.type == DataType::I64 && *target->ignored == std::numeric_limits<int64_t>::min();
  if (!isLeast && (*target->ignored < int64_t(least) || *target->ignored > int64_t(most)))
    throw usage("--pad-to " + padTo + ": '" + input.name + "' cannot be padded, since " +
                std::string(nameOf(input.type)) + " does not hold the ignored label " +
                std::to_string(*target->ignored) +
                "; compile the model with an ignore_index= from " + std::to_string(int64_t(least)) +
                " to " + std::to_string(int64_t(most)));
  column.padding = double(*target->ignored);
}

static void openData(const Plan &plan, const fs::path &folder, const std::string &padTo,
                     TrainedEntry &entry) {
  std::vector<DataSet::Column> columns;
  bool isPadded = false;
  for (const std::string &name : entry.columns) {
    const Argument &input = *entry.specialisation->findInput(name);
    DataSet::Column &column = columns.emplace_back(
        DataSet::Column{name, input.type, {input.shape.begin() + 1, input.shape.end()}});
    findPadding(plan, input, padTo, column);
    isPadded = isPadded || !column.padded.empty();
  }
  if (!padTo.empty() && !isPadded)
    throw usage("--pad-to " + padTo + ": no input that is read from data has this dimension");
  if (std::ranges::count(entry.columns, padTo))
    throw usage("--pad-to " + padTo + ": an input has this name, too, so that " +
                getNpyName(padTo) + " cannot say how long each sample is");
  entry.data = DataSet::open(folder, columns, padTo, entry.sizes.rbegin()->first);
  if (entry.data.getNumSamples() < entry.batch)
    throw usage("data " + folder.string() + " has " + std::to_string(entry.data.getNumSamples()) +
                " samples, fewer than the plan's batch of " + std::to_string(entry.batch) +
                "; compile the model for a smaller one");
}

static TrainedEntry openEntry(const Plan &plan, const char *name, const TrainingSettings &settings,
                              const fs::path &data) {
  TrainedEntry entry;
  entry.sizes = choose(plan.getEntry(name), settings.dims, settings.padTo);
  entry.specialisation = entry.sizes.rbegin()->second;
  findColumns(settings, name, entry);
  for (const Argument &output : entry.specialisation->outputs)
    if (output.type == DataType::F32 && output.shape.empty())
      entry.values.push_back(output.name);
  openData(plan, data, settings.padTo, entry);
  for (const char *needed : {"loss", "count"})
    if (!std::ranges::count(entry.values, needed))
      throw usage("entry '" + std::string(name) + "' has no output '" + needed + "' f32 []");
  for (const std::string &term : plan.getTraining()->terms)
    for (const std::string &needed : {term, term + ".count"})
      if (!std::ranges::count(entry.values, needed))
        throw usage("entry '" + std::string(name) + "' has no output '" + needed +
                    "' f32 [], a part of its loss");
  return entry;
}

/// Makes the values of inputs that are not read from data.
static void makeConstants(TrainingSetup &setup) {
  for (const auto &[name, text] : setup.settings.inputs) {
    const Argument *input = setup.step.specialisation->findInput(name);
    if (!input && setup.eval)
      input = setup.eval->specialisation->findInput(name);
    if (!input || name == kLearningRate)
      throw usage("--input " + name + ": there is no such input; the plan takes the data " + [&] {
        std::string names;
        for (const std::string &each : setup.step.columns)
          names += (names.empty() ? "" : ", ") + each;
        return names;
      }());
    const std::string &padTo = setup.settings.padTo;
    if (!padTo.empty() && std::ranges::count(input->dimNames, padTo))
      throw usage("--input " + name + ": it has the dimension '" + padTo +
                  "' of --pad-to, whose size each batch chooses; give it as data");
    for (const fs::path &data : {setup.settings.data, setup.settings.evalData})
      if (!data.empty() && DataSet::contains(data, name))
        throw usage("--input " + name + ": data " + data.string() + " has " + getNpyName(name) +
                    ", which this value would replace; leave the option or the array out");
    std::optional<Generator> generator = Generator::parse(text);
    setup.constants[name] =
        generator ? generate(*generator, name, input->type, input->shape, setup.begin.seed)
                  : adaptInput(readInput(text), text, name, input->type, input->shape);
  }
}

static void findStates(TrainingSetup &setup) {
  for (int stage = 0; stage < setup.plan->getNumStages(); ++stage)
    for (const schema::State &state : setup.plan->getStage(stage).states()) {
      if (state.name() == "__metadata__")
        throw usage("state '__metadata__' of the plan has the name that .safetensors files keep "
                    "for themselves, so no checkpoint can hold it; rename the weight in the model");
      setup.states[state.name()] = {DataType(state.type()),
                                    {state.global_shape().begin(), state.global_shape().end()}};
    }
}

static void requireTrains(const Plan &plan) {
  if (!plan.getTraining())
    throw usage(plan.getFolder().string() +
                " was compiled without --train; compile its model with --train --loss LOSS "
                "--optimizer OPTIMIZER");
}

//===----------------------------------------------------------------------===//
// The run's part
//===----------------------------------------------------------------------===//

static void requireOutsidePlans(const fs::path &folder, const Plan &plan) {
  std::error_code error;
  plan.requireOutside("--checkpoint-dir", folder);
  if (fs::exists(folder / "manifest.json", error))
    throw usage("--checkpoint-dir " + folder.string() +
                " is itself a plan or a checkpoint; name a folder for checkpoints alone");
}

void TrainingSetup::requireUnused() const {
  const fs::path &folder = settings.checkpoints;
  if (folder.empty())
    return;
  requireOutsidePlans(folder, *plan);
  std::vector<int64_t> steps = listCheckpoints(folder);
  if (steps.empty())
    return;
  if (!settings.resume)
    throw usage("--checkpoint-dir " + folder.string() + " has checkpoints, the last of step " +
                std::to_string(steps.back()) + "; continue it with --resume, or name a new folder");
  // Only the last --keep checkpoints and the best one are kept, of whichever run.
  std::error_code error;
  fs::path from = fs::canonical(checkpointPath, error).parent_path();
  if (!fs::equivalent(from, folder, error))
    throw usage("--checkpoint-dir " + folder.string() + " has checkpoints, the last of step " +
                std::to_string(steps.back()) + ", of another run than the one in " +
                checkpointPath.string() + " that is to be resumed; name a new folder");
  if (steps.back() > begin.step)
    throw usage("--checkpoint-dir " + folder.string() + " has a checkpoint of step " +
                std::to_string(steps.back()) + ", after step " + std::to_string(begin.step) +
                ", which is to be resumed; remove it, or name a new folder");
}

static void requireSameRun(const TrainingSetup &setup) {
  const TrainingProgress &saved = setup.checkpoint->progress;
  auto fail = [&](const std::string &what) {
    throw usage("checkpoint " + setup.checkpointPath.string() + " " + what);
  };
  if (int64_t now = setup.step.data.getNumSamples(); saved.numSamples != now)
    fail("is of a run over " + std::to_string(saved.numSamples) + " samples, but " +
         setup.settings.data.string() + " has " + std::to_string(now));
  if (setup.settings.seed && *setup.settings.seed != saved.seed)
    fail("is of a run with seed " + std::to_string(saved.seed) + ", not " +
         std::to_string(*setup.settings.seed) + "; leave --seed out to continue it");
  if (saved.step > saved.cursor)
    fail("counts " + std::to_string(saved.step) + " steps but only " +
         std::to_string(saved.cursor) + " samples");
  setup.checkpoint->requireFits(setup.states);
}

/// Reads the checkpoint to resume from, if any.
static void readCheckpoint(TrainingSetup &setup) {
  const TrainingSettings &settings = setup.settings;
  if (!settings.resume)
    return;
  fs::path from = settings.resumeFrom;
  if (from.empty()) {
    if (settings.checkpoints.empty())
      throw usage("--resume: name a checkpoint, or the folder of them with --checkpoint-dir");
    std::vector<int64_t> steps = listCheckpoints(settings.checkpoints);
    if (steps.empty())
      return;
    from = getCheckpointFolder(settings.checkpoints, steps.back());
  }
  setup.checkpointPath = findCheckpoint(from);
  setup.checkpoint = Checkpoint::read(setup.checkpointPath);
  requireSameRun(setup);
  for (const auto &file : setup.checkpoint->files) // the process that starts the ranks keeps none
    file->dropPages();
}

/// The cursor at the end of the run.
static int64_t findEnd(const TrainingSetup &setup) {
  const TrainingSettings &settings = setup.settings;
  int64_t times = settings.steps ? settings.steps : std::max<int64_t>(settings.epochs, 1);
  int64_t each = settings.steps ? setup.step.batch : setup.step.data.getNumSamples(), end = 0;
  // Leave room: the last batch may reach beyond the end.
  if (times < 0 || __builtin_mul_overflow(times, each, &end) || end > INT64_MAX / 4)
    throw usage(std::to_string(times) + " times " + std::to_string(each) +
                " samples are more than a run can count");
  return end;
}

int64_t TrainingSetup::getBatchOfAll() const {
  return !checkpoint || checkpoint->batch.value_or(step.batch) == step.batch ? step.batch : 0;
}

/// A schedule over the whole run counts steps of one size.
static void requireSameBatch(const TrainingSetup &setup) {
  if (setup.getBatchOfAll() || !setup.schedule.usesRunLength)
    return;
  int64_t saved = *setup.checkpoint->batch;
  throw usage("--lr-schedule " + setup.settings.schedule + ": checkpoint " +
              setup.checkpointPath.string() + " is of a run with batches of " +
              (saved ? std::to_string(saved) : "several sizes") + ", and the plan's have " +
              std::to_string(setup.step.batch) +
              "; give the whole run's steps with total=, of which " +
              std::to_string(setup.begin.step) + " are taken");
}

static void findRate(TrainingSetup &setup) {
  const TrainingSettings &settings = setup.settings;
  setup.learningRate = settings.learningRate.value_or(setup.plan->getTraining()->learningRate);
  setup.schedule = Schedule::parse(settings.schedule, setup.getNumSteps());
  requireSameBatch(setup);
  const Argument *input = setup.step.specialisation->findInput(kLearningRate);
  if (input && (input->type != DataType::F32 || !input->shape.empty()))
    throw usage("input " + input->describe() + " is not one f32");
  if (!input && settings.learningRate)
    throw usage("--lr has no effect: the plan's optimizer takes no learning rate");
}

TrainedEntry::Batch TrainedEntry::makeBatch(std::vector<int64_t> samples) const {
  auto size = sizes.lower_bound(data.getLongest(samples));
  assert(size != sizes.end() && "lengths are checked where they are read");
  Batch batch = {std::move(samples), size->second, {}};
  for (const std::string &name : columns)
    batch.inputs[name] = data.makeBatch(name, batch.samples, size->first);
  return batch;
}

TrainingSetup TrainingSetup::prepare(std::shared_ptr<const Plan> plan, TrainingSettings settings) {
  TrainingSetup setup;
  setup.plan = std::move(plan);
  setup.settings = std::move(settings);
  requireTrains(*setup.plan);
  findStates(setup);
  setup.step = openEntry(*setup.plan, kTrainEntry, setup.settings, setup.settings.data);
  if (!std::ranges::count(setup.step.values, "committed"))
    throw usage(std::string("entry '") + kTrainEntry + "' has no output 'committed' f32 []");
  if (!setup.settings.evalData.empty())
    setup.eval = openEntry(*setup.plan, kEvalEntry, setup.settings, setup.settings.evalData);
  else if (setup.settings.patience)
    throw usage("--patience needs --eval-data, whose loss it looks at");
  readCheckpoint(setup);
  setup.begin = setup.checkpoint ? setup.checkpoint->progress
                                 : TrainingProgress{.numSamples = setup.step.data.getNumSamples(),
                                                    .seed = setup.settings.seed.value_or(0)};
  setup.requireUnused();
  setup.order = SampleOrder(setup.begin.numSamples, setup.begin.seed);
  setup.end = findEnd(setup);
  findRate(setup);
  makeConstants(setup);
  return setup;
}

bool TrainingSetup::isEvaluatedAt(int64_t cursor) const {
  if (!eval || cursor == 0)
    return false;
  if (cursor >= end)
    return true;
  if (settings.evalEvery)
    return getStepsDone(cursor) % settings.evalEvery == 0;
  return order.getEpoch(cursor) != order.getEpoch(std::max<int64_t>(cursor - step.batch, 0));
}

int64_t TrainingSetup::getNumSteps() const {
  // The steps before a checkpoint may have had another size.
  return begin.cursor < end ? getStepsDone(begin.cursor) + getStepsDone(end - begin.cursor)
                            : getStepsDone(end);
}

int64_t TrainingSetup::getStepsDone(int64_t cursor) const {
  return cursor / step.batch + (cursor % step.batch ? 1 : 0);
}
