//===- DataSetTest.cpp - samples to train on ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/DataSet.h"

#include "runtime/arrays/Npy.h"
#include "runtime/core/Error.h"
#include "support/TemporaryFolder.h"
#include "test/runtime/PlanBuilder.h"

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

TEST_F(DataFolder, WhatIsNoFolderIsRefused) {
  folder = temporary.getPath() / "x.npz";
  EXPECT_THAT(getError(), HasSubstr("unpack it (unzip)"));
  folder = temporary.getPath() / "nowhere";
  EXPECT_THAT(getError(), HasSubstr("is no folder"));
}

} // namespace
