//===- LibraryVerifierTest.cpp - library calls that the loader refuses ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A plan with a convolution and an attention is damaged in one place; the one-line error names the
// step and both numbers. Also the errors of devices without such a library for a valid plan.
//
//===----------------------------------------------------------------------===//
#include "PlanRefusals.h"
#include "runtime/core/LibraryCalls.h"

#include <gmock/gmock.h>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::HasSubstr;

namespace {

void assign(google::protobuf::RepeatedField<int64_t> *field,
            std::initializer_list<int64_t> values) {
  field->Assign(values.begin(), values.end());
}

/// y = relu(x * w + b + r) over [1, 4, 6] with windows of 3, and z = attention of [1, 2, 4, 8].
PlanBuilder makePlan() {
  PlanBuilder plan(1);
  plan.addAxis("data", 1);
  plan.addEntry(
      {PlanBuilder::argument("x", {1, 4, 8}), PlanBuilder::argument("q", {1, 2, 4, 8}, {0}, "f16")},
      {PlanBuilder::argument("y", {1, 4, 6})});
  schema::Stage &stage = plan.stages[0];
  stage.add_origins("/Conv");
  schema::Specialisation &program = plan.program();
  program.set_arena_bytes(1024);
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {1, 4, 8});
  PlanBuilder::fillBinding(*program.add_inputs(), "q", {1, 2, 4, 8}, {}, schema::F16);
  PlanBuilder::fillBinding(*program.add_outputs(), "y", {1, 4, 6});
  PlanBuilder::addBuffer(program, schema::INPUT, {1, 4, 8});                         // 0
  PlanBuilder::addBuffer(program, schema::ARENA, {4, 4, 3});                         // 1: weights
  PlanBuilder::addBuffer(program, schema::ARENA, {4}, 0, 192);                       // 2: bias
  PlanBuilder::addBuffer(program, schema::ARENA, {1, 4, 6}, 0, 256);                 // 3: residual
  PlanBuilder::addBuffer(program, schema::OUTPUT, {1, 4, 6});                        // 4
  PlanBuilder::addBuffer(program, schema::INPUT, {1, 2, 4, 8}, 1, 0, schema::F16);   // 5
  PlanBuilder::addBuffer(program, schema::ARENA, {4, 4}, 0, 384, schema::F16);       // 6: mask
  PlanBuilder::addBuffer(program, schema::ARENA, {1, 2, 4, 8}, 0, 512, schema::F16); // 7
  schema::Block &block = PlanBuilder::addBlock(program);

  schema::Library &call = *PlanBuilder::addStep(block).mutable_library();
  schema::Convolution &convolution = *call.mutable_convolution();
  assign(convolution.mutable_input(), {1, 4, 8});
  assign(convolution.mutable_input_strides(), {32, 8, 1});
  assign(convolution.mutable_weight(), {4, 4, 3});
  assign(convolution.mutable_weight_strides(), {12, 3, 1});
  assign(convolution.mutable_output(), {1, 4, 6});
  assign(convolution.mutable_output_strides(), {24, 6, 1});
  assign(convolution.mutable_strides(), {1});
  assign(convolution.mutable_low(), {0});
  assign(convolution.mutable_high(), {0});
  assign(convolution.mutable_dilations(), {1});
  convolution.set_groups(1);
  convolution.mutable_epilogue()->set_bias(true);
  convolution.mutable_epilogue()->set_residual(true);
  convolution.mutable_epilogue()->set_activation(schema::Epilogue::RELU);
  convolution.set_type(schema::F32);
  convolution.set_workspace_limit(1 << 20);
  for (uint32_t input : {0, 1, 2, 3})
    call.add_inputs(input);
  call.add_outputs(4);

  schema::Library &other = *PlanBuilder::addStep(block).mutable_library();
  schema::Attention &attention = *other.mutable_attention();
  assign(attention.mutable_sizes(), {1, 2, 4, 4, 8, 8});
  for (auto *strides : {attention.mutable_query(), attention.mutable_key(),
                        attention.mutable_value(), attention.mutable_out()})
    assign(strides, {64, 32, 8, 1});
  assign(attention.mutable_mask(), {0, 0, 4, 1});
  attention.set_scale(0.5);
  attention.set_type(schema::F16);
  for (uint32_t input : {5, 5, 5, 6})
    other.add_inputs(input);
  other.add_outputs(7);
  return plan;
}

schema::Library &library(PlanBuilder &plan, int step) {
  return *plan.program().mutable_body(0)->mutable_block()->mutable_steps(step)->mutable_library();
}
schema::Convolution &convolution(PlanBuilder &plan) {
  return *library(plan, 0).mutable_convolution();
}
schema::Attention &attention(PlanBuilder &plan) { return *library(plan, 1).mutable_attention(); }

class LibraryVerifier : public testing::TestWithParam<Refusal> {};

TEST(LibraryVerifierTest, AcceptsTheWholePlan) {
  TemporaryFolder folder;
  EXPECT_NO_THROW(Plan::load(makePlan().write(folder.getPath())));
}

TEST_P(LibraryVerifier, Refuses) { expectRefused(makePlan(), GetParam()); }

const Refusal refusals[] = {
    {"Nothing",
     [](PlanBuilder &p) { library(p, 0).clear_convolution(); },
     {"step 0 (/Conv)", "not one library call"}},
    {"Two", [](PlanBuilder &p) { library(p, 0).mutable_attention(); }, {"not one library call"}},
    {"Fallback",
     [](PlanBuilder &p) { library(p, 0).set_fallback(7); },
     {"falls back to kernel 6; only a matrix multiplication does"}},
    {"ConvolutionRank",
     [](PlanBuilder &p) { convolution(p).add_weight(1); },
     {"3 dimensions with 4"}},
    {"ConvolutionTooLong",
     [](PlanBuilder &p) {
       for (auto *list : {convolution(p).mutable_input(), convolution(p).mutable_weight(),
                          convolution(p).mutable_output()})
         for (int i = 0; i < 3; ++i)
           list->Add(1);
     },
     {"6 dimensions", "needs 3 to 5"}},
    {"ConvolutionSize", [](PlanBuilder &p) { convolution(p).set_input(2, 0); }, {"sizes of 0"}},
    {"ConvolutionHuge",
     [](PlanBuilder &p) { convolution(p).set_low(0, INT64_MAX); },
     {"padding of 9223372036854775807"}},
    {"ConvolutionStride",
     [](PlanBuilder &p) { convolution(p).set_strides(0, 0); },
     {"strides of 0"}},
    {"ConvolutionDilations",
     [](PlanBuilder &p) { convolution(p).clear_dilations(); },
     {"0 dilations for 3"}},
    {"ConvolutionGroups",
     [](PlanBuilder &p) { convolution(p).set_groups(3); },
     {"3 groups of 4 channels for 4"}},
    {"ConvolutionPositions",
     [](PlanBuilder &p) { convolution(p).set_high(0, 1); },
     {"6 positions of a window of 3 in 8"}},
    {"ConvolutionInputs",
     [](PlanBuilder &p) { convolution(p).mutable_epilogue()->set_bias(false); },
     {"4 inputs, needs 3"}},
    {"ConvolutionActivation",
     [](PlanBuilder &p) {
       convolution(p).mutable_epilogue()->set_activation(schema::Epilogue::GELU);
     },
     {"has activation 2; a convolution has none or relu"}},
    {"ConvolutionType",
     [](PlanBuilder &p) { convolution(p).set_type(schema::F16); },
     {"computes f16 and reads f32"}},
    {"ConvolutionInteger",
     [](PlanBuilder &p) { convolution(p).set_type(schema::I32); },
     {"computes i32, which its library does not support"}},
    {"ConvolutionWorkspace",
     [](PlanBuilder &p) { convolution(p).set_workspace_limit(UINT64_MAX); },
     {"bytes of workspace"}},
    {"ConvolutionInputOutside",
     [](PlanBuilder &p) { convolution(p).set_input_strides(1, 9); },
     {"input reaches element 34 of buffer 0", "32"}},
    {"ConvolutionWeightOutside",
     [](PlanBuilder &p) { convolution(p).set_weight_strides(0, 100); },
     {"weight reaches element 311", "48"}},
    {"ConvolutionNegative",
     [](PlanBuilder &p) { convolution(p).set_output_strides(2, -1); },
     {"stride -1"}},
    {"ConvolutionOnePlace",
     [](PlanBuilder &p) { convolution(p).set_output_strides(1, 0); },
     {"writes 4 elements to one place"}},
    {"ConvolutionBias",
     [](PlanBuilder &p) {
       p.program().mutable_buffers(2)->set_shape(0, 3);
       p.program().mutable_buffers(2)->set_bytes(12);
     },
     {"a bias of 3 elements to 4 channels"}},
    {"ConvolutionResidual",
     [](PlanBuilder &p) { library(p, 0).set_inputs(3, 2); },
     {"residual reaches element 23 of buffer 2"}},
    {"ConvolutionReadOnly",
     [](PlanBuilder &p) { library(p, 0).set_outputs(0, 0); },
     {"writes buffer 0, which is read-only"}},
    {"AttentionSizes",
     [](PlanBuilder &p) { attention(p).mutable_sizes()->RemoveLast(); },
     {"step 1", "over 5 sizes, needs 6"}},
    {"AttentionSize", [](PlanBuilder &p) { attention(p).set_sizes(3, 0); }, {"a size of 0"}},
    {"AttentionMask", [](PlanBuilder &p) { attention(p).clear_mask(); }, {"4 inputs, needs 3"}},
    {"AttentionMaskOutside",
     [](PlanBuilder &p) { attention(p).set_mask(1, 16); },
     {"mask reaches element 31 of buffer 6", "16"}},
    {"AttentionKeyOutside",
     [](PlanBuilder &p) { attention(p).set_sizes(3, 5); },
     {"key reaches element"}},
    {"AttentionStrides",
     [](PlanBuilder &p) { attention(p).mutable_value()->RemoveLast(); },
     {"value has 3 strides for 4 dimensions"}},
    {"AttentionOnePlace",
     [](PlanBuilder &p) { attention(p).set_out(1, 0); },
     {"writes 2 elements to one place"}},
};

INSTANTIATE_TEST_SUITE_P(Calls, LibraryVerifier, testing::ValuesIn(refusals),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(LibraryVerifierTest, SaysWhatACallIsAndCosts) {
  PlanBuilder plan = makePlan();
  EXPECT_EQ(describe(library(plan, 0)), "convolution 1x4x8 with 4x4x3 + bias + residual + relu");
  EXPECT_EQ(getFlops(library(plan, 0)), 2 * 24 * 12);
  EXPECT_EQ(getBytes(library(plan, 0)), 4u * (32 + 48 + 4 + 24 + 24));
  EXPECT_EQ(describe(library(plan, 1)), "attention 1x2x4x4x8x8 masked");
  EXPECT_EQ(getFlops(library(plan, 1)), 2 * (1 * 2 * 4 * 4) * (8 + 8));
  EXPECT_EQ(getBytes(library(plan, 1)), 2u * (4 * 64 + 16));
}

TEST(LibraryVerifierTest, ADeviceWithoutTheLibrarySaysSo) {
  PlanBuilder plan = makePlan();
  std::unique_ptr<Device> device = createCpuDevice(1);
  try {
    device->createAttention(toProblem(attention(plan)));
    FAIL() << "the CPU has computed attention";
  } catch (const Error &error) {
    EXPECT_EQ(error.getCode(), ErrorCode::Unavailable);
    EXPECT_THAT(error.what(), HasSubstr("has no library; compile the model for this device"));
  }
}

} // namespace
