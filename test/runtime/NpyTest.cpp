//===- NpyTest.cpp - arrays in and out of the command line ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/arrays/Npy.h"

#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "test/runtime/PlanBuilder.h"

#include <cmath>
#include <gmock/gmock.h>

using namespace gridloom::rt;
using gridloom::TemporaryFolder;
using gridloom::test::writeFile;
using testing::HasSubstr;

namespace {

const DataType allTypes[] = {DataType::F32, DataType::F64,  DataType::F16, DataType::BF16,
                             DataType::I8,  DataType::I16,  DataType::I32, DataType::I64,
                             DataType::U8,  DataType::Bool, DataType::U16, DataType::U32,
                             DataType::U64};

/// A file of numpy's format version 1 with this header and `bytes` bytes of data.
std::string makeFile(const std::string &header, size_t bytes, char major = 1) {
  std::string text = "\x93NUMPY" + std::string{major, 0};
  text += char(header.size() & 0xff);
  text += char(header.size() >> 8);
  if (major > 1)
    text += std::string(2, 0);
  return text + header + std::string(bytes, 1);
}

class Npy : public testing::Test {
protected:
  TemporaryFolder folder;
  std::filesystem::path path = folder.getPath() / "x.npy";

  std::string getError(const std::string &contents) {
    writeFile(path, contents);
    try {
      readNpy(path);
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::InvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      return error.what();
    }
    return "no error";
  }
};

TEST_F(Npy, WhatIsWrittenIsRead) {
  for (DataType type : allTypes)
    for (std::vector<int64_t> shape :
         std::vector<std::vector<int64_t>>{{}, {1}, {7}, {0, 3}, {2, 3, 5}}) {
      HostArray array = HostArray::allocate(type, shape);
      for (int64_t i = 0; i < array.getNumElements(); ++i)
        setElement(array, i, type == DataType::Bool ? double(i % 2) : double(i % 100));
      writeNpy(path, array);
      EXPECT_EQ((std::filesystem::file_size(path) - array.getNumBytes()) % 64, 0u);
      HostArray read = readNpy(path);
      EXPECT_EQ(read.getType(), type);
      EXPECT_EQ(read.getShape(), shape);
      EXPECT_EQ(memcmp(read.getData(), array.getData(), array.getNumBytes()), 0);
    }
}

TEST_F(Npy, AFileThatIsRewrittenDoesNotChangeWhatIsRead) {
  HostArray array = HostArray::allocate(DataType::I32, {2000});
  for (int32_t &element : array.as<int32_t>())
    element = 7;
  writeNpy(path, array);
  std::vector<std::shared_ptr<const MappedFile>> files;
  HostArray copy = readNpy(path), mapped = readNpy(path, &files);
  ASSERT_EQ(files.size(), 1U);
  files.front()->requireUnchanged();
  writeFile(path, ""); // as numpy.save begins
  EXPECT_THAT(copy.as<int32_t>(), testing::Each(7));
  EXPECT_EQ(mapped.as<int32_t>()[1999], 0);
  try {
    files.front()->requireUnchanged();
    FAIL();
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("was changed while it is in use"));
  }
}

/// The format has no 8-bit floats: they are read back as bytes.
TEST_F(Npy, FloatsOf8BitsAreBytes) {
  for (DataType type :
       {DataType::F8E4M3FN, DataType::F8E5M2, DataType::F8E4M3FNUZ, DataType::F8E5M2FNUZ}) {
    HostArray array = HostArray::allocate(type, {3});
    for (int64_t i = 0; i < 3; ++i)
      setElement(array, i, double(i) - 1.5);
    EXPECT_EQ(getElement(array, 0), -1.5) << nameOf(type);
    writeNpy(path, array);
    HostArray read = readNpy(path);
    EXPECT_EQ(read.getType(), DataType::U8);
    EXPECT_EQ(memcmp(read.getData(), array.getData(), 3), 0);
  }
  writeFile(path, makeFile("{'descr': '<f1', 'fortran_order': False, 'shape': (2,)}", 2));
  EXPECT_EQ(readNpy(path).getType(), DataType::U8);
}

TEST_F(Npy, OtherSpellingsOfTheHeader) {
  writeFile(path, makeFile("{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"=i4\"}", 24));
  EXPECT_EQ(readNpy(path).getShape(), (std::vector<int64_t>{2, 3}));
  writeFile(path, makeFile("{'descr': '<f8', 'fortran_order': True, 'shape': (3,), }\n", 24));
  EXPECT_EQ(readNpy(path).getType(), DataType::F64) << "one dimension has but one order";
  for (char major : {2, 3}) {
    writeFile(path, makeFile("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, major));
    EXPECT_EQ(readNpy(path).getNumElements(), 1);
  }
}

TEST_F(Npy, HostileFilesAreRefused) {
  auto header = [](const std::string &type, const std::string &order, const std::string &shape) {
    return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
  };
  const std::string good = header("<f4", "False", "(2, 3)");
  const std::tuple<std::string, std::string> cases[] = {
      {"", "is not a .npy file"},
      {"\x93NUMP", "is not a .npy file"},
      {"PK\3\4 a zip file, long enough", "is not a .npy file"},
      {makeFile(good, 24, 9), "version 9"},
      {makeFile(good, 23), "holds 23 bytes of data; [2, 3] of f32 takes 24"},
      {makeFile(good, 25), "holds 25 bytes"},
      {makeFile(good, 24).substr(0, 30), "ends within its header"},
      {std::string("\x93NUMPY\2\0\xff\xff\xff\xff{", 13), "ends within its header"},
      {makeFile(header(">f4", "False", "(2,)"), 8), "big-endian"},
      {makeFile(header("<c8", "False", "(2,)"), 16), "'<c8' is not one of"},
      {makeFile(header("|O", "False", "(2,)"), 16), "'|O' is not one of"},
      {makeFile(header("<f4", "True", "(2, 3)"), 24), "Fortran"},
      {makeFile(header("<f4", "False", "(-2, 3)"), 24), "lacks a size"},
      {makeFile(header("<f4", "False", "(99999999999999999999,)"), 24), "lacks a size"},
      {makeFile(header("<f4", "False", "(4611686018427387904, 4611686018427387904)"), 24), ""},
      {makeFile(header("<f4", "False", "(2, 3"), 24), "lacks a size"},
      {makeFile(header("<f4", "Maybe", "(2, 3)"), 24), "True or False"},
      {makeFile("{'descr': '<f4'}", 24), "lacks one of"},
      {makeFile("{'descr': '<f4', 'descr': '<f4'}", 24), "repeated key 'descr'"},
      {makeFile("{'code': '<f4'}", 24), "unknown or repeated key 'code'"},
      {makeFile("{'descr: <f4}", 24), "lacks a string"},
      {makeFile(good + " import os", 24), "after its closing brace"},
      {makeFile(header(
                    "<f4", "False",
                    "(" +
                        [] {
                          std::string ones;
                          for (int i = 0; i < 40; ++i)
                            ones += "1,";
                          return ones;
                        }() +
                        ")"),
                4),
       "more than 32 dimensions"},
  };
  for (const auto &[contents, words] : cases)
    EXPECT_THAT(getError(contents), testing::AllOf(HasSubstr(words), testing::Ne("no error")));
}

TEST_F(Npy, MutilatedFilesNeverCrash) {
  HostArray array = HostArray::allocate(DataType::I32, {3, 4});
  writeNpy(path, array);
  std::ifstream file(path, std::ios::binary);
  std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (size_t at = 0; at < 96; ++at)
    for (char value : {'\0', '\xff', '9', '(', '\''}) {
      std::string damaged = whole;
      damaged[at] = value;
      writeFile(path, damaged);
      try {
        readNpy(path);
      } catch (const Error &) {
      }
    }
}

TEST_F(Npy, MissingFile) {
  EXPECT_THROW(readNpy(folder.getPath() / "no.npy"), Error);
  EXPECT_THROW(readNpy(folder.getPath()), Error);
}

TEST(Summary, TellsOfNaN) {
  HostArray array = HostArray::allocate(DataType::F32, {3});
  array.as<float>()[0] = NAN;
  array.as<float>()[1] = 2;
  EXPECT_EQ(summarize(array), "f32 [3]  min 0  max 2  mean 1  NaN 1 of 3  first nan 2 0");
  EXPECT_EQ(summarize(HostArray::allocate(DataType::F32, {0, 2})), "f32 [0, 2]  empty");
}

} // namespace
