//===- ColumnSeedsTest.cpp - seeds that are abandoned early ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A seed that is undone as soon as it cannot pay off leaves no trace, and would not have been kept
// after full propagation either.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/ColumnSeeds.h"

#include "dialects/dist/Dist.h"
#include "dialects/loom/Loom.h"

#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <random>
#include <set>

using namespace gridloom;

namespace {

/// A random program of products with weights and other operations between them, of a few widths.
class RandomProgram {
public:
  explicit RandomProgram(unsigned seed) : random(seed) {
    for (int width : {16, 24, 32})
      values.push_back({"%x" + std::to_string(width), width});
  }

  std::string write(int operations) {
    for (int i = 0; i < operations; ++i)
      add();
    std::string arguments, results, types, returned;
    for (int width : {16, 24, 32})
      arguments += (arguments.empty() ? "" : ", ") + ("%x" + std::to_string(width)) + ": " +
                   getType(width) + " {loom.name = \"x" + std::to_string(width) + "\"}";
    for (const auto &[name, width] : {values.back(), values[values.size() / 2]}) {
      results += (results.empty() ? "" : ", ") + name;
      types += (types.empty() ? "" : ", ") + getType(width);
      returned += (returned.empty() ? "" : ", ") + getType(width) + " {loom.name = \"y" +
                  std::to_string(returned.size()) + "\"}";
    }
    return "dist.mesh @mesh <[\"model\" = 4]>\n" + weights + "func.func @main(" + arguments +
           ") -> (" + returned + ") {\n" + body + "  return " + results + " : " + types + "\n}\n";
  }

private:
  using Named = std::pair<std::string, int>;

  static std::string getType(int width) { return "tensor<8x" + std::to_string(width) + "xf32>"; }

  int pick(size_t count) { return int(random() % count); }

  /// Mostly one of the latest values, so that programs are deep.
  Named pickValue() {
    size_t latest = std::min<size_t>(values.size(), 6);
    return values[values.size() - 1 - pick(latest)];
  }

  void make(int width, const std::string &operation) {
    std::string name = "%v" + std::to_string(values.size());
    body += "  " + name + " = " + operation + "\n";
    values.emplace_back(name, width);
  }

  void multiply(const Named &value) {
    int width = 8 * (2 + pick(3));
    std::string number = std::to_string(values.size());
    std::string type =
        "tensor<" + std::to_string(value.second) + "x" + std::to_string(width) + "xf32>";
    weights += "loom.weight @w" + number + " : " + type +
               " from <\"\", offset = 0, bytes = " + std::to_string(4 * value.second * width) +
               ">\n";
    body += "  %w" + number + " = loom.get_weight @w" + number + " : " + type + "\n";
    make(width, "loom.dot_general " + value.first + ", %w" + number +
                    " batch = [] x [] contract = [1] x [0] : (" + getType(value.second) + ", " +
                    type + ") -> " + getType(width));
  }

  void add() {
    Named value = pickValue(), other = pickValue();
    switch (pick(8)) {
    case 0:
    case 1:
    case 2:
      return multiply(value);
    case 3:
    case 4:
      if (other.second == value.second)
        return make(value.second,
                    "loom.add " + value.first + ", " + other.first + " : " + getType(value.second));
      return multiply(value);
    case 5:
      if (pick(4) == 0)
        return make(value.second,
                    "loom.softmax " + value.first + " dim = 1 : " + getType(value.second));
      [[fallthrough]];
    default:
      return make(value.second, "loom.exp " + value.first + " : " + getType(value.second));
    }
  }

  std::mt19937 random;
  std::string weights, body;
  std::vector<Named> values;
};

class ColumnSeedsTest : public testing::Test {
protected:
  ColumnSeedsTest() {
    context.loadDialect<loom::LoomDialect, dist::DistDialect, mlir::func::FuncDialect>();
  }

  void parse(const std::string &text) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    ASSERT_TRUE(module) << text;
    func = *module->getOps<mlir::func::FuncOp>().begin();
  }

  /// The shardings of all values after seeding.
  std::vector<dist::Sharding> seed(bool explains) {
    Propagation state(func, dist::Mesh::get(*module));
    state.run();
    seedColumns(state, func, mlir::StringAttr::get(&context, "model"), explains);
    return list(state);
  }

  static std::vector<dist::Sharding> list(const Propagation &state) {
    std::vector<dist::Sharding> all;
    state.forEachValue([&](mlir::Value value) { all.push_back(state.lookup(value).sharding); });
    return all;
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp func;
};

TEST_F(ColumnSeedsTest, WhatIsGivenUpWouldNotHaveStayed) {
  auto axis = mlir::StringAttr::get(&context, "model");
  int split = 0, obstacles = 0;
  for (unsigned number = 0; number < 60; ++number) {
    parse(RandomProgram(number).write(/*operations=*/150));
    std::vector<dist::Sharding> early = seed(/*explains=*/false);
    EXPECT_TRUE(func.getOps<loom::GetWeightOp>().empty() ||
                llvm::none_of(func.getOps<loom::GetWeightOp>(),
                              [](auto get) { return get->hasAttr(dist::kObstacle); }));
    std::vector<dist::Sharding> thorough = seed(/*explains=*/true);
    EXPECT_EQ(early, thorough) << "program " << number;
    split += llvm::count_if(
        early, [&](const dist::Sharding &sharding) { return sharding.usesAxis(axis); });
    obstacles += llvm::count_if(func.getOps<loom::GetWeightOp>(),
                                [](auto get) { return get->hasAttr(dist::kObstacle); });
  }
  EXPECT_GT(split, 0);
  EXPECT_GT(obstacles, 0);
}

TEST_F(ColumnSeedsTest, AnAttemptThatStopsLeavesNothingBehind) {
  constexpr int count = 300;
  std::string text = "dist.mesh @mesh <[\"model\" = 4]>\n"
                     "func.func @main(%v0: tensor<8x16xf32> {loom.name = \"x\"}) -> "
                     "(tensor<8x16xf32> {loom.name = \"y\"}) {\n";
  for (int i = 0; i < count; ++i)
    text += "  %v" + std::to_string(i + 1) + " = loom.exp %v" + std::to_string(i) +
            " : tensor<8x16xf32>\n";
  parse(text + "  return %v" + std::to_string(count) + " : tensor<8x16xf32>\n}\n");
  auto axis = mlir::StringAttr::get(&context, "model");
  Propagation state(func, dist::Mesh::get(*module));
  state.run();
  auto ignore = [](size_t, int64_t) {};
  EXPECT_EQ(state.countReshards(ignore), 0);
  auto countSplit = [&] {
    std::vector<dist::Sharding> all = list(state);
    return llvm::count_if(all, [&](const dist::Sharding &each) { return each.usesAxis(axis); });
  };
  mlir::Value middle = *std::next(func.getOps<loom::ExpOp>().begin(), count / 2);
  EXPECT_FALSE(state.attempt([&] {
    EXPECT_TRUE(state.addAxis(middle, 1, axis, "test"));
    state.run([] { return true; });
    EXPECT_GT(countSplit(), 1);
    EXPECT_LT(countSplit(), count);
    EXPECT_GT(state.countReshards(ignore), 0); // the part propagated so far needs some
    EXPECT_EQ(state.getLeastReshards(), 0);    // but going on might remove them
    return false;
  }));
  EXPECT_EQ(countSplit(), 0);
  EXPECT_EQ(state.countReshards(ignore), 0);
  state.run();
  EXPECT_EQ(countSplit(), 0);
  EXPECT_TRUE(state.addAxis(middle, 1, axis, "test"));
  state.run();
  EXPECT_EQ(countSplit(), count + 1);
}

TEST(WorklistTest, IsASortedSet) {
  std::mt19937 random(1);
  Worklist list;
  list.fill(0);
  EXPECT_EQ(list.getFirst(), -1);
  EXPECT_EQ(list.getLast(), -1);
  constexpr int limit = 300;
  list.fill(limit);
  std::set<int> plain;
  for (int i = 0; i < limit; ++i)
    plain.insert(i);
  for (int step = 0; step < 5000; ++step) {
    int number = int(random() % limit);
    if (step % 97 == 0) {
      list.clear();
      plain.clear();
    } else if (random() % 3 == 0) {
      list.insert(number);
      plain.insert(number);
    } else {
      list.erase(number);
      plain.erase(number);
    }
    ASSERT_EQ(list.getFirst(), plain.empty() ? -1 : *plain.begin());
    ASSERT_EQ(list.getLast(), plain.empty() ? -1 : *plain.rbegin());
    std::vector<int> forwards, backwards;
    for (int i = list.getFirst(); i >= 0; i = list.getNext(i))
      forwards.push_back(i);
    for (int i = list.getLast(); i >= 0; i = list.getPrevious(i))
      backwards.push_back(i);
    ASSERT_EQ(forwards, std::vector<int>(plain.begin(), plain.end()));
    ASSERT_EQ(backwards, std::vector<int>(plain.rbegin(), plain.rend()));
  }
}

} // namespace
