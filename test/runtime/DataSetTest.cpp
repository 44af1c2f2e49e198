//===- DataSetTest.cpp - samples for training -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/DataSet.h"

#include "runtime/arrays/Npy.h"
#include "runtime/arrays/Npz.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "support/TemporaryFolder.h"
#include "test/runtime/PlanBuilder.h"

#include <array>
#include <gmock/gmock.h>
#include <numeric>

using namespace gridloom::rt;
using gridloom::TemporaryFolder;
using gridloom::test::writeFile;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

class DataFolder : public testing::Test {
protected:
  TemporaryFolder temporary;
  std::filesystem::path folder = temporary.getPath();
  std::vector<DataSet::Column> columns = {{"images/x", DataType::F32, {2}},
                                          {"labels", DataType::I64, {}}};

  void save(const std::string &name, DataType type, std::vector<int64_t> shape) const {
    HostArray array = HostArray::allocate(type, std::move(shape));
    if (type == DataType::F32)
      std::iota(array.as<float>().begin(), array.as<float>().end(), 0.0f);
    if (type == DataType::I64)
      std::iota(array.as<int64_t>().begin(), array.as<int64_t>().end(), 100);
    writeNpy(folder / name, array);
  }

  std::string getError() const {
    try {
      DataSet::open(folder, columns);
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::InvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(folder.string()));
      return error.what();
    }
    return "no error";
  }
};

/// Tokens, a mask for pairs of tokens, and labels, for samples of the lengths 2, 1 and 3.
TEST_F(DataFolder, BatchesAreAsLongAsTheyAreTold) {
  columns = {{"ids", DataType::I64, {8}, {0}},
             {"pairs", DataType::F32, {8, 8, 2}, {0, 1}},
             {"labels", DataType::I64, {8}, {0}, -100},
             {"kind", DataType::F32, {2}}};
  save("ids.npy", DataType::I64, {3, 3}); // 100 to 108
  save("pairs.npy", DataType::F32, {3, 5, 4, 2});
  save("labels.npy", DataType::I64, {3, 6});
  save("kind.npy", DataType::F32, {3, 2});
  for (DataType type : {DataType::I64, DataType::I32}) {
    HostArray lengths = HostArray::allocate(type, {3});
    for (int64_t i = 0; i < 3; ++i)
      setElement(lengths, i, std::array{2, 1, 3}[size_t(i)]);
    writeNpy(folder / "sequence.npy", lengths);
    DataSet set = DataSet::open(folder, columns, "sequence", 8);
    std::vector<int64_t> samples = {1, 0};
    EXPECT_EQ(set.getLongest(samples), 2);
    HostArray ids = set.makeBatch("ids", samples, 4);
    EXPECT_EQ(ids.getShape(), (std::vector<int64_t>{2, 4}));
    EXPECT_THAT(ids.as<int64_t>(), ElementsAre(103, 0, 0, 0, 100, 101, 0, 0));
    EXPECT_THAT(set.makeBatch("labels", samples, 3).as<int64_t>(),
                ElementsAre(106, -100, -100, 100, 101, -100));
    EXPECT_THAT(set.makeBatch("kind", samples, 4).as<float>(), ElementsAre(2, 3, 0, 1));
    HostArray pairs = set.makeBatch("pairs", samples, 3);
    EXPECT_EQ(pairs.getShape(), (std::vector<int64_t>{2, 3, 3, 2}));
    for (int64_t i = 0; i < pairs.getNumElements(); ++i) {
      int64_t channel = i % 2, column = i / 2 % 3, row = i / 6 % 3, sample = i / 18;
      int64_t length = sample == 0 ? 1 : 2, from = sample == 0 ? 40 : 0;
      float want =
          row < length && column < length ? float(from + row * 8 + column * 2 + channel) : 0;
      EXPECT_EQ(pairs.as<float>()[size_t(i)], want) << i;
    }
  }
}

TEST_F(DataFolder, LengthsHaveToFit) {
  columns = {{"ids", DataType::I64, {8}, {0}}};
  auto getError = [&](int64_t longest) {
    try {
      DataSet::open(folder, columns, "sequence", longest);
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  save("ids.npy", DataType::I64, {2, 6});
  EXPECT_THAT(getError(8), HasSubstr("there is no sequence.npy, which says how long"));
  save("sequence.npy", DataType::F32, {2});
  EXPECT_THAT(getError(8), HasSubstr("sequence.npy holds f32 [2]; how long each sample is are"));
  save("sequence.npy", DataType::I64, {3});
  EXPECT_THAT(getError(8), HasSubstr("holds i64 [3]; how long each sample is are integers [2]"));
  save("sequence.npy", DataType::I64, {2}); // 100, 101
  EXPECT_THAT(getError(8), HasSubstr("sequence.npy says that sample 0 is 100 long; ids.npy has "
                                     "only 6"));
  EXPECT_THAT(getError(4), HasSubstr("is 100 long; the plan's largest size is 4"));
  writeNpy(folder / "sequence.npy", HostArray::allocate(DataType::I64, {2}));
  EXPECT_THAT(getError(8), HasSubstr("sample 0 is 0 long; the least is 1"));
  save("ids.npy", DataType::I64, {2, 6, 1});
  EXPECT_THAT(getError(8), HasSubstr("ids.npy holds i64 [2, 6, 1], but the plan takes i64 "
                                     "[samples, any]"));
}

TEST_F(DataFolder, BatchesTakeSamplesOfAllInputs) {
  save("images_x.npy", DataType::F32, {4, 2});
  save("labels.npy", DataType::I64, {4});
  save("other.npy", DataType::F64, {9});
  DataSet set = DataSet::open(folder, columns);
  EXPECT_EQ(set.getNumSamples(), 4);
  std::vector<int64_t> samples = {3, 0, 3};
  HostArray images = set.makeBatch("images/x", samples), labels = set.makeBatch("labels", samples);
  EXPECT_THAT(images.getShape(), ElementsAre(3, 2));
  EXPECT_THAT(images.as<float>(), ElementsAre(6, 7, 0, 1, 6, 7));
  EXPECT_THAT(labels.getShape(), ElementsAre(3));
  EXPECT_THAT(labels.as<int64_t>(), ElementsAre(103, 100, 103));
}

TEST_F(DataFolder, EightBitFloatsAreReadFromBytes) {
  columns = {{"codes", DataType::F8E4M3FN, {3}}};
  save("codes.npy", DataType::U8, {2, 3});
  std::vector<int64_t> samples = {1};
  EXPECT_EQ(DataSet::open(folder, columns).makeBatch("codes", samples).getType(),
            DataType::F8E4M3FN);
}

TEST_F(DataFolder, OneErrorNamesAllThatDoesNotFit) {
  EXPECT_THAT(getError(), AllOf(HasSubstr("there is no images_x.npy, which the plan takes as f32 "
                                          "[samples, 2]; there is no labels.npy, which the plan "
                                          "takes as i64 [samples]")));
  save("images_x.npy", DataType::F32, {4, 3});
  save("labels.npy", DataType::I32, {4});
  EXPECT_THAT(getError(), AllOf(HasSubstr("images_x.npy holds f32 [4, 3], but the plan takes f32 "
                                          "[samples, 2]; labels.npy holds i32 [4], but the plan "
                                          "takes i64 [samples]")));
  save("images_x.npy", DataType::F32, {4, 2});
  save("labels.npy", DataType::I64, {5});
  EXPECT_THAT(getError(), HasSubstr("labels.npy has 5 samples, images_x.npy 4"));
  save("labels.npy", DataType::I64, {});
  EXPECT_THAT(getError(), HasSubstr("labels.npy holds i64 [], but the plan takes i64 [samples]"));
  writeFile(folder / "labels.npy", "no array");
  EXPECT_THAT(getError(), HasSubstr("is not a .npy file"));
  save("images_x.npy", DataType::F32, {0, 2});
  save("labels.npy", DataType::I64, {0});
  EXPECT_THAT(getError(), HasSubstr("has no samples"));
}

TEST_F(DataFolder, WhatIsNeitherFolderNorArchiveIsRefused) {
  for (const char *name : {"x.npz", "nowhere"}) {
    folder = temporary.getPath() / name;
    EXPECT_THAT(getError(), HasSubstr("is neither a folder of .npy files nor a .npz file"));
  }
  writeFile(folder, "");
  EXPECT_THAT(getError(), HasSubstr("is neither a folder"));
}

TEST_F(DataFolder, ChangedFilesAreNoticed) {
  save("images_x.npy", DataType::F32, {4000, 2});
  save("labels.npy", DataType::I64, {4000});
  DataSet set = DataSet::open(folder, columns);
  std::filesystem::resize_file(folder / "images_x.npy", 100);
  std::vector<int64_t> samples = {3999};
  EXPECT_THAT([&] { set.makeBatch("images/x", samples); },
              testing::ThrowsMessage<Error>(HasSubstr("was changed while it is in use")));
}

/// Archives as numpy.savez writes them, with the 64-bit sizes in the local header's extra field.
class DataArchive : public DataFolder {
protected:
  std::map<std::string, std::string> members; // data by name
  int method = 0, flags = 0;
  bool isLarge = false; // 64-bit sizes in the directory, too

  void SetUp() override {
    save("images_x.npy", DataType::F32, {4, 2});
    save("labels.npy", DataType::I64, {4});
    members = {{"images/x.npy", read("images_x.npy")}, {"labels.npy", read("labels.npy")}};
    folder = temporary.getPath() / "data.npz";
  }

  std::string read(const char *name) const {
    std::ifstream file(temporary.getPath() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static std::string number(uint64_t value, size_t bytes) {
    std::string text(bytes, '\0');
    memcpy(text.data(), &value, std::min(bytes, sizeof value));
    return text;
  }

  std::string makeArchive() const {
    std::string file, directory;
    const std::string none(4, '\xff');
    for (const auto &[name, data] : members) {
      size_t offset = file.size(), size = data.size();
      file += "PK\3\4" + number(45, 2) + number(0, 20) + number(name.size(), 2) + number(20, 2) +
              name + number(1, 2) + number(16, 2) + number(size, 8) + number(size, 8) + data;
      std::string extra = isLarge
                              ? number(7, 2) + number(1, 2) + "x" + number(1, 2) + number(24, 2) +
                                    number(size, 8) + number(size, 8) + number(offset, 8)
                              : "";
      directory += "PK\1\2" + number(45, 2) + number(45, 2) + number(uint64_t(flags), 2) +
                   number(uint64_t(method), 2) + number(0, 8) +
                   (isLarge ? none + none : number(size, 4) + number(size, 4)) +
                   number(name.size(), 2) + number(extra.size(), 2) + number(0, 10) +
                   (isLarge ? none : number(offset, 4)) + name + extra;
    }
    size_t begin = file.size();
    file += directory;
    size_t record = file.size();
    if (isLarge)
      file += "PK\6\6" + number(44, 8) + number(0, 20) + number(2, 8) +
              number(directory.size(), 8) + number(begin, 8) + "PK\6\7" + number(0, 4) +
              number(record, 8) + number(1, 4);
    file += "PK\5\6" + number(0, 4) + number(2, 2) + number(2, 2) +
            (isLarge ? none + none : number(directory.size(), 4) + number(begin, 4)) +
            number(3, 2) + "PK!"; // a comment
    return file;
  }

  std::string getErrorOf(const std::string &archive) const {
    writeFile(folder, archive);
    return getError();
  }
};

TEST_F(DataArchive, MembersAreRead) {
  for (bool large : {false, true}) {
    isLarge = large;
    ASSERT_EQ(getErrorOf(makeArchive()), "no error");
    DataSet set = DataSet::open(folder, columns);
    std::vector<int64_t> samples = {3, 0};
    EXPECT_THAT(set.makeBatch("images/x", samples).as<float>(), ElementsAre(6, 7, 0, 1));
    EXPECT_THAT(set.makeBatch("labels", samples).as<int64_t>(), ElementsAre(103, 100));
  }
}

/// A file's name has `_` for `/`, a member's name may keep it.
TEST_F(DataArchive, InputsOfOneFileAreRefused) {
  columns = {{"a/b", DataType::F32, {2}}, {"a_b", DataType::F32, {2}}};
  folder = temporary.getPath();
  save("a_b.npy", DataType::F32, {4, 2});
  EXPECT_THAT(getError(),
              HasSubstr("'a/b' and 'a_b' would both be read from a_b.npy; give a .npz"));
  members = {{"a_b.npy", read("a_b.npy")}};
  folder /= "data.npz";
  EXPECT_THAT(getErrorOf(makeArchive()), HasSubstr("would both be read from a_b.npy"));
  members["a/b.npy"] = read("a_b.npy");
  EXPECT_EQ(getErrorOf(makeArchive()), "no error");
}

TEST_F(DataArchive, WhatCannotBeReadIsNamed) {
  method = 8;
  EXPECT_THAT(getErrorOf(makeArchive()), HasSubstr("is compressed, as numpy.savez_compressed"));
  method = 0;
  flags = 1;
  EXPECT_THAT(getErrorOf(makeArchive()), HasSubstr("is encrypted"));
  flags = 0;
  members["labels.npy"].pop_back();
  EXPECT_THAT(getErrorOf(makeArchive()), HasSubstr("data.npz/labels.npy: holds 31 bytes"));
  members.erase("labels.npy");
  EXPECT_THAT(getErrorOf(makeArchive()), HasSubstr("there is no labels.npy"));
  EXPECT_THAT(getErrorOf("PK"), HasSubstr("it has no directory; write it with numpy.savez"));
}

TEST_F(DataArchive, MutilatedArchivesNeverCrash) {
  auto isWhole = [](const std::string &archive) {
    try {
      findNpzMembers(std::as_bytes(std::span(archive.data(), archive.size())), "x.npz");
    } catch (const Error &error) {
      EXPECT_THAT(error.what(), testing::StartsWith("x.npz "));
      return false;
    }
    return true;
  };
  for (bool large : {false, true}) {
    isLarge = large;
    std::string whole = makeArchive();
    ASSERT_TRUE(isWhole(whole));
    for (size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(isWhole(whole.substr(0, size))) << size;
    for (size_t i = 0; i < whole.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = whole;
        damaged[i] ^= char(1 << bit);
        isWhole(damaged); // either result, but no crash
      }
  }
}

} // namespace
