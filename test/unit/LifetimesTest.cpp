//===- LifetimesTest.cpp - estimated live ranges of buffers ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Lifetimes.h"

#include "compiler/driver/Registration.h"
#include "passes/allocate/BufferSizes.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

using namespace gridloom;

namespace {

struct Packed {
  int64_t arena = 0, registered = 0;
  bool operator==(const Packed &other) const = default;
};

std::ostream &operator<<(std::ostream &os, const Packed &packed) {
  return os << "arena " << packed.arena << ", registered " << packed.registered;
}

class LifetimesTest : public testing::Test {
protected:
  LifetimesTest() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
  }

  /// Packs the buffers of a program with an input x and an output y of 128 bytes each. In `body` B
  /// stands for the type of a buffer of 128 bytes, STREAM for a stream of collectives.
  Packed pack(const std::string &body) {
    std::string text = kKernels + R"(
      plan.program @p {
        %x = plan.buffer input "x" : B
        %y = plan.buffer output "y" : B
)" + body + "} {entry = \"main\", dims = {}, stage = 0 : i64}";
    auto replace = [&](const std::string &word, const std::string &by) {
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at))
        text.replace(at, word.size(), by);
    };
    replace(": B", ": !plan.buffer<tensor<32xf32>>");
    replace("STREAM", "collective over [\"model\"]");
    auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module) {
      ADD_FAILURE() << "does not parse:\n" << text;
      return {};
    }
    plan::ProgramOp program = *module->getOps<plan::ProgramOp>().begin();
    Lifetimes::addSlots(program);
    setBufferBytes(program);
    Lifetimes lifetimes(program);
    return {lifetimes.pack(plan::Space::Arena), lifetimes.pack(plan::Space::Registered)};
  }

  static std::string reduce(const std::string &from, const std::string &to,
                            const std::string &axis = "model") {
    std::string axes = "over [\"" + axis + "\"]";
    return "plan.group all_reduce " + axes + " by sum sequence 0 ins(" + from + " : B) outs(" + to +
           " : B) on collective " + axes + "\n";
  }
  static std::string copy(const std::string &from, const std::string &to) {
    return "plan.copy ins(" + from + " : B) outs(" + to + " : B) on compute\n";
  }
  static std::string launch(const std::string &kernel, const std::string &from,
                            const std::string &to) {
    return "plan.launch @" + kernel + " ins(" + from + " : B) outs(" + to + " : B) on compute\n";
  }
  static std::string declare(const std::string &space, const std::string &names) {
    std::string text;
    for (char name : names)
      text += std::string("%") + name + " = plan.buffer " + space + " : B\n";
    return text;
  }
  static std::string block(const std::string &steps) { return "plan.block {\n" + steps + "}\n"; }

  const std::string kKernels = R"(
    plan.kernel @exp in_place = [#plan.in_place<output = 0, input = 0>] {
    ^bb0(%v: tensor<32xf32>):
      %0 = loom.exp %v : tensor<32xf32>
      loom.yield %0 : tensor<32xf32>
    }
    plan.kernel @flip {
    ^bb0(%v: tensor<32xf32>):
      %0 = loom.reverse %v dims = [0] : tensor<32xf32>
      loom.yield %0 : tensor<32xf32>
    })";
  mlir::MLIRContext context;
};

TEST_F(LifetimesTest, KernelsWriteOverInputsThatNothingUsesLater) {
  auto run = [&](const std::string &kernel, const std::string &last) {
    return pack(declare("arena", "ab") +
                block(copy("%x", "%a") + launch(kernel, "%a", "%b") + copy(last, "%y")));
  };
  EXPECT_EQ(run("exp", "%b"), (Packed{128, 0}));
  EXPECT_EQ(run("exp", "%a"), (Packed{256, 0}));
  EXPECT_EQ(run("flip", "%b"), (Packed{256, 0}));
}

TEST_F(LifetimesTest, GroupsReadUntilComputeWaitsForThem) {
  std::string started = copy("%x", "%a") + reduce("%a", "%b");
  EXPECT_EQ(pack(declare("registered", "abc") +
                 block(started + copy("%b", "%y") + copy("%x", "%c") + copy("%c", "%y"))),
            (Packed{0, 256}));
  EXPECT_EQ(pack(declare("registered", "abc") +
                 block(started + copy("%x", "%c") + copy("%b", "%y") + copy("%c", "%y"))),
            (Packed{0, 384}));
}

TEST_F(LifetimesTest, GroupsDoNotWaitForComputeAfterWhatTheyRead) {
  // %c may still be read when the group starts, so %b cannot share its memory.
  std::string made = copy("%x", "%c") + copy("%x", "%a") + copy("%c", "%y");
  EXPECT_EQ(
      pack(declare("registered", "abc") + block(made + reduce("%a", "%b") + copy("%b", "%y"))),
      (Packed{0, 384}));
  EXPECT_EQ(pack(declare("registered", "abc") +
                 block(made + "plan.wait 0 on STREAM\n" + reduce("%a", "%b") + copy("%b", "%y"))),
            (Packed{0, 256}));
}

TEST_F(LifetimesTest, GroupsOfAStreamFollowOneAnother) {
  std::string groups = copy("%x", "%a") + reduce("%a", "%b") + reduce("%b", "%c");
  EXPECT_EQ(pack(declare("registered", "abc") + block(groups + copy("%c", "%y"))),
            (Packed{0, 256}));
  // The compute stream has not waited yet, so %a, %b and %c are all in use for it.
  EXPECT_EQ(pack(declare("registered", "abcd") +
                 block(groups + copy("%x", "%d") + copy("%c", "%y") + copy("%d", "%y"))),
            (Packed{0, 384}));
}

TEST_F(LifetimesTest, ComputeThatWaitsForAGroupHasWaitedForThoseThatItFollows) {
  std::string groups = copy("%x", "%a") + reduce("%a", "%b") + reduce("%b", "%c", "data");
  EXPECT_EQ(pack(declare("registered", "abcde") +
                 block(groups + copy("%c", "%y") + copy("%x", "%d") + copy("%x", "%e") +
                       copy("%d", "%y") + copy("%e", "%y"))),
            (Packed{0, 256}));
}

TEST_F(LifetimesTest, WhatALoopReadsFromOutsideStaysAllTheWhile) {
  EXPECT_EQ(pack("%p = plan.buffer arena : !plan.buffer<tensor<i1>>\n" + declare("arena", "ab") +
                 block(copy("%x", "%a")) + "plan.while %p : !plan.buffer<tensor<i1>> {\n" +
                 block(copy("%a", "%y") + copy("%x", "%b") + copy("%b", "%y")) + "}\n"),
            (Packed{64 + 256, 0}));
}

TEST_F(LifetimesTest, WhatIsReadAfterALoopThatMakesItStaysFromItsBeginning) {
  EXPECT_EQ(pack("%p = plan.buffer arena : !plan.buffer<tensor<i1>>\n" + declare("arena", "ab") +
                 "plan.while %p : !plan.buffer<tensor<i1>> {\n" +
                 block(copy("%x", "%b") + copy("%b", "%y") + copy("%x", "%a")) + "}\n" +
                 block(copy("%a", "%y"))),
            (Packed{64 + 256, 0}));
}

TEST_F(LifetimesTest, WhatIsSentHasASlotForTheNextMicroBatch) {
  std::string sent = copy("%x", "%a") + "plan.group send over [] sequence 0 ins(%a : B) outs() on "
                                        "send stage 1 {channel = 0 : i64, stage = 1 : i64}\n";
  EXPECT_EQ(pack(declare("registered", "a") + block(sent)), (Packed{0, 128}));
  EXPECT_EQ(pack(declare("registered", "a") + "plan.repeat 4 {\n" + block(sent) + "}\n"),
            (Packed{0, 256}));
}

} // namespace
