//===- CheckpointTest.cpp - a training run on disk ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Checkpoint.h"

#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "runtime/core/Plan.h"
#include "runtime/core/SafeTensors.h"
#include "test/runtime/FileText.h"
#include "test/runtime/PlanBuilder.h"

#include <gmock/gmock.h>

using namespace gridloom;
using namespace gridloom::rt;
using gridloom::TemporaryFolder;
using gridloom::test::PlanBuilder;
using gridloom::test::readAll;
using gridloom::test::writeFile;
using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

class CheckpointFiles : public testing::Test {
protected:
  TemporaryFolder temporary;
  fs::path folder = temporary.getPath() / "step-0000000007";
  Checkpoint saved;

  void SetUp() override {
    saved.progress = {.step = 7, .cursor = 56, .numSamples = 50, .seed = ~uint64_t(0)};
    saved.states["flags"] = makeArray(DataType::Bool, {3});
    saved.states["layers.0/weight"] = makeArray(DataType::F32, {2, 3});
    saved.states["layers.0/weight/exp_avg"] = makeArray(DataType::F64, {2, 3});
    saved.states["step"] = makeArray(DataType::I64, {});
    saved.states["empty"] = makeArray(DataType::F32, {0, 4});
  }

  static HostArray makeArray(DataType type, std::vector<int64_t> shape) {
    HostArray array = HostArray::allocate(type, std::move(shape));
    for (size_t i = 0; i < array.getNumBytes(); ++i)
      array.getMutableData()[i] = std::byte(i * 7 + 1);
    return array;
  }

  std::string getError() const {
    try {
      Checkpoint::read(folder);
    } catch (const Error &error) {
      EXPECT_THAT(error.what(), HasSubstr(folder.string()));
      return error.what();
    }
    return "no error";
  }

  /// The error of reading a checkpoint whose manifest `edit` has changed.
  std::string getError(const std::function<void(json &)> &edit) const {
    fs::remove_all(folder); // its manifest may be no checkpoint's any more
    saved.write(folder);
    json manifest = json::parse(readAll(folder / "manifest.json"));
    edit(manifest);
    writeFile(folder / "manifest.json", manifest.dump());
    return getError();
  }

  /// The error if the states file is `contents` and the manifest matches it.
  std::string getErrorOfStates(const std::string &contents) const {
    return getError([&](json &manifest) {
      writeFile(folder / "states.safetensors", contents);
      manifest["files"][0]["bytes"] = contents.size();
      manifest["files"][0]["sha256"] = gridloom::sha256(contents);
    });
  }

  static std::string makeStates(const std::string &header, size_t bytes) {
    uint64_t size = header.size();
    std::string file(reinterpret_cast<const char *>(&size), sizeof(size));
    return file + header + std::string(bytes, 1);
  }
};

TEST_F(CheckpointFiles, WhatIsWrittenIsRead) {
  for (int time = 0; time < 2; ++time) { // the second one replaces the first
    saved.progress.step += time;
    saved.write(folder);
    Checkpoint read = Checkpoint::read(folder);
    EXPECT_EQ(read.progress, saved.progress);
    ASSERT_EQ(read.states.size(), saved.states.size());
    for (const auto &[name, array] : saved.states) {
      const HostArray &other = read.states.at(name);
      EXPECT_EQ(other.getType(), array.getType()) << name;
      EXPECT_EQ(other.getShape(), array.getShape()) << name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(other.getData()) % sizeOf(array.getType()), 0) << name;
      EXPECT_EQ(std::memcmp(other.getData(), array.getData(), array.getNumBytes()), 0) << name;
    }
  }
  std::vector<fs::path> left(fs::directory_iterator(temporary.getPath()), {});
  EXPECT_THAT(left, testing::ElementsAre(folder)); // no temporary folder remains
}

TEST_F(CheckpointFiles, NumbersAreAlignedWhereverTheyLie) {
  std::string header = R"({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
  for (size_t past = 0; past < 4; ++past) {
    ASSERT_EQ(getErrorOfStates(makeStates(header + std::string(past, ' '), 8)), "no error");
    HostArray array = Checkpoint::read(folder).states.at("w");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array.getData()) % sizeof(float), 0U) << past;
    EXPECT_EQ(std::string(reinterpret_cast<const char *>(array.getData()), 8), std::string(8, 1));
  }
}

TEST_F(CheckpointFiles, RolesAreSavedOrGuessedFromNames) {
  saved.write(folder); // without roles, as older versions wrote it
  EXPECT_EQ(Checkpoint::read(folder).roles.at("layers.0/weight/exp_avg"), StateRole::Slot);
  EXPECT_EQ(Checkpoint::read(folder).getParameters().size(), 4U);
  saved.roles = {{"flags", StateRole::Run},
                 {"layers.0/weight", StateRole::Slot},
                 {"layers.0/weight/exp_avg", StateRole::Parameter},
                 {"step", StateRole::Run},
                 {"empty", StateRole::Parameter}};
  saved.write(folder);
  Checkpoint read = Checkpoint::read(folder);
  EXPECT_EQ(read.roles, saved.roles);
  EXPECT_EQ(read.getParameters().size(), 2U);
  EXPECT_TRUE(read.getParameters().contains("layers.0/weight/exp_avg"));
}

TEST_F(CheckpointFiles, WrongRolesAreRefused) {
  for (const auto &[name, array] : saved.states)
    saved.roles[name] = StateRole::Parameter;
  EXPECT_THAT(getError([](json &m) { m["roles"] = 3; }), HasSubstr("are no names of states"));
  EXPECT_THAT(getError([](json &m) { m["roles"]["more"] = "slot"; }),
              HasSubstr("a role for a state 'more', which is not saved"));
  EXPECT_THAT(getError([](json &m) { m["roles"]["step"] = "king"; }),
              HasSubstr("a role for state 'step' that is not parameter, slot or run"));
  EXPECT_THAT(getError([](json &m) { m["roles"]["step"] = json::array(); }),
              HasSubstr("that is not parameter, slot or run"));
  EXPECT_THAT(getError([](json &m) { m["roles"].erase("step"); }),
              HasSubstr("has no role for state 'step'"));
  EXPECT_EQ(getError([](json &) {}), "no error");
}

TEST_F(CheckpointFiles, TiedWeightsHaveTheirParametersValue) {
  for (const auto &[name, array] : saved.states)
    saved.roles[name] = StateRole::Run;
  saved.roles["layers.0/weight"] = StateRole::Parameter;
  saved.ties = {{"other", "layers.0/weight"}, {"head", "layers.0/weight", true}};
  saved.write(folder);
  Checkpoint read = Checkpoint::read(folder);
  EXPECT_EQ(read.ties, saved.ties);
  std::map<std::string, HostArray> parameters = read.getParameters();
  ASSERT_EQ(parameters.size(), 3U);
  const HostArray &weight = parameters.at("layers.0/weight"), &head = parameters.at("head");
  EXPECT_EQ(parameters.at("other").getShape(), (std::vector<int64_t>{2, 3}));
  ASSERT_EQ(head.getShape(), (std::vector<int64_t>{3, 2}));
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(getElement(head, i % 3 * 2 + i / 3), getElement(weight, i)) << i;
}

TEST_F(CheckpointFiles, WrongTiesAreRefused) {
  for (const auto &[name, array] : saved.states)
    saved.roles[name] = StateRole::Parameter;
  saved.roles["flags"] = StateRole::Run;
  saved.ties = {{"head", "layers.0/weight", true}};
  EXPECT_THAT(getError([](json &m) { m["ties"] = 3; }), HasSubstr("has 'ties' that are no list"));
  EXPECT_THAT(getError([](json &m) { m["ties"][0].erase("state"); }),
              HasSubstr("has a tie without 'state'"));
  EXPECT_THAT(getError([](json &m) { m["ties"][0].erase("transposed"); }),
              HasSubstr("does not say whether 'head' is transposed"));
  EXPECT_THAT(getError([](json &m) { m["ties"][0]["state"] = "flags"; }),
              HasSubstr("ties 'head' to 'flags', which is no parameter"));
  EXPECT_THAT(getError([](json &m) { m["ties"][0]["state"] = "step"; }),
              HasSubstr("to the transpose of 'step', which is no matrix"));
  EXPECT_THAT(getError([](json &m) { m["ties"][0]["name"] = "step"; }),
              HasSubstr("has 'step' once more"));
  EXPECT_THAT(getError([](json &m) { m["ties"].push_back(m["ties"][0]); }),
              HasSubstr("has 'head' once more"));
  EXPECT_EQ(getError([](json &) {}), "no error");
}

TEST_F(CheckpointFiles, APlanSaysWhatItsStatesAre) {
  PlanBuilder builder;
  builder.addEntry({}, {});
  for (const char *name : {"w", "w/b", "train/scale", "train"}) {
    builder.addWeight(name, {2}, {1, 2});
    schema::State &state = PlanBuilder::addState(builder.stages[0], name, {2}, {2});
    state.set_init(name);
    state.set_role(name == std::string("train") ? schema::STATISTIC : schema::PARAMETER);
  }
  for (const char *name : {"w/m", "w/b/m", "w/ema", "train/m"})
    PlanBuilder::addState(builder.stages[0], name, {2}, {2}).set_role(schema::MOMENT);
  PlanBuilder::addState(builder.stages[0], "train/step", {}, {}).set_role(schema::COUNTER);
  PlanBuilder::addState(builder.stages[0], "cache", {2}, {2});
  StateRoles roles = getRoles(*Plan::load(builder.write(folder)));
  EXPECT_EQ(roles, (StateRoles{{"w", StateRole::Parameter},
                               {"w/b", StateRole::Parameter},
                               {"train/scale", StateRole::Parameter},
                               {"train", StateRole::Parameter},
                               {"w/m", StateRole::Slot},
                               {"w/b/m", StateRole::Slot},
                               {"w/ema", StateRole::Slot},
                               {"train/m", StateRole::Slot},
                               {"train/step", StateRole::Run},
                               {"cache", StateRole::Run}}));
  EXPECT_EQ(getSlot(roles, "w/b/m"), "m");
  EXPECT_EQ(getSlot(roles, "w/b"), "");
}

TEST_F(CheckpointFiles, AFolderThatCannotBeMadeIsNamed) {
  writeFile(temporary.getPath() / "file", "");
  try {
    saved.write(temporary.getPath() / "file" / "step-1");
    FAIL();
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("no checkpoint is saved: cannot make the folder"));
  }
}

TEST_F(CheckpointFiles, OnlyACheckpointIsReplaced) {
  auto getRefusal = [&](const fs::path &path) {
    try {
      saved.write(path);
    } catch (const Error &error) {
      EXPECT_THAT(error.what(), HasSubstr("no checkpoint is saved: '" + path.string() + "'"));
      return std::string(error.what());
    }
    return std::string("no error");
  };
  fs::path file = temporary.getPath() / "notes.txt", work = temporary.getPath() / "work";
  writeFile(file, "mine");
  fs::create_directories(work / "sub");
  writeFile(work / "sub" / "thesis.tex", "mine");
  EXPECT_THAT(getRefusal(file), HasSubstr("exists and is not a checkpoint; name another folder"));
  EXPECT_THAT(getRefusal(work), HasSubstr("exists and is not a checkpoint"));
  for (const char *manifest : {"", "{}", R"({"producer": "gridloom 0.1.0"})"}) {
    writeFile(work / "manifest.json", manifest); // of a plan or another program
    EXPECT_THAT(getRefusal(work), HasSubstr("exists and is not a checkpoint")) << manifest;
  }
  EXPECT_EQ(readAll(file), "mine");
  EXPECT_EQ(readAll(work / "sub" / "thesis.tex"), "mine");

  fs::create_directory(folder);
  EXPECT_EQ(getRefusal(folder), "no error");
  EXPECT_EQ(getRefusal(folder / ""), "no error"); // a name that a shell has completed
  writeFile(folder / "notes.txt", "mine");
  EXPECT_THAT(getRefusal(folder), HasSubstr("holds 'notes.txt' beside a checkpoint; name another"));
  EXPECT_EQ(readAll(folder / "notes.txt"), "mine");
  EXPECT_EQ(Checkpoint::read(folder).states.size(), saved.states.size());
}

TEST_F(CheckpointFiles, EveryCutIsNoticed) {
  saved.write(folder);
  for (const char *name : {"states.safetensors", "manifest.json"}) {
    std::string whole = readAll(folder / name);
    for (size_t size = 0; size + 2 < whole.size(); ++size) { // the manifest ends in "}\n"
      writeFile(folder / name, whole.substr(0, size));
      EXPECT_NE(getError(), "no error") << name << " of " << size << " bytes";
    }
    writeFile(folder / name, whole);
  }
  EXPECT_EQ(getError(), "no error");
}

TEST_F(CheckpointFiles, EveryFlippedBitOfTheStatesIsNoticed) {
  saved.write(folder);
  std::string whole = readAll(folder / "states.safetensors");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= char(1 << i % 8);
    writeFile(folder / "states.safetensors", damaged);
    EXPECT_THAT(getError(), HasSubstr("states.safetensors is damaged")) << i;
  }
}

TEST_F(CheckpointFiles, MissingFilesAreNamed) {
  EXPECT_THAT(getError(), HasSubstr("is incomplete"));
  saved.write(folder);
  fs::remove(folder / "states.safetensors");
  EXPECT_THAT(getError(), AllOf(HasSubstr("is incomplete"), HasSubstr("states.safetensors")));
}

TEST_F(CheckpointFiles, HostileManifestsAreRefused) {
  saved.write(folder);
  auto getErrorOf = [&](const std::string &text) {
    writeFile(folder / "manifest.json", text);
    return getError();
  };
  EXPECT_THAT(getErrorOf("[]"), HasSubstr("is not the manifest of a checkpoint"));
  EXPECT_THAT(getErrorOf("{}"), HasSubstr("is not the manifest of a checkpoint"));
  EXPECT_THAT(getErrorOf(std::string(100000, '[')), HasSubstr("in each other"));
  EXPECT_THAT(getErrorOf(std::string((1 << 26) + 1, ' ')), HasSubstr("more than 67108864"));
  EXPECT_THAT(getError([](json &m) { m["version"] = 2; }),
              HasSubstr("has version 2; this program reads version 1"));
  EXPECT_THAT(getError([](json &m) { m["step"] = -1; }), HasSubstr("no whole number 'step'"));
  EXPECT_THAT(getError([](json &m) { m["step"] = ~uint64_t(0); }), HasSubstr("too large a 'step'"));
  EXPECT_THAT(getError([](json &m) { m["cursor"] = 1.5; }), HasSubstr("no whole number 'cursor'"));
  EXPECT_THAT(getError([](json &m) { m.erase("seed"); }), HasSubstr("no whole number 'seed'"));
  EXPECT_THAT(getError([](json &m) { m["files"] = 3; }), HasSubstr("no list 'files'"));
  EXPECT_THAT(getError([](json &m) { m["files"] = {1}; }), HasSubstr("a file without 'name'"));
  for (const char *name : {"../x", "/etc/passwd", ""})
    EXPECT_THAT(getError([&](json &m) { m["files"][0]["name"] = name; }),
                HasSubstr("names a file outside of its folder"));
  EXPECT_THAT(getError([](json &m) { m["files"].push_back(m["files"][0]); }),
              HasSubstr("has state 'empty' once more"));
}

TEST_F(CheckpointFiles, HostileStatesAreRefusedBeforeTheyAreRead) {
  EXPECT_THAT(getErrorOfStates("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(getErrorOfStates(std::string(8, '\xff')), HasSubstr("declares a header"));
  EXPECT_THAT(getErrorOfStates(makeStates("{", 0)), HasSubstr("not a JSON object"));
  auto describe = [](const std::string &shape, const std::string &offsets) {
    return R"({"w": {"dtype": "F32", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  EXPECT_THAT(getErrorOfStates(makeStates(describe("[2]", "[0, 16]"), 8)), HasSubstr("puts"));
  EXPECT_THAT(getErrorOfStates(makeStates(describe("[4611686018427387904]", "[0, 8]"), 8)),
              HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(getErrorOfStates(makeStates(describe("[-1]", "[0, 8]"), 8)), HasSubstr("without"));
  EXPECT_EQ(getErrorOfStates(makeStates(describe("[2]", "[0, 8]"), 8)), "no error");
}

TEST_F(CheckpointFiles, AnotherModelsStatesAreNamed) {
  std::map<std::string, Checkpoint::Wanted> wanted;
  for (const auto &[name, array] : saved.states)
    wanted[name] = {array.getType(), array.getShape()};
  auto getMisfit = [&] {
    try {
      saved.requireFits(wanted);
    } catch (const Error &error) {
      EXPECT_THAT(error.what(), HasSubstr("of another model or optimizer"));
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(getMisfit(), "no error");
  wanted["layers.0/weight"].shape = {3, 2};
  EXPECT_THAT(getMisfit(), HasSubstr("'layers.0/weight' is f32[2, 3] in the checkpoint and "
                                     "f32[3, 2] in the plan"));
  wanted["layers.0/weight"] = {DataType::F16, {2, 3}};
  EXPECT_THAT(getMisfit(), HasSubstr("f16[2, 3] in the plan"));
  wanted.erase("layers.0/weight");
  EXPECT_THAT(getMisfit(), HasSubstr("has a state 'layers.0/weight' that the plan lacks"));
  wanted["layers.0/weight"] = {DataType::F32, {2, 3}};
  wanted["more"] = {DataType::F32, {}};
  EXPECT_THAT(getMisfit(), HasSubstr("lacks the plan's state 'more'"));
}

TEST_F(CheckpointFiles, TheLatestOneIsFound) {
  fs::path run = temporary.getPath();
  auto getMessage = [&] {
    try {
      findCheckpoint(run);
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(getMessage(), HasSubstr("neither manifest.json nor a folder step-NUMBER"));
  for (int64_t step : {int64_t(9), int64_t(100), int64_t(20000000000)})
    saved.write(getCheckpointFolder(run, step));
  EXPECT_EQ(getCheckpointFolder(run, 9).filename(), "step-0000000009");
  for (const char *other : {"step-99999999999999999999", "step-3", "step-", "step-0000000999.tmp"})
    fs::create_directory(run / other); // not a checkpoint
  EXPECT_EQ(findCheckpoint(run), run / "step-20000000000");
  EXPECT_EQ(findCheckpoint(run / "step-0000000009"), run / "step-0000000009");
  run /= "nowhere";
  EXPECT_THAT(getMessage(), HasSubstr("cannot be read"));
}

} // namespace
