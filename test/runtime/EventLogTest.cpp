//===- EventLogTest.cpp - TensorBoard's event files of a run --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// test_train_events.py reads the files with TensorBoard.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/EventLog.h"

#include "runtime/core/Error.h"
#include "runtime/train/events.pb.h"
#include "support/Crc32c.h"
#include "support/TemporaryFolder.h"
#include "test/runtime/FileText.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

using namespace gridloom;
using namespace gridloom::rt;
using gridloom::test::readAll;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

/// The events of a file; every checksum is verified.
std::vector<events::Event> readEvents(const fs::path &path) {
  std::string bytes = readAll(path);
  std::vector<events::Event> found;
  auto get = [&](size_t at, auto number) {
    std::memcpy(&number, bytes.data() + at, sizeof number);
    return number;
  };
  auto mask = [](uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8u; };
  for (size_t at = 0; at < bytes.size();) {
    auto length = get(at, uint64_t());
    EXPECT_EQ(get(at + 8, uint32_t()), mask(crc32c(bytes.substr(at, 8))));
    EXPECT_EQ(get(at + 12 + length, uint32_t()), mask(crc32c(bytes.substr(at + 12, length))));
    EXPECT_TRUE(found.emplace_back().ParseFromString(bytes.substr(at + 12, length)));
    at += 16 + length;
  }
  return found;
}

class EventFiles : public testing::Test {
protected:
  TemporaryFolder parent;
  fs::path folder = parent.getPath() / "runs" / "a";

  std::vector<fs::path> list(const fs::path &where) const {
    std::vector<fs::path> files;
    for (const fs::directory_entry &entry : fs::directory_iterator(where))
      if (entry.is_regular_file())
        files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
  }
  /// "loss 1", "eval_loss 1", "start 3" of all files, in order.
  std::vector<std::string> describe(const fs::path &where) const {
    std::vector<std::string> lines;
    for (const fs::path &file : list(where))
      for (const events::Event &event : readEvents(file)) {
        for (const events::Summary::Value &value : event.summary().value())
          lines.push_back(value.tag() + " " + std::to_string(event.step()));
        if (event.session_log().status() == events::SessionLog::START)
          lines.push_back("start " + std::to_string(event.step()));
      }
    return lines;
  }
  static std::string getError(const std::function<void()> &work) {
    try {
      work();
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(EventFiles, HaveWhatIsAdded) {
  fs::path path;
  {
    EventLog log(folder, std::nullopt);
    path = log.getFile();
    log.add(1, {{"loss", 0.25}, {"accuracy", 0.5}});
    log.add(2, {{"loss", std::nan("")}});
    log.flush();
    log.sync();
    EXPECT_EQ(readEvents(path).size(), 3u);
  }
  EXPECT_THAT(path.filename().string(),
              testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+"));
  std::vector<events::Event> found = readEvents(path);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].file_version(), "brain.Event:2");
  EXPECT_EQ(found[1].step(), 1);
  EXPECT_GT(found[1].wall_time(), 1.7e9);
  ASSERT_EQ(found[1].summary().value_size(), 2);
  EXPECT_EQ(found[1].summary().value(1).tag(), "loss");
  EXPECT_EQ(found[1].summary().value(1).simple_value(), 0.25f);
  EXPECT_TRUE(std::isnan(found[2].summary().value(0).simple_value()));
}

TEST_F(EventFiles, StepsThatAreMadeAgainAreThereOnce) {
  {
    EventLog log(folder, std::nullopt);
    for (int step = 1; step <= 4; ++step) {
      log.add(step, {{"loss", step}});
      log.add(step, {{"eval_loss", step}});
    }
  }
  std::ofstream(list(folder).front(), std::ios::app) << "cut off";
  fs::path foreign = folder / "events.out.tfevents.1.other";
  std::ofstream(foreign) << "of another program";
  EXPECT_THAT(getError([&] { EventLog::check(folder, std::nullopt); }),
              testing::AllOf(HasSubstr("--log-dir: " + folder.string() + " has events of another"),
                             HasSubstr("or continue that run with --resume")));
  {
    EventLog log(folder, EventPlace{2, false});
    log.add(3, {{"loss", 3}});
  }
  EXPECT_EQ(readAll(foreign), "of another program");
  fs::remove(foreign);
  EXPECT_THAT(describe(folder),
              ElementsAre("loss 1", "eval_loss 1", "loss 2", "eval_loss 2", "start 3", "loss 3"));
  {
    EventLog log(folder, EventPlace{2, true});
  } // drops the evaluation of the step that runs again
  EXPECT_THAT(describe(folder), ElementsAre("loss 1", "eval_loss 1", "loss 2", "start 3"));
  EXPECT_EQ(list(folder).size(), 3u); // ordered by name, even within one second
}

/// Steps that are not taken have evaluations of the same number of steps.
TEST_F(EventFiles, EvaluationsAtOneStepStayIfTheyAreNotMadeAgain) {
  {
    EventLog log(folder, std::nullopt);
    log.add(1, {{"loss", 1}});
    for (int evaluation = 0; evaluation < 2; ++evaluation)
      log.add(1, {{"eval_loss", 1}});
  }
  {
    EventLog log(folder, EventPlace{1, true, 2});
    log.add(1, {{"eval_loss", 1}});
    log.add(1, {{"eval_loss", 1}});
    log.add(2, {{"loss", 2}});
  }
  {
    EventLog log(folder, EventPlace{1, true, 3});
  }
  EXPECT_THAT(describe(folder), ElementsAre("loss 1", "eval_loss 1", "eval_loss 1", "start 2",
                                            "eval_loss 1", "start 2"));
}

TEST_F(EventFiles, OfARunThatBeginsOnceMoreAreKept) {
  EXPECT_EQ(EventLog::moveEarlier(folder), "");
  for (const char *name : {"earlier.1", "earlier.2"}) {
    {
      EventLog log(folder, std::nullopt);
      log.add(1, {{"loss", 1}});
    }
    EXPECT_EQ(EventLog::moveEarlier(folder), folder / name);
    EXPECT_THAT(describe(folder / name), ElementsAre("loss 1"));
    EXPECT_TRUE(list(folder).empty());
  }
}

TEST_F(EventFiles, OfARunThatHasNotEndedAreLeftAlone) {
  {
    EventLog earlier(folder, std::nullopt);
    earlier.add(1, {{"loss", 1}});
    earlier.add(2, {{"loss", 1}});
  }
  {
    EventLog log(folder, EventPlace{2, false});
    log.add(3, {{"loss", 1}});
    log.flush();
    auto isRefused = HasSubstr("is another run's that has not ended; wait for it, or name another");
    EXPECT_THAT(getError([&] { EventLog other(folder, EventPlace{1, false}); }), isRefused);
    EXPECT_THAT(getError([&] { EventLog::moveEarlier(folder); }), isRefused);
    EXPECT_THAT(describe(folder), ElementsAre("loss 1", "loss 2", "start 3", "loss 3"));
  }
  EventLog other(folder, EventPlace{1, false});
  EXPECT_THAT(describe(folder), ElementsAre("loss 1", "start 2"));
}

TEST_F(EventFiles, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(parent.getPath() / "runs") << "a file";
  EXPECT_THAT(getError([&] { EventLog log(folder, std::nullopt); }),
              testing::AllOf(HasSubstr(folder.string()), HasSubstr("cannot be made")));
  EXPECT_THAT(getError([&] { EventLog::check(parent.getPath() / "runs", std::nullopt); }),
              HasSubstr("is a file; name a folder"));
}

TEST(Histograms, CountEachElementOnce) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0, -0.f, 1, 1, 1.05f, -1, 1e-20f, 3e38f, -3e38f, inf, NAN, 0.25f};
  HostArray array = HostArray::allocate(DataType::F32, {int64_t(values.size())});
  std::ranges::copy(values, array.as<float>().begin());
  Histogram found = Histogram::of(array);
  EXPECT_EQ(found.numFinite, 10);
  EXPECT_EQ(found.min, double(-3e38f));
  EXPECT_EQ(found.max, double(3e38f));
  ASSERT_EQ(found.limits.size(), found.counts.size());
  EXPECT_TRUE(std::ranges::is_sorted(found.limits));
  int64_t total = 0;
  for (size_t i = 0; i < found.limits.size(); ++i) {
    double begin = i == 0 ? -INFINITY : found.limits[i - 1];
    EXPECT_FALSE(i > 0 && found.counts[i] == 0 && found.counts[i - 1] == 0) << i;
    EXPECT_EQ(found.counts[i], std::ranges::count_if(values, [&](float value) {
                return std::isfinite(value) && value >= begin && value < found.limits[i];
              }));
    total += found.counts[i];
  }
  EXPECT_EQ(total, 10);
}

TEST(Histograms, AreOfAnyType) {
  HostArray array = HostArray::allocate(DataType::I64, {2, 2});
  std::ranges::copy(std::vector<int64_t>{1, 2, 3, 4}, array.as<int64_t>().begin());
  Histogram found = Histogram::of(array);
  EXPECT_EQ(found.sum, 10);
  EXPECT_EQ(found.sumOfSquares, 30);
  EXPECT_EQ(found.min, 1);
  EXPECT_EQ(Histogram::of(HostArray::allocate(DataType::F32, {0})).limits.size(), 0u);
}

} // namespace
