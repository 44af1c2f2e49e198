//===- PlanLimitsTest.cpp - numbers that the loader bounds ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "PlanRefusals.h"

using namespace gridloom;
using namespace gridloom::test;

namespace {

/// y = x x, by a library.
PlanBuilder makePlan() {
  PlanBuilder plan;
  plan.addEntry({PlanBuilder::argument("x", {4, 4})}, {PlanBuilder::argument("y", {4, 4})});
  schema::Specialisation &program = plan.program();
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4, 4});
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {4, 4});
  PlanBuilder::addBuffer(program, schema::INPUT, {4, 4});
  PlanBuilder::addBuffer(program, schema::OUTPUT, {4, 4});
  PlanBuilder::addMatmul(PlanBuilder::addBlock(program), 0, 0, 1, 4, 4, 4);
  return plan;
}

class PlanLimits : public testing::TestWithParam<Refusal> {};

TEST(PlanLimitsTest, AcceptsTheWholePlan) {
  TemporaryFolder folder;
  EXPECT_NO_THROW(rt::Plan::load(makePlan().write(folder.getPath())));
}

TEST_P(PlanLimits, Refuses) { expectRefused(makePlan(), GetParam()); }

const Refusal refusals[] = {
    {"MatmulWorkspace",
     [](PlanBuilder &p) {
       schema::Step &step = *p.program().mutable_body(0)->mutable_block()->mutable_steps(0);
       step.mutable_library()->mutable_matmul()->set_workspace_limit(UINT64_MAX);
     },
     {"may use 18446744073709551615 bytes of workspace"}},
    {"Repeats",
     [](PlanBuilder &p) {
       schema::Control *control = p.program().add_body();
       for (uint32_t count : {3u, UINT32_MAX}) {
         control->mutable_repeat()->set_count(count);
         control = control->mutable_repeat()->add_body();
       }
       control->mutable_block();
     },
     {"repeats steps 12884901885 times", "4294967296"}},
    {"FloatLabels",
     [](PlanBuilder &p) {
       p.manifest["entries"][0]["specialisations"][0]["inputs"][0]["labels"] =
           nlohmann::json::array({nlohmann::json{{"loss", "cross_entropy"}, {"classes", 3}}});
     },
     {"inputs[0].labels are of an input of f32, not of integers"}},
};

INSTANTIATE_TEST_SUITE_P(Numbers, PlanLimits, testing::ValuesIn(refusals),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
