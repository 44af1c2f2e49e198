//===- HostPoolTest.cpp - memory of arrays that come and go ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/HostPool.h"

#include "runtime/core/Error.h"

#include <gmock/gmock.h>
#include <optional>

using namespace gridloom::rt;

TEST(HostPool, WhatIsHeldStaysAndWhatIsGoneIsUsedAgain) {
  HostPool pool;
  HostArray held = pool.allocate(DataType::F32, {1 << 20});
  held.as<float>()[0] = 7;
  std::optional<HostArray> gone = pool.allocate(DataType::F32, {1 << 20});
  const std::byte *memory = gone->getData();
  EXPECT_NE(memory, held.getData());
  gone.reset();
  HostArray next = pool.allocate(DataType::F32, {1 << 10, 1 << 10});
  EXPECT_EQ(next.getData(), memory);
  EXPECT_EQ(held.as<float>()[0], 7);
  EXPECT_NE(pool.allocate(DataType::F32, {1 << 20}).getData(), held.getData());
}

TEST(HostPool, ACopyHoldsTheMemory) {
  HostPool pool;
  std::optional<HostArray> first = pool.allocate(DataType::I64, {4});
  HostArray copy = *first;
  const std::byte *memory = first->getData();
  first.reset();
  EXPECT_NE(pool.allocate(DataType::I64, {4}).getData(), memory);
}

TEST(HostPool, ArraysOutliveIt) {
  HostArray array;
  {
    HostPool pool;
    array = pool.allocate(DataType::F64, {3});
    array.as<double>()[2] = 5;
  }
  EXPECT_EQ(array.as<double>()[2], 5);
}

TEST(HostPool, EmptyArraysAndImpossibleOnes) {
  HostPool pool;
  EXPECT_EQ(pool.allocate(DataType::F32, {0, 5}).getNumBytes(), 0u);
  EXPECT_THROW(pool.allocate(DataType::F32, {-1}), Error);
  EXPECT_THROW(pool.allocate(DataType::F32, {int64_t(1) << 46}), Error);
  EXPECT_EQ(pool.allocate(DataType::F32, {2}).getNumBytes(), 8u);
}
