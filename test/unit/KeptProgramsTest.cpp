//===- KeptProgramsTest.cpp - programs kept for the threads that made them ===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/KeptPrograms.h"

#include "compiler/planner/Replicas.h"

#include "gtest/gtest.h"

#include <array>
#include <latch>

using namespace gridloom;

namespace {

mlir::OwningOpRef<mlir::ModuleOp> makeModule(mlir::MLIRContext &context) {
  return mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
}

TEST(KeptProgramsTest, TheTwoWithTheLeastSumsOfEachContextStay) {
  mlir::MLIRContext one, other;
  KeptPrograms kept;
  for (auto [candidate, seconds] : {std::pair(0, 3.0), {1, 1.0}, {2, 2.0}, {3, 4.0}})
    kept.keep(static_cast<size_t>(candidate), seconds, makeModule(one));
  kept.keep(4, 9.0, makeModule(other));
  for (size_t candidate : {1, 2})
    EXPECT_EQ(kept.findContext(candidate), &one);
  for (size_t candidate : {0, 3, 5})
    EXPECT_EQ(kept.findContext(candidate), nullptr);
  EXPECT_EQ(kept.findContext(4), &other);
}

TEST(KeptProgramsTest, AProgramIsTakenOnceAndInItsContext) {
  mlir::MLIRContext one, other;
  KeptPrograms kept;
  kept.keep(0, 1.0, makeModule(one));
  kept.keep(1, 1.0, makeModule(one));
  EXPECT_FALSE(kept.take(0, &other));
  mlir::OwningOpRef<mlir::ModuleOp> taken = kept.take(0, &one);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->getContext(), &one);
  EXPECT_FALSE(kept.take(0, &one));
  kept.drop(1);
  EXPECT_FALSE(kept.take(1, &one));
}

/// Runs two tasks at once on two threads and returns the context of each.
std::array<mlir::MLIRContext *, 2>
runTwo(Replicas &replicas, mlir::ModuleOp program,
       llvm::function_ref<mlir::MLIRContext *(size_t)> getHome = nullptr) {
  std::array<mlir::MLIRContext *, 2> contexts{};
  std::latch both(2);
  replicas.run(
      2, program,
      [&](size_t i, Replicas::GetProgram get) {
        contexts[i] = get(program).getContext();
        both.arrive_and_wait(); // each thread takes one
      },
      getHome);
  return contexts;
}

TEST(ReplicasTest, TasksRunInTheirContext) {
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> program = makeModule(context);
  Replicas replicas(2);
  std::array<mlir::MLIRContext *, 2> contexts = runTwo(replicas, *program);
  ASSERT_NE(contexts[0], contexts[1]);
  for (int swaps = 0; swaps < 10; ++swaps) {
    std::swap(contexts[0], contexts[1]);
    EXPECT_EQ(runTwo(replicas, *program, [&](size_t i) { return contexts[i]; }), contexts);
  }
  // Both belong to one thread: the other one takes one of them rather than wait.
  auto taken = runTwo(replicas, *program, [&](size_t) { return contexts[0]; });
  EXPECT_NE(taken[0], taken[1]);
}

} // namespace
