//===- TrainerCheckpointTest.cpp - runs that save and continue ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/CheckpointWriter.h"
#include "test/runtime/TrainingRun.h"

#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

using TrainerCheckpoint = Training;

TEST_F(TrainerCheckpoint, ContinuesBitForBitOnAnyNumberOfRanks) {
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

TEST_F(TrainerCheckpoint, AnEndedRunContinuesWithMore) {
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  train();
  settings.resume = true;
  EXPECT_EQ(train().getSteps().size(), 0u);
  settings.steps = 3;
  EXPECT_EQ(train().getSteps().size(), 1u);
}

/// KiB of the files of this name that are in this process's memory.
static size_t countResident(const std::string &name) {
  std::ifstream maps("/proc/self/smaps");
  size_t sum = 0;
  bool isNamed = false;
  for (std::string line; std::getline(maps, line);)
    if (line.substr(0, line.find(' ')).find(':') == std::string::npos) // begins a mapping
      isNamed = line.ends_with("/" + name);
    else if (isNamed && line.starts_with("Rss:"))
      sum += std::stoul(line.substr(line.find(':') + 1));
  return sum;
}

TEST_F(TrainerCheckpoint, LeavesMemoryOnceItIsRestored) {
  settings.steps = 1;
  settings.checkpoints = checkpoints;
  train();
  settings.resume = true;
  settings.steps = 3;
  size_t resident = 1;
  Trained rest = train(1, [&](int, size_t steps) {
    if (steps == 1)
      resident = countResident("states.safetensors");
    return 0;
  });
  ASSERT_EQ(rest.error, "");
  EXPECT_EQ(rest.getSteps().size(), 2u);
  EXPECT_EQ(resident, 0u);
}

TEST_F(TrainerCheckpoint, APlanIsNoFolderOfCheckpoints) {
  settings.steps = 1;
  fs::path plan = makePlan()->getFolder(), other = makePlan(2)->getFolder();
  auto refuse = [&](const fs::path &path) {
    settings.checkpoints = path;
    try {
      TrainingSetup::prepare(Plan::load(plan), settings);
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refuse(plan), HasSubstr("is inside the plan " + plan.string()));
  EXPECT_THAT(refuse(plan / "run"), HasSubstr("name a place outside of it"));
  EXPECT_THAT(refuse(other), HasSubstr("is itself a plan or a checkpoint"));
  EXPECT_EQ(refuse(checkpoints), "");
}

TEST_F(TrainerCheckpoint, ACheckpointThatCannotBeWrittenEndsTheRun) {
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

TEST_F(TrainerCheckpoint, AStepThatIsNotTakenIsReportedWhereNothingCanBeSaved) {
  writeData(data, batch, {3});
  settings.checkpoints = checkpoints;
  writeFile(checkpoints, ""); // in the way
  EXPECT_THAT(train().error, AllOf(HasSubstr("step 1 (samples 0 to 3 of epoch 1) is not taken"),
                                   HasSubstr("; no checkpoint is saved: cannot make the folder")));
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

TEST_F(TrainerCheckpoint, TheFirstCheckpointFindsMemoryAsLaterOnesDo) {
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
  HostArray fresh = HostArray::allocate(DataType::F32, {1 << 12, 1 << 11});
  if (countPages(fresh) > fresh.getNumBytes() / size_t(sysconf(_SC_PAGESIZE)) / 2)
    GTEST_SKIP() << "all memory has its pages at once, as a sanitizer's: the count says nothing";
}

/// Longer than the ranks' deadline.
TEST_F(TrainerCheckpoint, ASlowDiskIsWaitedFor) {
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

/// The last evaluation is made when the run is continued, and is in the log.
TEST_F(TrainerCheckpoint, AnInterruptedLastEvaluationIsMadeUpFor) {
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

/// The loss is w, which grows: the first evaluation is the best one.
TEST_F(TrainerCheckpoint, AResumedRunKnowsItsEvaluations) {
  writeData(evalData, 4);
  settings.evalData = evalData;
  settings.steps = 100;
  settings.evalEvery = settings.checkpointEvery = 3;
  settings.patience = 4;
  settings.keep = 1;
  settings.checkpoints = folder.getPath() / "whole";
  Trained whole = train();
  EXPECT_EQ(whole.getSteps().size(), 15u);
  EXPECT_EQ(whole.results[0].evaluations.bestStep, 3);
  EXPECT_THAT(listCheckpoints(settings.checkpoints), ElementsAre(3, 15));
  settings.checkpoints = checkpoints;
  // The signal comes in the sixth step, before its evaluation, which then comes first.
  train(1, [](int, size_t steps) { return steps == 5 ? 15 : 0; });
  EXPECT_THAT(listCheckpoints(checkpoints), ElementsAre(3, 6));
  settings.resume = true;
  Trained rest = train(2);
  EXPECT_EQ(rest.getSteps().size(), 9u);
  EXPECT_EQ(rest.recorders[0].evaluations.size(), 4u);
  EXPECT_EQ(rest.recorders[0].evaluations[0].step, 6);
  for (const TrainingResult &result : rest.results) {
    EXPECT_TRUE(result.stoppedEarly);
    EXPECT_EQ(result.evaluations.bestStep, 3);
    EXPECT_EQ(result.evaluations.sinceBest, 4);
  }
  EXPECT_EQ(rest.states, whole.states);
  EXPECT_THAT(listCheckpoints(checkpoints), ElementsAre(3, 15));
  EXPECT_EQ(train().getSteps().size(), 0u); // it has stopped
}

/// A longer run has no evaluation where the shorter one had its last.
TEST_F(TrainerCheckpoint, TheLastEvaluationCountsInALongerRun) {
  writeData(evalData, 4);
  settings.evalData = evalData;
  settings.steps = 2;
  settings.evalEvery = 4;
  settings.checkpoints = checkpoints;
  train();
  settings.resume = true;
  settings.steps = 5;
  Trained run = train();
  EXPECT_EQ(run.recorders[0].evaluations.size(), 3u); // after steps 2, 4 and 5
  EXPECT_EQ(run.results[0].evaluations.bestStep, 2);
  EXPECT_EQ(run.results[0].evaluations.sinceBest, 2);
}

/// A step that is not taken saves where an evaluation has been, which the next run repeats. The
/// loss grows, so the first evaluation is the best one.
TEST_F(TrainerCheckpoint, AnEvaluationCountsOnceAfterAnError) {
  writeData(evalData, 4);
  writeData(data, numSamples, {7});
  settings.evalData = evalData;
  settings.epochs = 3;
  settings.evalEvery = 1;
  settings.checkpoints = checkpoints;
  int64_t seed = 0, bad = 0; // the steps before the one with sample 7
  for (; bad < 2; bad /= batch) {
    SampleOrder order(numSamples, uint64_t(++seed));
    for (bad = 0; order.getSample(bad) != 7;)
      ++bad;
  }
  settings.seed = seed;
  EXPECT_THAT(train().error, HasSubstr("is not taken"));
  Checkpoint saved = Checkpoint::read(getCheckpointFolder(checkpoints, bad));
  EXPECT_TRUE(saved.isEvaluated);
  EXPECT_EQ(saved.evaluations.bestStep, 1);
  EXPECT_EQ(saved.evaluations.sinceBest, bad - 2);
  settings.resume = true;
  Trained again = train(); // fails there again, after the evaluation
  EXPECT_THAT(again.recorders[0].evaluations, testing::SizeIs(1));
  saved = Checkpoint::read(getCheckpointFolder(checkpoints, bad));
  EXPECT_EQ(saved.evaluations.sinceBest, bad - 2);
}

/// After a step that is not taken, as many steps are taken as at the evaluation before it.
TEST_F(TrainerCheckpoint, EvaluationsOfOneNumberOfStepsAreCounted) {
  writeData(evalData, 4);
  writeData(data, batch, {3});
  settings.evalData = evalData;
  settings.evalEvery = 1;
  settings.steps = 3;
  settings.skipNonFinite = true;
  settings.checkpoints = checkpoints;
  EXPECT_THAT(train().recorders[0].evaluations, testing::SizeIs(3));
  Checkpoint saved = Checkpoint::read(getCheckpointFolder(checkpoints, 0));
  EXPECT_TRUE(saved.isEvaluated);
  EXPECT_EQ(saved.evaluations.lastStep, 0);
  EXPECT_EQ(saved.evaluations.atLastStep, 2); // the third one follows the checkpoint
}

TEST_F(TrainerCheckpoint, ASchedulesStepsAreThoseOfOneBatchSize) {
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  train();
  settings.resume = true;
  settings.steps = 4;
  settings.schedule = "linear";
  EXPECT_EQ(getRefusal(), "no error");
  fs::path folder = getCheckpointFolder(checkpoints, 2);
  Checkpoint saved = Checkpoint::read(folder);
  EXPECT_EQ(saved.batch, batch);
  saved.batch = 2 * batch;
  saved.write(folder);
  EXPECT_THAT(getRefusal(), AllOf(HasSubstr("is of a run with batches of 8, and the plan's have 4"),
                                  HasSubstr("total=, of which 2 are taken")));
  for (const char *schedule : {"linear(total=4)", "constant", "step(every=2)"}) {
    settings.schedule = schedule;
    EXPECT_EQ(getRefusal(), "no error") << schedule;
  }
  train();
  EXPECT_EQ(Checkpoint::read(getCheckpointFolder(checkpoints, 4)).batch, 0);
  settings.schedule = "cosine";
  settings.steps = 6;
  EXPECT_THAT(getRefusal(), HasSubstr("with batches of several sizes, and the plan's have 4"));
}

TEST_F(TrainerCheckpoint, StepsOfAnotherSizeBeforeItLeaveAllOthersToCount) {
  settings.steps = 2;
  settings.checkpoints = checkpoints;
  train();
  fs::path folder = getCheckpointFolder(checkpoints, 2);
  Checkpoint saved = Checkpoint::read(folder);
  saved.progress.cursor = 6;
  saved.batch = 3;
  saved.write(folder);
  settings.resume = true;
  settings.steps = 3; // 12 samples
  EXPECT_EQ(TrainingSetup::prepare(makePlan(), settings).getNumSteps(), 4);
  EXPECT_EQ(train().getSteps().back().step, 4);
}

TEST_F(TrainerCheckpoint, CheckpointsOfOtherRunsAreRefused) {
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

TEST_F(TrainerCheckpoint, CheckpointsOfTwoRunsDoNotMix) {
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

TEST_F(TrainerCheckpoint, ACheckpointThatIsWrittenToWhileItIsLoadedIsRefused) {
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

TEST_F(TrainerCheckpoint, AFolderWithoutCheckpointsIsBegun) {
  settings.resume = true;
  EXPECT_THAT(getRefusal(), HasSubstr("--resume: name a checkpoint"));
  settings.checkpoints = checkpoints;
  settings.steps = 1;
  EXPECT_EQ(train().results[0].progress.step, 1);
  settings.resumeFrom = folder.getPath() / "none";
  EXPECT_THAT(getRefusal(), HasSubstr("cannot be read"));
}

} // namespace
