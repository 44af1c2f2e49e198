//===- TrainerTest.cpp - the training loop --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Sample i of ten has x[0] = 4^i, so that a loss says how often each sample was in a batch, and the
// state w says at what rate it was read.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Trainer.h"

#include "runtime/arrays/Npy.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/TrainingLog.h"
#include "test/runtime/TrainingPlan.h"

#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;
namespace fs = std::filesystem;

/// The sizes of files when the disk was asked to have them, by number; stands before the system's.
static std::map<ino_t, off_t> synced;
static std::mutex syncing;
extern "C" int fsync(int file) {
  struct stat status{};
  std::lock_guard lock(syncing);
  if (fstat(file, &status) == 0)
    synced[status.st_ino] = status.st_size;
  return int(syscall(SYS_fsync, file));
}

namespace {

constexpr int64_t batch = TrainingPlan::batch, width = TrainingPlan::width, numSamples = 10;

struct Recorder : TrainingObserver {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::vector<fs::path> checkpoints;
  std::vector<std::string> notes;
  std::unique_ptr<TrainingLog> log;

  void onStep(const StepRecord &record) override {
    steps.push_back(record);
    if (log)
      log->add(record);
  }
  void onEvaluation(const EvaluationRecord &record) override {
    evaluations.push_back(record);
    if (log)
      log->add(record);
  }
  void onCheckpoint(const fs::path &path) override {
    checkpoints.push_back(path);
    if (log)
      log->flush();
  }
  void onSaving() override {
    if (log)
      log->sync();
  }
  void onNote(const std::string &line) override { notes.push_back(line); }
};

/// What a run did.
struct Trained {
  std::vector<TrainingResult> results; // of the ranks
  std::vector<Recorder> recorders;
  std::map<std::string, std::vector<std::byte>> states;
  std::string error;
  fs::path keptLog;

  const std::vector<StepRecord> &getSteps() const { return recorders[0].steps; }
  /// The samples of all steps, by their digits in the losses; those of a step ascend.
  std::vector<int64_t> getSamples() const {
    std::vector<int64_t> samples;
    for (const StepRecord &step : getSteps())
      for (int64_t i = 0, digits = int64_t(step.values.at("loss")); digits; ++i, digits /= 4)
        samples.insert(samples.end(), size_t(digits % 4), i);
    return samples;
  }
};

class Training : public testing::Test {
protected:
  TemporaryFolder folder;
  fs::path data = folder.getPath() / "data", evalData = folder.getPath() / "eval",
           checkpoints = folder.getPath() / "checkpoints";
  TrainingSettings settings;
  bool hasMetric = false; // of the plan
  std::function<void(TrainingSetup &second)> afterSetup;

  Training() {
    writeData(data, numSamples);
    settings.data = data;
  }

  static void writeData(const fs::path &to, int64_t samples, const std::vector<int64_t> &bad = {}) {
    fs::create_directories(to);
    HostArray x = HostArray::allocate(DataType::F32, {samples, width});
    HostArray ok = HostArray::allocate(DataType::F32, {samples, 1});
    for (int64_t i = 0; i < samples; ++i) {
      x.as<float>()[size_t(i * width)] = std::ldexp(1.f, int(2 * i));
      ok.as<float>()[size_t(i)] = 1;
    }
    for (int64_t i : bad)
      ok.as<float>()[size_t(i)] = 1 - batch; // the batch's sum is 0
    writeNpy(to / "x.npy", x);
    writeNpy(to / "ok.npy", ok);
  }

  std::shared_ptr<const Plan> makePlan(int ranks = 1) {
    TrainingPlan plan(ranks, hasMetric);
    return Plan::load(plan.builder.write(folder.getPath() / std::to_string(ranks)));
  }

  /// Trains on `ranks` ranks; `getSignal` is asked with the rank's number and its steps.
  Trained train(int ranks = 1, const std::function<int(int, size_t)> &getSignal = nullptr,
                const fs::path &log = {}) {
    std::shared_ptr<const Plan> plan = makePlan(ranks);
    Trained run;
    InProcessJob job(plan);
    TrainingSetup setup = TrainingSetup::prepare(plan, settings);
    TrainingSetup second = setup; // of rank 1, as where another launcher started the ranks
    if (afterSetup)
      afterSetup(second);
    run.results.resize(size_t(ranks));
    run.recorders.resize(size_t(ranks));
    if (!log.empty())
      run.recorders[0].log = std::make_unique<TrainingLog>(log, setup);
    std::vector<std::string> errors(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < size_t(ranks); ++rank)
      threads.emplace_back([&, rank] {
        Session &session = job.getSession(int(rank));
        Recorder &recorder = run.recorders[rank];
        try {
          Trainer trainer(rank == 1 ? second : setup, session, &recorder, [&] {
            return getSignal ? getSignal(int(rank), recorder.steps.size()) : 0;
          });
          run.results[rank] = trainer.run();
          for (const char *name : {"w", "train/step"}) {
            HostArray whole = session.gatherState(name);
            if (rank == 0)
              run.states[name].assign(whole.getData(), whole.getData() + whole.getNumBytes());
          }
        } catch (const Error &error) {
          errors[rank] = error.what();
          session.abort(error.what());
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    run.error = errors[0];
    if (std::unique_ptr<TrainingLog> closed = std::move(run.recorders[0].log))
      run.keptLog = closed->getKept();
    return run;
  }

  std::string getRefusal() {
    try {
      TrainingSetup::prepare(makePlan(), settings);
    } catch (const Error &error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

  static std::vector<float> toFloats(const std::vector<std::byte> &bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

std::vector<int64_t> repeat(int64_t times) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < numSamples * times; ++i)
    samples.push_back(i % numSamples);
  return samples;
}

TEST_F(Training, ReadsEachSampleOfAnEpochOnce) {
  settings.epochs = 2; // 20 samples: 5 batches of 4
  settings.seed = 3;
  Trained run = train();
  ASSERT_EQ(run.error, "");
  ASSERT_EQ(run.getSteps().size(), 5u);
  EXPECT_THAT(run.getSamples(), UnorderedElementsAreArray(repeat(2)));
  SampleOrder order(numSamples, 3);
  for (const StepRecord &step : run.getSteps()) {
    float loss = 0;
    for (int64_t sample : order.getBatch(step.cursor, batch))
      loss += std::ldexp(1.f, int(2 * sample));
    EXPECT_EQ(step.values.at("loss"), loss) << step.step;
    EXPECT_EQ(step.values.at("count"), batch);
    EXPECT_EQ(step.learningRate, 0.5); // the plan's
  }
  EXPECT_EQ(run.getSteps()[3].epoch, 2);
  EXPECT_EQ(run.results[0].progress,
            (TrainingProgress{.step = 5, .cursor = 20, .numSamples = 10, .seed = 3}));
  EXPECT_THAT(toFloats(run.states["w"]), ElementsAre(349525, 0, 0, 0)); // 2 * 0.5 * each
  EXPECT_THAT(toFloats(run.states["train/step"]), ElementsAre(5));
}

TEST_F(Training, AnEpochThatNoBatchEndsTakesOneMore) {
  settings.epochs = 1;
  EXPECT_EQ(train().getSteps().size(), 3u);
  settings.epochs = 0; // one epoch is what is meant
  EXPECT_EQ(train().getSteps().size(), 3u);
  settings.steps = 7;
  EXPECT_EQ(train().getSteps().size(), 7u);
}

TEST_F(Training, TheRateFollowsTheSchedule) {
  settings.steps = 4;
  settings.learningRate = 2;
  settings.schedule = "linear(warmup=2)";
  Trained run = train();
  std::vector<double> rates, steps;
  double w = 0;
  for (const StepRecord &step : run.getSteps()) {
    rates.push_back(step.learningRate);
    EXPECT_EQ(step.values.at("gradient_norm"), step.learningRate); // what the plan was given
    w += step.learningRate * step.values.at("loss");
  }
  EXPECT_THAT(rates, ElementsAre(1, 2, 2, 1));
  EXPECT_EQ(toFloats(run.states["w"])[0], w);
}

/// Also the values in observers of other ranks than 0.
TEST_F(Training, AllNumbersOfRanksTrainAlike) {
  writeData(evalData, 9);
  settings.evalData = evalData;
  settings.epochs = 4;
  settings.schedule = "step(every=3, gamma=0.5)";
  Trained one = train();
  ASSERT_EQ(one.error, "");
  for (int ranks : {2, 4}) {
    Trained run = train(ranks);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(run.states, one.states) << ranks;
    for (const Recorder &recorder : run.recorders) {
      ASSERT_EQ(recorder.steps.size(), one.getSteps().size());
      for (size_t i = 0; i < recorder.steps.size(); ++i)
        EXPECT_EQ(recorder.steps[i].values, one.getSteps()[i].values);
      ASSERT_EQ(recorder.evaluations.size(), 4u);
      for (size_t i = 0; i < 4; ++i)
        EXPECT_EQ(recorder.evaluations[i].values, one.recorders[0].evaluations[i].values);
    }
  }
}

TEST_F(Training, EvaluationsAreMeansOverWholeBatches) {
  writeData(evalData, 9);
  settings.evalData = evalData;
  settings.steps = 5;
  settings.evalEvery = 2;
  Trained run = train();
  const std::vector<EvaluationRecord> &evaluations = run.recorders[0].evaluations;
  ASSERT_EQ(evaluations.size(), 3u);
  double w = 0;
  for (size_t i = 0; i < 5; ++i) {
    w += 0.5 * run.getSteps()[i].values.at("loss");
    if (i == 1)
      EXPECT_EQ(evaluations[0].values.at("loss"), w);
  }
  EXPECT_EQ(evaluations[2].step, 5);
  EXPECT_EQ(evaluations[2].values.at("loss"), w);
  EXPECT_EQ(evaluations[0].values.at("count"), 8);
  EXPECT_EQ(evaluations[0].values.at("seen"), (85 + 21760) / 2.0); // samples 0 to 3 and 4 to 7
  EXPECT_THAT(run.recorders[0].notes, ElementsAre(HasSubstr("the last 1 sample, which fill")));
}

/// Accuracy is x[0] summed over a batch, and what it counts is x[1].
TEST_F(Training, EachMetricIsAMeanOverWhatItCounts) {
  writeData(evalData, 12);
  HostArray x = HostArray::allocate(DataType::F32, {12, width});
  for (auto [sample, value, count] : {std::tuple(0, 10.f, 1.f), {4, 30.f, 3.f}, {8, 99.f, 0.f}}) {
    x.as<float>()[size_t(sample * width)] = value;
    x.as<float>()[size_t(sample * width + 1)] = count;
  }
  writeNpy(evalData / "x.npy", x);
  settings.evalData = evalData;
  settings.steps = 1;
  hasMetric = true;
  fs::path log = folder.getPath() / "log.csv";
  Trained run = train(2, nullptr, log);
  ASSERT_EQ(run.error, "");
  const TrainingValues &values = run.recorders[0].evaluations.at(0).values;
  EXPECT_EQ(values.at("accuracy"), (10 * 1 + 30 * 3) / 4.0);
  EXPECT_EQ(values.at("accuracy.count"), 4);
  EXPECT_EQ(values.at("count"), 12);
  EXPECT_EQ(values.at("seen"), (10 + 30 + 99) / 3.0); // has no count of its own
  std::ifstream file(log);
  std::string header;
  std::getline(file, header);
  EXPECT_THAT(header, testing::EndsWith(",ms,eval_loss,eval_seen,eval_accuracy"));
}

TEST_F(Training, StopsWhenTheLossDoesNotFall) {
  writeData(evalData, 4);
  settings.evalData = evalData;
  settings.steps = 100;
  settings.evalEvery = 3;
  settings.patience = 2;
  Trained run = train(2); // the loss is w, which grows
  EXPECT_EQ(run.getSteps().size(), 9u);
  for (const TrainingResult &result : run.results)
    EXPECT_TRUE(result.stoppedEarly);
  EXPECT_TRUE(run.recorders[0].evaluations[0].isBest);
  EXPECT_FALSE(run.recorders[0].evaluations[1].isBest);
}

TEST_F(Training, ContinuesBitForBitOnAnyNumberOfRanks) {
  settings.steps = 11;
  settings.schedule = "cosine(warmup=3, min=0.25)";
  Trained whole = train();
  settings.checkpoints = checkpoints;
  settings.checkpointEvery = 2;
  // Rank 1 is interrupted in its fifth step, in the middle of an epoch: all stop there.
  Trained first = train(2, [](int rank, size_t steps) { return rank == 1 && steps == 4 ? 15 : 0; });
  ASSERT_EQ(first.error, "");
  for (const TrainingResult &result : first.results) {
    EXPECT_EQ(result.signal, 15);
    EXPECT_EQ(result.progress.step, 5);
    EXPECT_EQ(result.checkpoint.filename(), "step-0000000005");
  }
  EXPECT_THAT(listCheckpoints(checkpoints), ElementsAre(2, 4, 5));
  settings.resume = true;
  for (int ranks : {1, 2, 4}) {
    fs::path copy = folder.getPath() / ("copy" + std::to_string(ranks));
    fs::copy(checkpoints, copy, fs::copy_options::recursive);
    settings.checkpoints = copy;
    Trained rest = train(ranks);
    ASSERT_EQ(rest.error, "");
    EXPECT_EQ(rest.states, whole.states) << ranks;
    std::vector<StepRecord> steps = first.getSteps();
    steps.insert(steps.end(), rest.getSteps().begin(), rest.getSteps().end());
    ASSERT_EQ(steps.size(), whole.getSteps().size());
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].values, whole.getSteps()[i].values);
      EXPECT_EQ(steps[i].cursor, whole.getSteps()[i].cursor);
      EXPECT_EQ(steps[i].step, int64_t(i + 1));
    }
    EXPECT_THAT(listCheckpoints(copy), ElementsAre(8, 10, 11)); // three are kept
  }
}

TEST_F(Training, AnEndedRunContinuesWithMore) {
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  train();
  settings.resume = true;
  EXPECT_EQ(train().getSteps().size(), 0u);
  settings.steps = 3;
  EXPECT_EQ(train().getSteps().size(), 1u);
}

TEST_F(Training, StepsThatAreNotTakenStopTheRun) {
  writeData(data, numSamples, {7});
  settings.epochs = 3;
  settings.seed = 5;
  settings.checkpoints = checkpoints;
  int64_t at = 0;
  for (SampleOrder order(numSamples, 5); order.getSample(at) != 7;)
    ++at;
  int64_t bad = at / batch; // the step
  fs::path log = folder.getPath() / "log.csv";
  Trained run = train(2, nullptr, log);
  EXPECT_THAT(run.error,
              AllOf(HasSubstr("step " + std::to_string(bad + 1) + " (samples "),
                    HasSubstr("is not taken: the loss is "), HasSubstr("--on-nan skip")));
  ASSERT_EQ(int64_t(run.getSteps().size()), bad + 1); // what the numbers were is in the log
  EXPECT_FALSE(run.getSteps().back().committed);
  std::string row, last;
  for (std::ifstream file(log); std::getline(file, row);)
    last = row;
  EXPECT_THAT(last, testing::ContainsRegex("^" + std::to_string(bad + 1) + ",.*,0,[0-9.]+$"));
  EXPECT_THAT(listCheckpoints(checkpoints), ElementsAre(bad));

  settings.resume = true;
  settings.skipNonFinite = true;
  run = train(2);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.recorders[0].notes.size(), 3u);
  EXPECT_EQ(run.results[0].skipped, 3);
  EXPECT_EQ(run.results[0].progress.cursor, 32); // 8 steps are tried
  EXPECT_EQ(run.results[0].progress.step, 5);
  EXPECT_THAT(toFloats(run.states["train/step"]), ElementsAre(5));
}

TEST_F(Training, SamplesThatAreNotFiniteAreNamed) {
  writeData(data, numSamples, {7});
  HostArray x = HostArray::allocate(DataType::F32, {numSamples, width});
  x.as<float>()[7 * width + 2] = NAN;
  writeNpy(data / "x.npy", x);
  EXPECT_THAT(train().error, HasSubstr("x.npy holds nan in sample 7"));
}

TEST_F(Training, ACheckpointThatCannotBeWrittenEndsTheRun) {
  settings.steps = 100;
  settings.checkpoints = checkpoints;
  settings.checkpointEvery = 1;
  settings.keep = 1;
  Trained run = train(1, [&](int, size_t steps) {
    if (steps == 10) { // a file is in the way
      std::error_code error;
      fs::rename(checkpoints, folder.getPath() / "moved", error);
      writeFile(checkpoints, "");
    }
    return 0;
  });
  EXPECT_THAT(run.error, AllOf(HasSubstr("no checkpoint is saved"), HasSubstr("checkpoints")));
  EXPECT_LT(run.getSteps().size(), 100u);
  std::vector<int64_t> left = listCheckpoints(folder.getPath() / "moved");
  ASSERT_FALSE(left.empty());
  Checkpoint::read(getCheckpointFolder(folder.getPath() / "moved", left.back())); // is whole
}

/// Pages of memory that the system has given already, which copying to takes no time for.
static size_t countPages(const HostArray &array) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  auto begin = reinterpret_cast<uintptr_t>(array.getData()) / page * page;
  std::vector<unsigned char> isThere(array.getNumBytes() / page);
  if (mincore(reinterpret_cast<void *>(begin), isThere.size() * page, isThere.data()) != 0)
    return 0;
  return size_t(std::ranges::count_if(isThere, [](unsigned char page) { return page & 1; }));
}

TEST_F(Training, TheFirstCheckpointFindsMemoryAsLaterOnesDo) {
  InProcessJob job(makePlan());
  CheckpointWriter writer(checkpoints, 1);
  writer.prepare({{"w", {DataType::F32, {1 << 10, 1 << 11}}}, {"step", {DataType::I64, {}}}});
  writer.finish(job.getSession(0));
  HostArray spare = writer.takeSpare("w");
  ASSERT_FALSE(spare.isNull());
  EXPECT_THAT(spare.getShape(), ElementsAre(1 << 10, 1 << 11));
  EXPECT_EQ(countPages(spare), spare.getNumBytes() / size_t(sysconf(_SC_PAGESIZE)));
  EXPECT_FALSE(writer.takeSpare("step").isNull());
  EXPECT_TRUE(writer.takeSpare("w").isNull()); // taken
  // Memory that is merely asked for has next to none, or the count tells nothing.
  HostArray fresh = HostArray::allocate(DataType::F32, {1 << 12, 1 << 11});
  EXPECT_LT(countPages(fresh), fresh.getNumBytes() / size_t(sysconf(_SC_PAGESIZE)) / 2);
}

/// Longer than the ranks' deadline.
TEST_F(Training, ASlowDiskIsWaitedFor) {
  InProcessOptions options;
  options.placement.limits.deadline = std::chrono::milliseconds(1500);
  InProcessJob job(makePlan(2), options);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Session &session = job.getSession(int(rank));
      try {
        std::future<void> work;
        if (rank == 0)
          work = std::async(std::launch::async,
                            [] { std::this_thread::sleep_for(std::chrono::seconds(4)); });
        awaitOnRank0(session, work);
        EXPECT_TRUE(rank != 0 ||
                    work.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
      } catch (const Error &error) {
        errors[rank] = error.what();
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_THAT(errors, ElementsAre("", ""));
}

TEST_F(Training, TheLogHasEachStepOnce) {
  writeData(evalData, 4);
  settings.evalData = evalData;
  settings.evalEvery = 3;
  settings.steps = 8;
  fs::path log = folder.getPath() / "log.csv";
  auto readLog = [&] {
    std::vector<std::string> lines;
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);) {
      size_t at = 0;
      for (int comma = 0; comma < 8; ++comma)
        at = line.find(',', at) + 1;
      std::string time = line.substr(at, line.find(',', at) - at);
      lines.push_back(line.replace(at, time.size(), "T"));
    }
    return lines;
  };
  train(1, nullptr, log);
  std::vector<std::string> whole = readLog();
  ASSERT_EQ(whole.size(), 9u);
  EXPECT_EQ(whole[0], "step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,T,"
                      "eval_loss,eval_seen");
  EXPECT_THAT(whole[1], testing::StartsWith("1,1,0,"));
  EXPECT_THAT(whole[1], testing::EndsWith(",4,0.5,0.5,1,T,,"));
  EXPECT_THAT(whole[3], testing::ContainsRegex("3,1,8,.*,T,[0-9.]+,85$"));

  // A run that went on beyond its last checkpoint, and was killed while it wrote a row.
  fs::remove(log);
  settings.checkpoints = checkpoints;
  settings.checkpointEvery = 5;
  train(1, [](int, size_t steps) { return steps == 4 ? 2 : 0; }, log);
  std::ofstream(log, std::ios::app) << "6,2,20,99,4,0.5,0.5,1,3.1,,\n7,3,2";
  EXPECT_THAT(getRefusal(), HasSubstr("continue it with --resume"));
  settings.resume = true;
  train(1, nullptr, log);
  EXPECT_EQ(readLog(), whole);
}

TEST_F(Training, TheLogOfARunWhoseCheckpointsAreNotFoundIsKept) {
  fs::path log = folder.getPath() / "log.csv";
  auto read = [](const fs::path &path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  settings.steps = 3;
  settings.checkpoints = checkpoints;
  settings.resume = true;
  ASSERT_EQ(train(1, nullptr, log).error, "");
  std::string first = read(log);
  EXPECT_EQ(std::ranges::count(first, '\n'), 4);
  EXPECT_FALSE(fs::exists(log.string() + ".1"));
  settings.checkpoints = folder.getPath() / "mistyped";
  Trained run = train(1, nullptr, log);
  EXPECT_EQ(run.keptLog, log.string() + ".1");
  EXPECT_EQ(read(log.string() + ".1"), first);
  fs::remove_all(settings.checkpoints);
  train(1, nullptr, log);
  EXPECT_EQ(read(log.string() + ".1"), first);
  EXPECT_TRUE(fs::exists(log.string() + ".2"));
}

/// No row is lost whose step is in a checkpoint, also where the power fails.
TEST_F(Training, TheLogIsOnTheDiskBeforeTheCheckpoint) {
  fs::path log = folder.getPath() / "log.csv";
  auto getSynced = [&] {
    struct stat status{};
    stat(log.c_str(), &status);
    std::lock_guard lock(syncing);
    return std::pair(status.st_size, synced.contains(status.st_ino) ? synced[status.st_ino] : -1);
  };
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  ASSERT_EQ(train(1, nullptr, log).error, "");
  auto [size, onDisk] = getSynced();
  EXPECT_EQ(size, onDisk);
  settings.resume = true; // cuts the file
  ASSERT_EQ(train(1, nullptr, log).error, "");
  std::tie(size, onDisk) = getSynced();
  EXPECT_EQ(size, onDisk);
  settings.steps = 3;
  EXPECT_EQ(train(1, nullptr, "/dev/null").error, ""); // has nothing to sync
}

/// The last evaluation is made when the run is continued, and is in the log.
TEST_F(Training, AnInterruptedLastEvaluationIsMadeUpFor) {
  writeData(evalData, 8);
  settings.evalData = evalData;
  settings.steps = 2;
  settings.evalEvery = 2;
  settings.checkpoints = checkpoints;
  fs::path log = folder.getPath() / "log.csv";
  auto readLast = [&] {
    std::string row, last;
    for (std::ifstream file(log); std::getline(file, row);)
      last = row;
    return last;
  };
  int asked = 0; // in the beginning, in two steps, and then in the evaluation's first batch
  Trained run = train(1, [&](int, size_t) { return ++asked == 4 ? 15 : 0; }, log);
  EXPECT_EQ(run.results[0].signal, 15);
  ASSERT_EQ(run.results[0].progress.step, 2);
  EXPECT_FALSE(run.results[0].evaluation);
  EXPECT_THAT(readLast(), testing::EndsWith(",,"));
  settings.resume = true;
  for (int time = 0; time < 2; ++time) { // once more does no harm
    run = train(1, nullptr, log);
    EXPECT_EQ(run.getSteps().size(), 0u);
    ASSERT_TRUE(run.results[0].evaluation);
    EXPECT_EQ(run.results[0].evaluation->step, 2);
    double loss = run.results[0].evaluation->values.at("loss");
    char text[64];
    snprintf(text, sizeof text, ",%.9g,", loss);
    EXPECT_THAT(readLast(), AllOf(testing::StartsWith("2,"), HasSubstr(text)));
    std::string row = readLast();
    EXPECT_EQ(std::ranges::count(row, ','), 10);
  }
}

TEST_F(Training, LogsOfOthersAreLeftAlone) {
  fs::path log = folder.getPath() / "log.csv";
  settings.checkpoints = checkpoints;
  settings.steps = 1;
  TrainingSetup setup = TrainingSetup::prepare(makePlan(), settings);
  auto getError = [&](const fs::path &path) {
    try {
      TrainingLog::check(path, setup);
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(getError(log), "no error");
  EXPECT_THAT(getError(folder.getPath()), HasSubstr("is a folder"));
  EXPECT_THAT(getError(folder.getPath() / "none" / "log.csv"), HasSubstr("there is no folder"));
  writeFile(log, "a,b\n1,2\n");
  EXPECT_THAT(getError(log), HasSubstr("exists; remove it"));
  train();
  settings.resume = true;
  setup = TrainingSetup::prepare(makePlan(), settings);
  EXPECT_THAT(getError(log), HasSubstr("begins with other columns"));
  writeFile(log, "step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,ms\n\n");
  EXPECT_THAT(getError(log), HasSubstr("has the row ''"));
}

TEST_F(Training, WhatDoesNotFitIsRefused) {
  TrainingPlan other;
  other.builder.manifest.erase("training");
  auto plan = Plan::load(other.builder.write(folder.getPath() / "other"));
  EXPECT_THAT([&] { TrainingSetup::prepare(plan, settings); },
              testing::ThrowsMessage<Error>(HasSubstr("was compiled without --train; compile")));
  TrainingPlan unnamed;
  unnamed.builder.stages[0].mutable_states(0)->set_name("__metadata__");
  plan = Plan::load(unnamed.builder.write(folder.getPath() / "unnamed"));
  EXPECT_THAT([&] { TrainingSetup::prepare(plan, settings); },
              testing::ThrowsMessage<Error>(HasSubstr("state '__metadata__' of the plan has the")));
  settings.patience = 1;
  EXPECT_THAT(getRefusal(), HasSubstr("--patience needs --eval-data"));
  settings.patience = 0;
  settings.steps = INT64_MAX / 2;
  EXPECT_THAT(getRefusal(), HasSubstr("more than a run can count"));
  settings.steps = 1;
  settings.schedule = "linear(total=0)";
  EXPECT_THAT(getRefusal(), HasSubstr("schedule 'linear(total=0)'"));
  settings.schedule = "constant";
  settings.dims = {{"batch", 5}};
  EXPECT_THAT(getRefusal(), HasSubstr("no specialisations of batch=5; choose with --dim among: "
                                      "batch=4"));
  settings.dims = {{"batch", 4}};
  settings.inputs = {{"z", "1"}};
  EXPECT_THAT(getRefusal(), HasSubstr("--input z: there is no such input"));
  settings.inputs = {{"ok", "ones"}}; // no data then
  fs::remove(data / "ok.npy");
  EXPECT_EQ(getRefusal(), "no error");
  settings.inputs.clear();
  EXPECT_THAT(getRefusal(), HasSubstr("there is no ok.npy"));
  writeData(data, 3);
  EXPECT_THAT(getRefusal(), HasSubstr("has 3 samples, fewer than the plan's batch of 4"));
}

TEST_F(Training, InputsThatAreNoDataAreBound) {
  settings.inputs = {{"ok", "ones"}};
  fs::remove(data / "ok.npy");
  settings.epochs = 2;
  Trained run = train(2);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.results[0].progress.step, 5);
}

TEST_F(Training, CheckpointsOfOtherRunsAreRefused) {
  settings.checkpoints = checkpoints;
  settings.steps = 4;
  settings.checkpointEvery = 1;
  settings.seed = 8;
  train();
  EXPECT_THAT(getRefusal(), HasSubstr("has checkpoints, the last of step 4; continue it with"));
  settings.resume = true;
  EXPECT_EQ(getRefusal(), "no error");
  settings.seed = 9;
  EXPECT_THAT(getRefusal(), HasSubstr("is of a run with seed 8, not 9"));
  settings.seed.reset();
  EXPECT_EQ(getRefusal(), "no error");
  settings.resumeFrom = getCheckpointFolder(checkpoints, 3);
  EXPECT_THAT(getRefusal(), HasSubstr("has a checkpoint of step 4, after step 3"));
  settings.checkpoints = folder.getPath() / "new";
  EXPECT_EQ(getRefusal(), "no error");
  writeData(data, 12);
  EXPECT_THAT(getRefusal(), HasSubstr("is of a run over 10 samples, but"));
  writeData(data, numSamples);

  Checkpoint saved = Checkpoint::read(settings.resumeFrom);
  saved.progress.step = INT64_MAX;
  saved.write(settings.resumeFrom);
  EXPECT_THAT(getRefusal(), HasSubstr("steps but only 12 samples"));
  saved.progress.step = 3;
  saved.states["v"] = saved.states["w"];
  saved.roles["v"] = saved.roles["w"];
  saved.write(settings.resumeFrom);
  EXPECT_THAT(getRefusal(), HasSubstr("has a state 'v' that the plan lacks"));
  fs::resize_file(settings.resumeFrom / "states.safetensors", 20);
  EXPECT_THAT(getRefusal(), HasSubstr("has 20 bytes"));
}

TEST_F(Training, CheckpointsOfTwoRunsDoNotMix) {
  settings.checkpoints = checkpoints;
  settings.steps = 3;
  settings.checkpointEvery = 1;
  train();
  fs::path first = checkpoints;
  settings.checkpoints = folder.getPath() / "second";
  settings.steps = 4;
  train();
  settings.resume = true;
  settings.resumeFrom = settings.checkpoints; // has more steps than the other folder
  settings.checkpoints = first;
  settings.keep = 1;
  settings.steps = 6;
  EXPECT_THAT(getRefusal(), AllOf(HasSubstr("has checkpoints, the last of step 3, of another run"),
                                  HasSubstr("name a new folder")));
  EXPECT_THAT(listCheckpoints(first), ElementsAre(1, 2, 3));
  // The folder itself, by another name.
  fs::path link = folder.getPath() / "link";
  fs::create_directory_symlink(settings.resumeFrom, link);
  settings.checkpoints = settings.resumeFrom;
  settings.resumeFrom = link / "";
  EXPECT_EQ(getRefusal(), "no error");
  settings.resumeFrom = getCheckpointFolder(link, 4) / "";
  EXPECT_EQ(getRefusal(), "no error");
}

TEST_F(Training, ACheckpointThatIsWrittenToWhileItIsLoadedIsRefused) {
  settings.checkpoints = checkpoints;
  settings.steps = 2;
  train();
  settings.resume = true;
  settings.steps = 3;
  afterSetup = [&](TrainingSetup &) {
    fs::path file = findCheckpoint(checkpoints) / "states.safetensors";
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('x');
    stream.close();
    fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
  };
  EXPECT_THAT(train(2).error, AllOf(HasSubstr("states.safetensors"),
                                    HasSubstr("was written to while it is in use")));
}

TEST_F(Training, RanksMustHaveTheSameOptionsAndFiles) {
  settings.inputs = {{"ok", "ones"}};
  settings.learningRate = 1e-7;
  settings.checkpoints = checkpoints;
  settings.steps = 1;
  ASSERT_EQ(train(2).error, "");
  fs::path other = folder.getPath() / "other";
  Checkpoint saved = Checkpoint::read(findCheckpoint(checkpoints));
  saved.states["w"] = HostArray::allocate(DataType::F32, {1, width});
  saved.write(other);
  settings.resume = true;
  settings.steps = 2;
  const std::pair<const char *, std::function<void(TrainingSetup &)>> differences[] = {
      {"rate", [](TrainingSetup &second) { second.learningRate = 2e-7; }},
      {"input",
       [](TrainingSetup &second) {
         second.constants["ok"] = HostArray::allocate(DataType::F32, {batch, 1});
       }},
      {"checkpoint", [&](TrainingSetup &second) { second.checkpoint = Checkpoint::read(other); }},
  };
  for (const auto &[name, make] : differences) {
    afterSetup = make;
    EXPECT_THAT(train(2).error, HasSubstr("rank 1 has other data, options or checkpoints")) << name;
  }
  afterSetup = nullptr;
  EXPECT_EQ(train(2).error, "");
}

TEST_F(Training, AFolderWithoutCheckpointsIsBegun) {
  settings.resume = true;
  EXPECT_THAT(getRefusal(), HasSubstr("--resume: name a checkpoint"));
  settings.checkpoints = checkpoints;
  settings.steps = 1;
  EXPECT_EQ(train().results[0].progress.step, 1);
  settings.resumeFrom = folder.getPath() / "none";
  EXPECT_THAT(getRefusal(), HasSubstr("cannot be read"));
}

} // namespace
