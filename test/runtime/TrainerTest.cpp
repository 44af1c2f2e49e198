//===- TrainerTest.cpp - the training loop --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "test/runtime/TrainingRun.h"

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;
namespace fs = std::filesystem;

namespace {

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
  EXPECT_THAT(getRefusal(), HasSubstr("has ok.npy, which this value would replace; leave the "
                                      "option or the array out"));
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

TEST_F(Training, RanksMustHaveTheSameOptionsAndFiles) {
  settings.inputs = {{"ok", "ones"}};
  fs::remove(data / "ok.npy");
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
  fs::path otherData = folder.getPath() / "other data";
  writeData(otherData, numSamples);
  writeNpy(otherData / "x.npy", HostArray::allocate(DataType::F32, {numSamples, width}));
  const std::pair<const char *, std::function<void(TrainingSetup &)>> differences[] = {
      {"data",
       [&](TrainingSetup &second) {
         const std::vector<DataSet::Column> columns = {{"x", DataType::F32, {width}}};
         second.step.data = DataSet::open(otherData, columns);
       }},
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

} // namespace
