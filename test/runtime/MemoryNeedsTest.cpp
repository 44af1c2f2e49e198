//===- MemoryNeedsTest.cpp - device memory that a plan needs --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/core/MemoryNeeds.h"

#include "PlanBuilder.h"

#include <gtest/gtest.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;

namespace {

/// y = x of [8, 4], with 768 + 256 bytes of activations and 64 of state, on the given mesh. With
/// two stages, of an axis pipe, the first one does it all.
std::shared_ptr<const Plan> load(const std::vector<std::pair<std::string, int>> &mesh,
                                 int stages = 1) {
  PlanBuilder builder(stages);
  if (stages > 1)
    builder.setStageAxis("pipe");
  for (const auto &[axis, size] : mesh)
    builder.addAxis(axis, size);
  builder.addEntry({PlanBuilder::argument("x", {8, 4})}, {PlanBuilder::argument("y", {8, 4})});
  PlanBuilder::addState(builder.stages[0], "s", {16}, {16});
  schema::Specialisation &program = builder.program();
  program.set_arena_bytes(768);
  program.set_registered_bytes(256);
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {8, 4});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {8, 4});
  PlanBuilder::addBuffer(program, schema::INPUT, {8, 4});
  PlanBuilder::addBuffer(program, schema::OUTPUT, {8, 4});
  PlanBuilder::addCopy(PlanBuilder::addBlock(program), 0, 1);
  TemporaryFolder folder;
  return Plan::load(builder.write(folder.getPath()));
}

TEST(MemoryNeedsTest, AreThePlansBytes) {
  MemoryNeeds needs = computeNeeds(load({})->getStage(0));
  EXPECT_EQ(needs.getActivations(), 1024u);
  EXPECT_EQ(needs.states, 64u);
  EXPECT_EQ(needs.bindings, 256u);
  EXPECT_EQ(needs.getTotal(), 1344u);
  EXPECT_EQ(describe(needs),
            "weights 0 bytes, activations 1.0 KiB, states 64 bytes, inputs and outputs 256 bytes");
}

TEST(MemoryNeedsTest, WorkspacesTheProloguesMemoryAndNcclAreCounted) {
  PlanBuilder builder;
  schema::Stage &stage = builder.stages[0];
  schema::Specialisation &program = *stage.add_entries()->add_specialisations();
  for (const char *name : {"compute", "comm"})
    program.add_streams()->set_name(name);
  auto call = [&](auto &body, uint32_t stream, uint64_t limit) {
    schema::Step &step = *body.mutable_block()->add_steps();
    step.set_stream(stream);
    step.mutable_library()->mutable_matmul()->set_workspace_limit(limit);
  };
  call(*program.add_body(), 0, 3000);
  schema::Control &repeat = *program.add_body();
  call(*repeat.mutable_repeat()->add_body(), 0, 1000);
  call(*repeat.mutable_repeat()->add_body(), 1, 100);
  schema::Derived &derived = *stage.add_derived();
  derived.set_type(schema::F32);
  derived.add_shape(1000);
  derived.set_arena_bytes(500);
  MemoryNeeds needs = computeNeeds(stage);
  EXPECT_EQ(needs.workspaces, 4096u + 128u); // powers of two, one per stream
  EXPECT_EQ(needs.prologue, 4500u);
  EXPECT_EQ(needs.getTotal(), 4500u);
  needs.communication = 1024;
  needs.arena = 1024;
  EXPECT_EQ(needs.getTotal(), 4224u + 2048u);
  EXPECT_EQ(describe(needs), "weights 0 bytes, activations 1.0 KiB, inputs and outputs 0 bytes, "
                             "workspaces up to 4.1 KiB, NCCL about 1.0 KiB");
}

TEST(MemoryNeedsTest, TheLeastChangeThatFitsIsNamed) {
  MemoryNeeds needs{.weights = 1000, .arena = 8000};
  auto pipeline = load({{"pipe", 2}}, /*stages=*/2);
  EXPECT_EQ(findChangeThatFits(*pipeline, needs, 5500), "--microbatches 2 (about 4.9 KiB)");
  EXPECT_EQ(findChangeThatFits(*pipeline, needs, 3500), "--microbatches 4 (about 2.9 KiB)");
  // 16 micro-batches do not divide the batch of 8, and micro-batches do not shrink the weights.
  EXPECT_EQ(findChangeThatFits(*pipeline, needs, 1500), "--mesh pipe=2,model=8 (about 1.1 KiB)");
  // Without a pipeline there are no micro-batches.
  auto plan = load({});
  EXPECT_EQ(findChangeThatFits(*plan, needs, 5500), "--mesh model=2 (about 4.4 KiB)");
  EXPECT_EQ(findChangeThatFits(*plan, needs, 5), "");
  auto split = load({{"data", 2}, {"model", 2}});
  EXPECT_EQ(findChangeThatFits(*split, needs, 1200), "--mesh data=2,model=16 (about 1.1 KiB)");
}

} // namespace
