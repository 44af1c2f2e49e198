//===- Trainer.cpp - the training loop ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Trainer.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "runtime/core/IndexCheck.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"
#include "support/Sha256.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

Trainer::Trainer(const TrainingSetup &setup, Session &session, TrainingObserver *observer,
                 std::function<int()> getSignal)
    : setup(setup), session(session), observer(observer), getSignal(std::move(getSignal)),
      writer(setup.settings.checkpoints, setup.settings.keep) {
  result.progress = setup.begin;
  shownStep = setup.begin.step; // shown before the checkpoint
  if (setup.checkpoint)
    result.evaluations = setup.checkpoint->evaluations;
}

Trainer::~Trainer() = default;

TrainingResult Trainer::run() {
  agree();
  restore();
  exchange(nullptr);
  noteLeftOut();
  if (setup.isEvaluatedFirst() && !result.signal)
    evaluate();
  if (!isOver())
    prefetch(result.progress.cursor);
  if (!isOver() && session.getRank() == 0 && isSavedBeforeTheEnd())
    writer.prepare(setup.states);
  while (!isOver()) {
    takeStep();
    showParameters();
    int64_t cursor = result.progress.cursor, every = setup.settings.checkpointEvery;
    bool isSaved = every && setup.getStepsDone(cursor) % every == 0;
    if (isSaved || isOver())
      save();
    // After the checkpoint, so that nothing that happens in a long evaluation loses it.
    if (setup.isEvaluatedAt(cursor) && !result.signal)
      evaluate();
    if (isOver())
      save();
    if (session.getRank() == 0)
      writer.check();
  }
  writer.finish(session);
  return result;
}

void Trainer::noteLeftOut() const {
  int64_t left = setup.eval ? setup.eval->data.getNumSamples() % setup.eval->batch : 0;
  if (left && observer)
    observer->onNote("evaluations leave out the last " + std::to_string(left) +
                     (left == 1 ? " sample" : " samples") + ", which fill no batch of " +
                     std::to_string(setup.eval->batch));
}

bool Trainer::isSavedBeforeTheEnd() const {
  int64_t every = setup.settings.checkpointEvery;
  return !setup.settings.checkpoints.empty() && every &&
         setup.getStepsDone(result.progress.cursor) / every < (setup.getNumSteps() - 1) / every;
}

bool Trainer::isOver() const {
  return result.signal || result.stoppedEarly || result.progress.cursor >= setup.end;
}

//===----------------------------------------------------------------------===//
// Beginning
//===----------------------------------------------------------------------===//

/// Describes what must be equal on all ranks, except weights, which the session checks.
static std::string describeSetup(const TrainingSetup &setup) {
  const TrainingSettings &settings = setup.settings;
  auto describe = [](const TrainedEntry &entry) {
    std::string text =
        std::to_string(entry.data.getNumSamples()) + " " + entry.data.getFingerprint();
    for (const auto &[size, specialisation] : entry.sizes)
      text += " " + formatDims(specialisation->dims);
    return text;
  };
  const TrainingProgress &begin = setup.begin;
  std::string text = describe(setup.step) + ";" + (setup.eval ? describe(*setup.eval) : "");
  for (int64_t number : {setup.end, begin.step, begin.cursor, begin.numSamples, settings.evalEvery,
                         settings.patience, settings.checkpointEvery, settings.histogramsEvery})
    text += " " + std::to_string(number);
  char rate[64];
  snprintf(rate, sizeof rate, "%a", setup.learningRate); // all its bits
  text += " " + std::to_string(begin.seed) + " " + rate + " " + settings.schedule + " " +
          settings.padTo + (settings.skipNonFinite ? " skip" : "") +
          (settings.checkpoints.empty() ? "" : " save");
  for (const auto &[name, array] : setup.constants)
    text += ";" + name + sha256({array.getData(), array.getNumBytes()});
  if (setup.checkpoint) // the manifest, which has the digests of the states
    text += ";resumed " + sha256(setup.checkpoint->files.front()->getBytes());
  return text;
}

/// Checks that ranks have equal setups: with another launcher each rank prepares its own.
void Trainer::agree() {
  if (setup.plan->getMesh().getNumRanks() == 1)
    return;
  std::string digest = sha256(describeSetup(setup));
  auto all = session.exchange(std::as_bytes(std::span(digest.data(), digest.size())));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ErrorCode::InvalidArgument,
                  "rank " + std::to_string(rank) +
                      " has other data, options or checkpoints than rank 0; give all ranks the "
                      "same command line and the same files");
}

void Trainer::restore() {
  if (!setup.checkpoint)
    return;
  for (const auto &[name, array] : setup.checkpoint->states)
    session.setGlobalState(name, array);
  setup.checkpoint->requireUnchanged();
  for (const auto &file : setup.checkpoint->files)
    file->dropPages();
  result.checkpoint = setup.checkpointPath;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void Trainer::prefetch(int64_t cursor) {
  next = std::async(std::launch::async, [this, cursor] {
    return setup.step.makeBatch(setup.order.getBatch(cursor, setup.step.batch));
  });
}

/// "step 5 (samples 32 to 39 of epoch 1)", with samples numbered in the order of reading.
std::string Trainer::describeStep(int64_t cursor) const {
  int64_t numSamples = setup.begin.numSamples, last = cursor + setup.step.batch - 1;
  int64_t firstEpoch = setup.order.getEpoch(cursor), lastEpoch = setup.order.getEpoch(last);
  auto describeEpoch = [](int64_t epoch) { return " of epoch " + std::to_string(epoch + 1); };
  return "step " + std::to_string(setup.getStepsDone(cursor) + 1) + " (samples " +
         std::to_string(cursor % numSamples) +
         (firstEpoch == lastEpoch ? "" : describeEpoch(firstEpoch)) + " to " +
         std::to_string(last % numSamples) + describeEpoch(lastEpoch) + ")";
}

/// Throws naming a sample whose label is no class: the model would compute NaN.
static void requireLabels(const EntrySpecialisation &specialisation, const std::string &name,
                          const HostArray &array, const std::vector<int64_t> &samples) {
  if (auto wrong = findWrongLabel(*specialisation.findInput(name), array))
    throw Error(ErrorCode::InvalidArgument,
                getNpyName(name) + " holds " + wrong->holds + " in sample " +
                    std::to_string(samples[size_t(wrong->row)]) + "; " + wrong->why);
}

/// Throws InvalidArgument if the batch does not fit the entry or has a label that is no class.
void Trainer::bind(const char *entry, const Batch &batch) {
  for (const auto &[input, array] : setup.constants)
    if (batch.specialisation->findInput(input))
      session.bind(input, array);
  for (const auto &[input, array] : batch.inputs) {
    requireLabels(*batch.specialisation, input, array, batch.samples);
    session.bind(input, array);
  }
  session.checkRun(entry, batch.specialisation->dims);
}

/// Collective. Saves the states before an error that all ranks throw. Returns the error's remedy,
/// if there is one.
std::string Trainer::saveBeforeError() {
  save();
  writer.finish(session);
  exchange(nullptr); // a rank that exits earlier would end the job while others save
  return result.checkpoint.empty() ? "" : "; --resume continues from " + result.checkpoint.string();
}

/// The error of data or of a step that changed nothing, with its remedy: the states are saved. All
/// ranks read the same data and come here.
Error Trainer::refuseData(const Error &error) {
  if (error.getCode() != ErrorCode::InvalidArgument) // perhaps only this rank cannot read it
    return error;
  try {
    return {error.getCode(), error.what() + saveBeforeError()};
  } catch (const Error &failure) { // on rank 0, whose end is the others' error
    bool isOwn = failure.getCode() == ErrorCode::InvalidArgument;
    return {error.getCode(), error.what() + (isOwn ? std::string("; ") + failure.what() : "")};
  }
}

/// Runs the entry on what is bound.
TrainingValues Trainer::runEntry(const char *name, const TrainedEntry &entry, const Batch &batch) {
  session.run(name, batch.specialisation->dims);
  return *exchange(&entry);
}

/// Gives all ranks the values of the entry's last run, which only some stage's ranks have, and the
/// signals that ranks received.
std::optional<TrainingValues> Trainer::exchange(const TrainedEntry *entry) {
  std::vector<float> mine = {getSignal ? float(getSignal()) : 0.f};
  size_t count = entry ? entry->values.size() : 0;
  for (size_t i = 0; i < count; ++i) {
    HostArray value = session.getOutputShard(entry->values[i]);
    mine.push_back(value.isNull() ? 0.f : 1.f);
    mine.push_back(value.isNull() ? 0.f : value.as<float>()[0]);
  }
  std::optional<TrainingValues> values;
  std::vector<std::vector<std::byte>> all = session.exchange(std::as_bytes(std::span(mine)));
  for (size_t rank = all.size(); rank-- > 0;) { // the lowest rank's values win
    std::vector<float> theirs(mine.size());
    std::memcpy(theirs.data(), all[rank].data(), all[rank].size());
    if (theirs[0] != 0)
      result.signal = int(theirs[0]);
    for (size_t i = 0; i < count; ++i)
      if (theirs[1 + 2 * i] != 0)
        (values ? *values : values.emplace())[entry->values[i]] = double(theirs[2 + 2 * i]);
  }
  if (entry && (!values || values->size() != count))
    throw Error(ErrorCode::InvalidPlan, "no rank makes some output of a training entry");
  return values;
}

void Trainer::takeStep() {
  Clock::time_point begin = Clock::now();
  TrainingProgress &progress = result.progress;
  StepRecord record;
  record.cursor = progress.cursor;
  record.epoch = setup.order.getEpoch(progress.cursor) + 1;
  record.step = setup.getStepsDone(progress.cursor) + 1;
  record.learningRate = setup.learningRate * setup.schedule.getFactor(progress.step);

  if (setup.step.specialisation->findInput(kLearningRate)) {
    HostArray rate = HostArray::allocate(DataType::F32, {});
    rate.as<float>()[0] = float(record.learningRate);
    session.bind(kLearningRate, rate);
  }
  Batch batch;
  try {
    batch = next.get();
    bind(kTrainEntry, batch);
  } catch (const Error &error) {
    throw refuseData(Error(describeStep(progress.cursor), error));
  }
  int64_t following = progress.cursor + setup.step.batch;
  if (following < setup.end)
    prefetch(following);
  keepAttempt();
  try {
    record.values = runEntry(kTrainEntry, setup.step, batch);
  } catch (const Error &error) {
    throw Error(describeStep(progress.cursor), error);
  }
  record.committed = record.values.at("committed") == 1; // false for NaN
  record.isScaleTooLarge = isScaleTooLarge(record);
  record.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  if (!record.committed && !record.isScaleTooLarge)
    refuseStep(record, batch);
  result.skipped += record.isScaleTooLarge;
  result.rescaled += record.isScaleTooLarge;
  ++result.steps;
  progress.step += record.committed;
  progress.cursor = following;
  record.taken = progress.step;
  if (record.committed)
    result.loss = record.values.at("loss");
  if (observer)
    observer->onStep(record);
}

/// Passes every parameter's value to the observer when histograms are due.
void Trainer::showParameters() {
  int64_t every = setup.settings.histogramsEvery, taken = result.progress.step;
  if (!every || taken % every != 0 || taken == shownStep)
    return;
  shownStep = taken;
  for (const auto &[name, role] : getRoles(*setup.plan))
    if (role == StateRole::Parameter)
      if (HostArray whole = session.gatherState(name); !whole.isNull() && observer)
        observer->onParameter(taken, name, whole);
}

/// Whether a step was not taken because gradients overflow at the present loss scale: the loss
/// itself is finite, and the scale can still fall. That is how a dynamic scale adapts.
bool Trainer::isScaleTooLarge(const StepRecord &record) const {
  const std::optional<double> &least = setup.plan->getTraining()->leastLossScale;
  auto scale = record.values.find(kLossScale);
  return !record.committed && least && scale != record.values.end() && scale->second > *least &&
         std::isfinite(record.values.at("loss"));
}

/// The first sample that is not finite: "; x.npy holds nan in sample 77", or nothing.
static std::string findNonFinite(const TrainedEntry::Batch &batch) {
  for (const auto &[name, array] : batch.inputs) {
    int64_t each = array.getNumElements() / int64_t(batch.samples.size());
    for (int64_t i = 0; isFloat(array.getType()) && i < array.getNumElements(); ++i)
      if (double value = getElement(array, i); !std::isfinite(value))
        return "; " + getNpyName(name) + " holds " + (std::isnan(value) ? "nan" : "inf") +
               " in sample " + std::to_string(batch.samples[size_t(i / each)]);
  }
  return "";
}

static std::string formatNumber(double value) {
  char text[64];
  snprintf(text, sizeof text, "%g", std::isnan(value) ? NAN : value); // without its sign
  return text;
}

/// Keeps what takeBackAttempt sets; not if the run goes on after such a step.
void Trainer::keepAttempt() {
  const Plan &plan = *setup.plan;
  if (setup.settings.skipNonFinite)
    return;
  for (const schema::State &state :
       plan.getStage(plan.getMesh().getStage(session.getRank())).states())
    if (state.role() == schema::COUNTER && std::ranges::count(kAttemptStates, state.name()))
      beforeAttempt[state.name()] = session.getState(state.name());
}

/// Takes back what a step that is not taken changes: an attempt that is made again is the same.
void Trainer::takeBackAttempt() {
  for (const auto &[name, value] : beforeAttempt)
    session.setState(name, value);
}

/// Reports a step that was not taken, or ends the run.
void Trainer::refuseStep(const StepRecord &record, const Batch &batch) {
  std::string line = describeStep(record.cursor) + " is not taken: the loss is " +
                     formatNumber(record.values.at("loss"));
  if (auto norm = record.values.find("gradient_norm"); norm != record.values.end())
    line += ", the gradient norm " + formatNumber(norm->second);
  if (auto scale = record.values.find(kLossScale); scale != record.values.end())
    line += ", the scale of the loss " + formatNumber(scale->second);
  line += findNonFinite(batch);
  if (setup.settings.skipNonFinite) {
    ++result.skipped;
    if (observer)
      observer->onNote(line);
    return;
  }
  if (observer)
    observer->onStep(record);
  takeBackAttempt(); // all other states are those before the step
  throw refuseData({ErrorCode::InvalidArgument, line + "; --on-nan skip goes on without it"});
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// The name of the count that a mean is over.
static std::string findCount(const std::string &mean, const TrainingValues &values) {
  std::string own = mean + ".count";
  return isMetric(mean) && values.contains(own) ? own : "count";
}

static bool isCount(const std::string &name) { return name == "count" || name.ends_with(".count"); }

void Trainer::Means::add(const TrainingValues &values) {
  for (const auto &[name, value] : values) {
    double count = values.at(isCount(name) ? name : findCount(name, values));
    if (isCount(name))
      sums[name] += count;
    else if (count != 0) // at 0 no label of this batch counts
      sums[name] += value * count;
  }
}

TrainingValues Trainer::Means::get() const {
  TrainingValues means;
  for (const auto &[name, sum] : sums)
    means[name] = isCount(name) ? sum : sum / sums.at(findCount(name, sums));
  if (terms.empty())
    return means;
  // Each loss has its own count. A loss whose count is 0 adds nothing, as in a step.
  means.erase("loss");
  for (const std::string &term : terms)
    if (means.contains(term))
      means["loss"] += means.at(term);
  return means;
}

/// Evaluates all full batches of the evaluation data. A signal ends it without a result.
void Trainer::evaluate() {
  const TrainedEntry &entry = *setup.eval;
  EvaluationRecord record;
  record.step = setup.getStepsDone(result.progress.cursor);
  record.taken = result.progress.step;
  Means means(setup.plan->getTraining()->terms);
  std::vector<int64_t> samples(size_t(entry.batch));
  for (int64_t first = 0; first + entry.batch <= entry.data.getNumSamples(); first += entry.batch) {
    std::iota(samples.begin(), samples.end(), first);
    std::string where = "evaluation (samples " + std::to_string(first) + " to " +
                        std::to_string(first + entry.batch - 1) + ")";
    Batch batch;
    try {
      batch = entry.makeBatch(samples);
      bind(kEvalEntry, batch);
    } catch (const Error &error) {
      throw refuseData(Error(where, error));
    }
    TrainingValues values;
    try {
      values = runEntry(kEvalEntry, entry, batch);
    } catch (const Error &error) {
      throw Error(where, error);
    }
    if (result.signal)
      return;
    means.add(values);
  }
  record.values = means.get();
  double loss = record.values.contains("loss") ? record.values.at("loss") : std::nan("");
  EvaluationHistory &history = result.evaluations;
  evaluationsBefore = history;
  evaluatedCursor = result.progress.cursor;
  record.isBest = loss < history.bestLoss;
  if (record.isBest) {
    history.bestLoss = loss;
    history.bestStep = record.taken;
  }
  history.sinceBest = record.isBest ? 0 : history.sinceBest + 1;
  history.atLastStep = history.lastStep == record.taken ? history.atLastStep + 1 : 1;
  history.lastStep = record.taken;
  result.stoppedEarly = setup.settings.patience && history.sinceBest >= setup.settings.patience;
  result.evaluation = record;
  if (observer)
    observer->onEvaluation(record);
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

void Trainer::save() {
  const TrainingProgress &progress = result.progress;
  if (setup.settings.checkpoints.empty() || progress.cursor == savedCursor)
    return;
  savedCursor = progress.cursor;
  writer.finish(session);
  Checkpoint checkpoint;
  checkpoint.progress = progress;
  checkpoint.batch = setup.getBatchOfAll();
  checkpoint.isEvaluated = setup.isEvaluatedAt(progress.cursor);
  // A run that continues here evaluates here.
  checkpoint.evaluations =
      evaluatedCursor == progress.cursor ? evaluationsBefore : result.evaluations;
  checkpoint.roles = getRoles(*setup.plan);
  checkpoint.ties = getTiedWeights(*setup.plan);
  for (const auto &[name, wanted] : setup.states)
    checkpoint.states[name] = session.gatherState(name, writer.takeSpare(name));
  result.checkpoint = getCheckpointFolder(setup.settings.checkpoints, progress.step);
  if (observer)
    observer->onCheckpoint(result.checkpoint);
  if (session.getRank() == 0)
    writer.start(std::move(checkpoint), [this] {
      if (observer)
        observer->onSaving();
    });
}
