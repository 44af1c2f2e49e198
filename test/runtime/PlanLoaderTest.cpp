//===- PlanLoaderTest.cpp - plans that the loader refuses -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Every refusal of the loader: a small valid plan is damaged in one place, and the one line that
// refuses it names the place and both numbers.
//
//===----------------------------------------------------------------------===//
#include "PlanRefusals.h"

#include <gmock/gmock.h>

#include <limits>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using nlohmann::json;

namespace {

/// Two stages of two ranks each: stage 0 multiplies x by a column-sharded w, gathers, adds nothing,
/// sends; stage 1 receives and copies. It uses every kind of thing a plan can hold.
PlanBuilder makePlan() {
  PlanBuilder plan(2);
  plan.addAxis("pipe", 2);
  plan.addAxis("model", 2);
  plan.setStageAxis("pipe");
  plan.addWeight("w", {4, 6}, std::vector<float>(24, 1));
  plan.addEntry({PlanBuilder::argument("x", {4, 4}, {0})},
                {PlanBuilder::argument("y", {4, 6}, {1})}, {{"batch", 4}});
  plan.kernels["cpu.so"] = "code";

  schema::Stage &first = plan.stages[0];
  first.add_origins("/layer/MatMul");
  schema::Kernel *kernel = first.add_kernels();
  kernel->set_symbol("k0");
  kernel->set_library("cpu.so");
  kernel->set_num_pointers(2);
  kernel->set_rows(4);
  schema::Weight *weight = first.add_weights();
  weight->set_name("w");
  weight->set_type(schema::F32);
  weight->add_shape(4);
  weight->add_shape(3);
  weight->set_row_pad(1);
  weight->set_bytes(64);
  PlanBuilder::fillSharding(*weight->mutable_sharding(), {{}, {"model"}});
  PlanBuilder::addState(first, "s", {2}, {2});

  schema::Specialisation &program = plan.program(0);
  program.set_arena_bytes(128);
  program.set_registered_bytes(256);
  program.set_num_events(2);
  PlanBuilder::fillBinding(*program.add_inputs(), "x", {4, 4});
  PlanBuilder::addBuffer(program, schema::INPUT, {4, 4});  // 0
  PlanBuilder::addBuffer(program, schema::WEIGHT, {4, 3}); // 1
  program.mutable_buffers(1)->set_bytes(64);
  PlanBuilder::addBuffer(program, schema::ARENA, {4, 3}, 0, 64);              // 2
  PlanBuilder::addBuffer(program, schema::REGISTERED, {8, 3});                // 3
  PlanBuilder::addBuffer(program, schema::STATE, {2});                        // 4
  PlanBuilder::addBuffer(program, schema::CONSTANT, {1}, 0, 0, schema::BOOL); // 5
  PlanBuilder::addConstant(program, std::string(1, 0));
  PlanBuilder::addBuffer(program, schema::RANK_PARAM, {1}, 0, 0, schema::I64); // 6
  program.mutable_buffers(6)->add_axes("model");
  PlanBuilder::addBuffer(program, schema::REGISTERED, {4, 6}, 0, 128); // 7
  schema::Block &block = PlanBuilder::addBlock(program);
  PlanBuilder::addMatmul(block, 0, 1, 2, 4, 3, 4, 4); // step 0
  PlanBuilder::addRecord(block, 0, 0);
  PlanBuilder::addWait(block, 0, 1);
  PlanBuilder::addGroup(block, schema::Group::ALL_GATHER, {"model"}, {2}, {3}); // step 3
  schema::Launch *launch = PlanBuilder::addStep(block).mutable_launch();        // step 4
  launch->set_kernel(0);
  launch->add_inputs(3);
  launch->add_outputs(7);
  PlanBuilder::addGroup(block, schema::Group::SEND, {}, {7}, {}).set_peer_stage(1); // step 5

  schema::Specialisation &second = plan.program(1);
  second.set_registered_bytes(96);
  PlanBuilder::fillBinding(*second.add_outputs(), "y", {4, 6});
  PlanBuilder::addBuffer(second, schema::REGISTERED, {4, 6});
  PlanBuilder::addBuffer(second, schema::OUTPUT, {4, 6});
  schema::Block &rest = PlanBuilder::addBlock(second);
  PlanBuilder::addGroup(rest, schema::Group::RECV, {}, {}, {0}).set_peer_stage(0);
  PlanBuilder::addCopy(rest, 0, 1);
  return plan;
}

schema::Specialisation &program(PlanBuilder &plan) { return plan.program(0); }
schema::Step &step(PlanBuilder &plan, int index) {
  return *plan.program(0).mutable_body(0)->mutable_block()->mutable_steps(index);
}
schema::Buffer &buffer(PlanBuilder &plan, int index) {
  return *plan.program(0).mutable_buffers(index);
}
schema::Matmul &matmul(PlanBuilder &plan) {
  return *step(plan, 0).mutable_library()->mutable_matmul();
}
schema::Group &gather(PlanBuilder &plan) { return *step(plan, 3).mutable_group(); }

class PlanLoader : public testing::TestWithParam<Refusal> {};

TEST(PlanLoaderTest, AcceptsTheWholePlan) {
  TemporaryFolder folder;
  PlanBuilder builder = makePlan();
  auto plan = Plan::load(builder.write(folder.getPath()));
  EXPECT_EQ(plan->getNumStages(), 2);
  EXPECT_EQ(plan->getMesh().getNumRanks(), 4);
  EXPECT_EQ(plan->getMesh().getStage(2), 1);
  EXPECT_EQ(plan->getMesh().getPeer(3, 0), 1);
  EXPECT_EQ(plan->getEntry("main").specialisations[0].inputs[0].shape,
            (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(plan->getWeights().size(), 1u);
  EXPECT_EQ(plan->getKernelCode("cpu.so").size(), 4u);
  EXPECT_EQ(plan->getDigest().size(), 64u);
}

TEST_P(PlanLoader, Refuses) { expectRefused(makePlan(), GetParam()); }

const Refusal manifestRefusals[] = {
    {"MajorVersion",
     [](PlanBuilder &p) { p.manifest["schema"]["major"] = 1; },
     {"schema version 1", "reads 2"}},
    {"Feature",
     [](PlanBuilder &p) { p.manifest["requires"].push_back("teleport"); },
     {"'teleport'"}},
    {"TargetKind", [](PlanBuilder &p) { p.manifest["target"]["kind"] = "tpu"; }, {"'tpu'"}},
    {"CpuLevel",
     [](PlanBuilder &p) { p.manifest["target"]["arch"] = "x86-64-v9"; },
     {"x86-64-v9", "lacks"}},
    {"MissingKey",
     [](PlanBuilder &p) { p.manifest.erase("microbatches"); },
     {"microbatches is missing"}},
    {"WrongKind", [](PlanBuilder &p) { p.manifest["entries"] = 3; }, {"entries is not a list"}},
    {"NotAnInteger",
     [](PlanBuilder &p) { p.manifest["microbatches"] = 1.5; },
     {"microbatches is not an integer"}},
    {"Negative",
     [](PlanBuilder &p) { p.manifest["weights"][0]["offset"] = -1; },
     {"weights[0].offset is -1"}},
    {"Microbatches", [](PlanBuilder &p) { p.manifest["microbatches"] = 0; }, {"microbatches is 0"}},
    {"StageCount",
     [](PlanBuilder &p) { p.manifest["mesh"]["axes"][0]["size"] = 3; },
     {"2 stages", "has 3"}},
    {"StageAxis", [](PlanBuilder &p) { p.setStageAxis("depth"); }, {"'depth'"}},
    {"ControlCharacters",
     [](PlanBuilder &p) { p.setStageAxis("de\npth\x1b"); },
     {"'de\\x0apth\\x1b'"}},
    {"AxisTwice", [](PlanBuilder &p) { p.addAxis("model", 2); }, {"'model'", "twice"}},
    {"AxisSize", [](PlanBuilder &p) { p.manifest["mesh"]["axes"][1]["size"] = 0; }, {"size 0"}},
    {"TooManyRanks", [](PlanBuilder &p) { p.addAxis("huge", 1 << 20); }, {"1048576"}},
    {"ElementType",
     [](PlanBuilder &p) {
       p.manifest["entries"][0]["specialisations"][0]["inputs"][0]["type"] = "f8";
     },
     {"inputs[0].type", "'f8'"}},
    {"ShapeOverflow",
     [](PlanBuilder &p) {
       p.manifest["entries"][0]["specialisations"][0]["inputs"][0]["shape"] = {int64_t(1) << 61,
                                                                               64};
     },
     {"'x'", "2^63"}},
    {"ArgumentStage",
     [](PlanBuilder &p) {
       p.manifest["entries"][0]["specialisations"][0]["inputs"][0]["stages"] = {7};
     },
     {"is 7", "2 stages"}},
    {"ArgumentTwice",
     [](PlanBuilder &p) {
       json &inputs = p.manifest["entries"][0]["specialisations"][0]["inputs"];
       inputs.push_back(inputs[0]);
     },
     {"repeats 'x'"}},
    {"NoEntry", [](PlanBuilder &p) { p.manifest["entries"] = json::array(); }, {"has no entry"}},
    {"WeightBytes",
     [](PlanBuilder &p) { p.manifest["weights"][0]["bytes"] = 92; },
     {"'w' has 92 bytes", "needs 96"}},
    {"WeightBeyondModel",
     [](PlanBuilder &p) { p.manifest["weights"][0]["offset"] = 4; },
     {"ends at byte 100", "has 96"}},
    {"WeightEscapes",
     [](PlanBuilder &p) { p.manifest["weights"][0]["file"] = "../../etc/passwd"; },
     {"../../etc/passwd", "outside"}},
    {"WeightAbsolute",
     [](PlanBuilder &p) { p.manifest["weights"][0]["file"] = "/etc/passwd"; },
     {"/etc/passwd", "outside"}},
    {"WeightTwice",
     [](PlanBuilder &p) { p.manifest["weights"].push_back(p.manifest["weights"][0]); },
     {"repeats 'w'"}},
    {"Digest",
     [](PlanBuilder &p) {
       p.editManifest = [](json &m) { m["files"]["stage1.pb"]["sha256"] = std::string(64, '0'); };
     },
     {"stage1.pb", "has SHA-256", "0000"}},
    {"DigestForm",
     [](PlanBuilder &p) {
       p.editManifest = [](json &m) { m["files"]["stage1.pb"]["sha256"] = "zz"; };
     },
     {"not a SHA-256"}},
    {"FileBytes",
     [](PlanBuilder &p) {
       p.editManifest = [](json &m) { m["files"]["kernels/cpu.so"]["bytes"] = 5; };
     },
     {"cpu.so", "has 4 bytes", "expected 5"}},
    {"FileMissing",
     [](PlanBuilder &p) {
       p.editManifest = [](json &m) {
         m["files"]["kernels/x.so"] = {{"bytes", 1}, {"sha256", std::string(64, '0')}};
       };
     },
     {"kernels/x.so", "cannot be read"}},
    {"FileEscapes",
     [](PlanBuilder &p) {
       p.editManifest = [](json &m) {
         m["files"]["../x"] = {{"bytes", 1}, {"sha256", std::string(64, '0')}};
       };
     },
     {"outside the plan's folder"}},
    {"StageUnlisted",
     [](PlanBuilder &p) { p.editManifest = [](json &m) { m["files"].erase("stage1.pb"); }; },
     {"no checksum of 'stage1.pb'"}},
};
INSTANTIATE_TEST_SUITE_P(Manifest, PlanLoader, testing::ValuesIn(manifestRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

const Refusal stageRefusals[] = {
    {"StageNumber",
     [](PlanBuilder &p) { p.stages[0].set_stage(5); },
     {"stage0.pb", "stage 5", "as 0"}},
    {"KernelLibrary",
     [](PlanBuilder &p) { p.stages[0].mutable_kernels(0)->set_library("gone.so"); },
     {"kernels/gone.so"}},
    {"KernelRows",
     [](PlanBuilder &p) { p.stages[0].mutable_kernels(0)->set_rows(-1); },
     {"'k0'", "-1 rows"}},
    {"KernelGrid",
     [](PlanBuilder &p) {
       for (uint32_t i = 0; i < 4; ++i)
         p.stages[0].mutable_kernels(0)->add_grid(1);
     },
     {"grid of 4", "at most 3"}},
    {"WeightUnknown",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->set_name("v"); },
     {"'v'", "neither in the manifest nor derived"}},
    {"WeightType",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->set_type(schema::I32); },
     {"'w' is i32", "f32"}},
    {"WeightNoType",
     [](PlanBuilder &p) {
       p.stages[0].mutable_weights(0)->set_type(schema::DATA_TYPE_UNSPECIFIED);
     },
     {"element type 0"}},
    {"WeightShape",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->set_shape(1, 4); },
     {"[4, 4]", "[4, 3]"}},
    {"WeightAxis",
     [](PlanBuilder &p) {
       p.stages[0].mutable_weights(0)->mutable_sharding()->mutable_dims(1)->set_axes(0, "expert");
     },
     {"'expert'"}},
    {"WeightAxisTwice",
     [](PlanBuilder &p) {
       p.stages[0].mutable_weights(0)->mutable_sharding()->mutable_dims(0)->add_axes("model");
     },
     {"'model' twice"}},
    {"WeightRank",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->mutable_sharding()->add_dims(); },
     {"3 dimensions", "[4, 6]"}},
    {"WeightPad",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->set_row_pad(-1); },
     {"-1 elements of padding"}},
    {"WeightPaddedBytes",
     [](PlanBuilder &p) { p.stages[0].mutable_weights(0)->set_bytes(48); },
     {"has 48 bytes", "needs 64"}},
    {"GranuleOverflow",
     [](PlanBuilder &p) {
       p.stages[0].mutable_weights(0)->mutable_sharding()->mutable_dims(1)->set_granule(int64_t(1)
                                                                                        << 62);
     },
     {"overflows"}},
    {"StateBytes",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->set_bytes(9); },
     {"'s' has 9 bytes", "needs 8"}},
    {"StateShape",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->set_global_shape(0, 3); },
     {"'s' has local shape [2], its sharding gives [3]"}},
    {"StateOverflows",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->set_global_shape(0, int64_t(1) << 62); },
     {"'s'"}},
    {"StateOfNoWeight",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->set_init("v"); },
     {"'s' begins with 'v', which is not in the manifest"}},
    {"StateOfAnotherShape",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->set_init("w"); },
     {"'s' is f32[2], and 'w', with which it begins, f32[4, 6]"}},
    {"StateOfNoDistribution",
     [](PlanBuilder &p) {
       p.stages[0].mutable_states(0)->mutable_draw()->set_distribution(
           static_cast<schema::Draw::Distribution>(7));
     },
     {"'s' is drawn from distribution 7, which is none"}},
    {"StateDrawnAndInFile",
     [](PlanBuilder &p) {
       p.stages[0].mutable_states(0)->mutable_draw();
       p.stages[0].mutable_states(0)->set_init("w");
     },
     {"'s' is drawn and begins with 'w'"}},
    {"StateDrawnWithoutEnd",
     [](PlanBuilder &p) {
       p.stages[0].mutable_states(0)->mutable_draw()->set_second(
           std::numeric_limits<double>::infinity());
     },
     {"'s' is drawn from a distribution that is not finite"}},
    {"StateOfIntegersDrawn",
     [](PlanBuilder &p) {
       p.stages[0].mutable_states(0)->set_type(schema::I32);
       p.stages[0].mutable_states(0)->mutable_draw();
     },
     {"'s' is drawn and of type i32, not f32 or f64"}},
    {"StateTiedAndNoParameter",
     [](PlanBuilder &p) { p.stages[0].mutable_states(0)->add_tied()->set_name("v"); },
     {"'s' cannot stand for 'v'"}},
    {"StateTiedAndNoMatrix",
     [](PlanBuilder &p) {
       p.stages[0].mutable_states(0)->set_role(schema::PARAMETER);
       p.stages[0].mutable_states(0)->add_tied()->set_transposed(true);
     },
     {"'s' cannot stand for"}},
    {"StateTwice",
     [](PlanBuilder &p) { *p.stages[0].add_states() = p.stages[0].states(0); },
     {"'s' is there twice"}},
    {"EntryMissing",
     [](PlanBuilder &p) { p.stages[1].clear_entries(); },
     {"stage1.pb", "0 entries", "1"}},
    {"EntryName",
     [](PlanBuilder &p) { p.stages[1].mutable_entries(0)->set_name("other"); },
     {"'other'", "'main'"}},
    {"Specialisations",
     [](PlanBuilder &p) { p.stages[1].mutable_entries(0)->add_specialisations(); },
     {"2 specialisations", "1"}},
    {"BindingName",
     [](PlanBuilder &p) { program(p).mutable_inputs(0)->set_name("q"); },
     {"'q' is not in the manifest"}},
    {"BindingTwice",
     [](PlanBuilder &p) { *program(p).add_inputs() = program(p).inputs(0); },
     {"'x' is there twice"}},
    {"BindingMissing",
     [](PlanBuilder &p) { p.program(1).clear_outputs(); },
     {"'y' is missing", "stage 1"}},
    {"BindingStage",
     [](PlanBuilder &p) {
       p.manifest["entries"][0]["specialisations"][0]["inputs"][0]["stages"] = json::array({1});
     },
     {"'x' is not listed for stage 0"}},
    {"BindingType",
     [](PlanBuilder &p) { program(p).mutable_inputs(0)->set_type(schema::I64); },
     {"'x' is i64", "f32"}},
    {"BindingShape",
     [](PlanBuilder &p) { program(p).mutable_inputs(0)->set_shape(1, 3); },
     {"dimension 1 of 4 elements over 1 parts has 4 locally, not 3"}},
    {"BindingRank",
     [](PlanBuilder &p) { program(p).mutable_inputs(0)->add_shape(1); },
     {"[4, 4, 1]", "[4, 4]"}},
    {"StreamTwice",
     [](PlanBuilder &p) { program(p).mutable_streams(1)->set_name("compute"); },
     {"'compute' is there twice"}},
};
INSTANTIATE_TEST_SUITE_P(Stage, PlanLoader, testing::ValuesIn(stageRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

const Refusal bufferRefusals[] = {
    {"BeyondArena",
     [](PlanBuilder &p) { buffer(p, 2).set_offset(96); },
     {"buffer 2", "48 bytes at 96", "32 bytes are left"}},
    {"OffsetBeyondArena",
     [](PlanBuilder &p) { buffer(p, 2).set_offset(4096); },
     {"byte 4096 of a space of 128"}},
    {"Slots",
     [](PlanBuilder &p) { buffer(p, 2).set_slots(2); },
     {"2 slots of 48 bytes", "64 bytes are left"}},
    {"SlotsOverflow",
     [](PlanBuilder &p) {
       buffer(p, 2).set_slots(1u << 31);
       buffer(p, 2).set_bytes(uint64_t(1) << 62);
     },
     {"2147483648 slots"}},
    {"BytesBelowShape",
     [](PlanBuilder &p) { buffer(p, 2).set_bytes(44); },
     {"has 44 bytes", "needs 48"}},
    {"SplitElement", [](PlanBuilder &p) { buffer(p, 2).set_offset(2); }, {"splits elements of 4"}},
    {"BeyondRegistered",
     [](PlanBuilder &p) { program(p).set_registered_bytes(200); },
     {"buffer 7", "72 bytes are left"}},
    {"BeyondInput",
     [](PlanBuilder &p) { buffer(p, 0).set_slots(2); },
     {"buffer 0", "64 bytes are left"}},
    {"OffsetBeyondInput",
     [](PlanBuilder &p) { buffer(p, 0).set_offset(68); },
     {"buffer 0", "byte 68 of a space of 64"}},
    {"PartWithSlots",
     [](PlanBuilder &p) {
       buffer(p, 0).set_shape(0, 1);
       buffer(p, 0).set_bytes(16);
       buffer(p, 0).set_offset(16);
       buffer(p, 0).set_slots(2);
     },
     {"buffer 0", "a part from byte 16 on and has 2 slots"}},
    {"PartBeyondWeight",
     [](PlanBuilder &p) { buffer(p, 1).set_offset(4); },
     {"64 bytes at 4", "60 bytes are left"}},
    {"InputIndex", [](PlanBuilder &p) { buffer(p, 0).set_index(1); }, {"number 1 of 1"}},
    {"InputType",
     [](PlanBuilder &p) { buffer(p, 0).set_type(schema::I32); },
     {"buffer 0 is i32", "f32"}},
    {"WeightIndex", [](PlanBuilder &p) { buffer(p, 1).set_index(9); }, {"number 9 of 1"}},
    {"BeyondWeight", [](PlanBuilder &p) { buffer(p, 1).set_bytes(68); }, {"64 bytes are left"}},
    {"StateIndex", [](PlanBuilder &p) { buffer(p, 4).set_index(1); }, {"number 1 of 1"}},
    {"Constant",
     [](PlanBuilder &p) { buffer(p, 5).set_value(""); },
     {"buffer 5", "0 bytes are left"}},
    {"PartOfConstant",
     [](PlanBuilder &p) { buffer(p, 5).set_offset(1); },
     {"buffer 5 starts at byte 1 of a constant, which has no parts"}},
    {"PartOfRankParam",
     [](PlanBuilder &p) { buffer(p, 6).set_offset(8); },
     {"buffer 6 starts at byte 8 of a rank parameter, which has no parts"}},
    {"RankParamAxis", [](PlanBuilder &p) { buffer(p, 6).set_axes(0, "expert"); }, {"'expert'"}},
    {"RankParamType",
     [](PlanBuilder &p) {
       buffer(p, 6).set_type(schema::I32);
       buffer(p, 6).set_bytes(4);
     },
     {"not i64"}},
    {"ElementType",
     [](PlanBuilder &p) { buffer(p, 2).set_type(schema::DATA_TYPE_UNSPECIFIED); },
     {"element type 0"}},
    {"NegativeShape",
     [](PlanBuilder &p) { buffer(p, 2).set_shape(0, -4); },
     {"buffer 2", "negative size"}},
};
INSTANTIATE_TEST_SUITE_P(Buffer, PlanLoader, testing::ValuesIn(bufferRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

const Refusal stepRefusals[] = {
    {"Stream", [](PlanBuilder &p) { step(p, 0).set_stream(2); }, {"stream 2 of 2"}},
    {"Origin", [](PlanBuilder &p) { step(p, 0).set_origin(1); }, {"origin 1 of 1"}},
    {"NamesTheNode", [](PlanBuilder &p) { step(p, 0).set_stream(2); }, {"(/layer/MatMul)"}},
    {"Nothing", [](PlanBuilder &p) { step(p, 0).clear_library(); }, {"is nothing"}},
    {"ControlNothing", [](PlanBuilder &p) { program(p).add_body(); }, {"control element"}},
    {"Kernel",
     [](PlanBuilder &p) { step(p, 4).mutable_launch()->set_kernel(3); },
     {"kernel 3 of 1"}},
    {"Pointers",
     [](PlanBuilder &p) { step(p, 4).mutable_launch()->add_inputs(2); },
     {"'k0' 3 buffers", "takes 2"}},
    {"LaunchBuffer",
     [](PlanBuilder &p) { step(p, 4).mutable_launch()->set_inputs(0, 99); },
     {"buffer 99 of 8"}},
    {"WritesWeight",
     [](PlanBuilder &p) { step(p, 4).mutable_launch()->set_outputs(0, 1); },
     {"writes buffer 1", "read-only"}},
    {"WritesInput",
     [](PlanBuilder &p) { step(p, 4).mutable_launch()->set_outputs(0, 0); },
     {"writes buffer 0", "read-only"}},
    {"MatmulSizes",
     [](PlanBuilder &p) { matmul(p).mutable_sizes()->RemoveLast(); },
     {"over 2 sizes", "3 to 16"}},
    {"MatmulNegative", [](PlanBuilder &p) { matmul(p).set_sizes(0, -4); }, {"size of -4"}},
    {"MatmulLhs",
     [](PlanBuilder &p) { matmul(p).set_lhs(0, 5); },
     {"lhs reaches element 18 of buffer 0", "has 16"}},
    {"MatmulRhs",
     [](PlanBuilder &p) { matmul(p).set_rhs(0, 5); },
     {"rhs reaches element 17", "16"}},
    {"MatmulOut",
     [](PlanBuilder &p) { matmul(p).set_out(0, 64); },
     {"out reaches element 194", "12"}},
    {"MatmulStrideNegative", [](PlanBuilder &p) { matmul(p).set_rhs(0, -1); }, {"stride -1"}},
    {"MatmulStrideOverflow", [](PlanBuilder &p) { matmul(p).set_rhs(0, INT64_MAX); }, {"stride"}},
    {"MatmulStrideCount",
     [](PlanBuilder &p) { matmul(p).add_lhs(1); },
     {"3 strides for 2 dimensions"}},
    {"MatmulOutRepeats",
     [](PlanBuilder &p) { matmul(p).set_out(0, 0); },
     {"4 elements to one place"}},
    {"MatmulType",
     [](PlanBuilder &p) { matmul(p).set_type(schema::F64); },
     {"multiplies f64", "reads f32"}},
    {"MatmulOutType",
     [](PlanBuilder &p) { matmul(p).set_out_type(schema::BF16); },
     {"multiplies f32 into bf16"}},
    {"MatmulOutTypeUnknown",
     [](PlanBuilder &p) { matmul(p).set_out_type(static_cast<schema::DataType>(99)); },
     {"into 99", "unknown"}},
    {"MatmulFallback",
     [](PlanBuilder &p) { matmul(p).mutable_epilogue()->set_activation(schema::Epilogue::RELU); },
     {"falls back to kernel -1 of", "with activation RELU"}},
    {"MatmulFallbackKernel",
     [](PlanBuilder &p) {
       matmul(p).mutable_epilogue()->set_activation(schema::Epilogue::RELU);
       step(p, 0).mutable_library()->set_fallback(99);
     },
     {"falls back to kernel 98 of"}},
    {"MatmulActivation",
     [](PlanBuilder &p) {
       matmul(p).mutable_epilogue()->set_activation(schema::Epilogue::Activation(7));
     },
     {"has unknown activation 7"}},
    {"MatmulInputs",
     [](PlanBuilder &p) { step(p, 0).mutable_library()->add_inputs(0); },
     {"3 inputs", "needs 2"}},
    {"MatmulBias",
     [](PlanBuilder &p) {
       matmul(p).mutable_epilogue()->set_bias(true);
       step(p, 0).mutable_library()->add_inputs(4);
     },
     {"bias of 2 elements to 3 columns"}},
    {"MatmulResidualMissing",
     [](PlanBuilder &p) { matmul(p).mutable_epilogue()->set_residual(true); },
     {"2 inputs", "needs 3"}},
    {"MatmulResidual",
     [](PlanBuilder &p) {
       matmul(p).mutable_epilogue()->set_residual(true);
       step(p, 0).mutable_library()->add_inputs(4);
     },
     {"residual reaches element", "buffer 4, which has 2"}},
    {"CopySize",
     [](PlanBuilder &p) {
       p.program(1).mutable_body(0)->mutable_block()->mutable_steps(1)->mutable_copy()->set_output(
           0);
       p.program(1).mutable_body(0)->mutable_block()->mutable_steps(1)->mutable_copy()->set_input(
           0);
       PlanBuilder::addBuffer(p.program(1), schema::REGISTERED, {2});
       p.program(1).mutable_body(0)->mutable_block()->mutable_steps(1)->mutable_copy()->set_input(
           2);
     },
     {"copies 2 elements of f32 to 24"}},
    {"Event", [](PlanBuilder &p) { step(p, 1).mutable_record()->set_id(7); }, {"event 7 of 2"}},
    {"WaitUnrecorded",
     [](PlanBuilder &p) { step(p, 2).mutable_wait()->set_id(1); },
     {"event 1", "no step before it records"}},
    {"LagOutsideRepeat", [](PlanBuilder &p) { step(p, 2).mutable_wait()->set_lag(1); }, {"lag 1"}},
    {"LagUnrecorded",
     [](PlanBuilder &p) {
       schema::Repeat *repeat = program(p).add_body()->mutable_repeat();
       repeat->set_count(2);
       PlanBuilder::addWait(*repeat->add_body()->mutable_block(), 1, 0, 1);
     },
     {"event 1 is waited for but never recorded"}},
    {"ConditionType",
     [](PlanBuilder &p) { program(p).add_body()->mutable_loop()->set_condition(4); },
     {"buffer 4 with 2 elements of f32", "not one bool"}},
    {"ConditionBuffer",
     [](PlanBuilder &p) { program(p).add_body()->mutable_branch()->set_condition(40); },
     {"buffer 40 of 8"}},
    {"Depth",
     [](PlanBuilder &p) {
       schema::Control *control = program(p).add_body();
       for (int i = 0; i < 70; ++i)
         control = control->mutable_repeat()->add_body();
       control->mutable_block();
     },
     {"stage0.pb"}},
};
INSTANTIATE_TEST_SUITE_P(Step, PlanLoader, testing::ValuesIn(stepRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

const Refusal groupRefusals[] = {
    {"Axis",
     [](PlanBuilder &p) { gather(p).set_axes(0, "expert"); },
     {"'expert'", "not in the mesh"}},
    {"NoAxes", [](PlanBuilder &p) { gather(p).clear_axes(); }, {"over no axes"}},
    {"StageAxis", [](PlanBuilder &p) { gather(p).set_axes(0, "pipe"); }, {"stage axis 'pipe'"}},
    {"AxisTwice", [](PlanBuilder &p) { gather(p).add_axes("model"); }, {"axis 'model' twice"}},
    {"Sizes",
     [](PlanBuilder &p) { gather(p).set_outputs(0, 2); },
     {"makes 12 elements of 12 over 2 members"}},
    {"ComputeStream",
     [](PlanBuilder &p) { step(p, 3).set_stream(0); },
     {"not a communication stream"}},
    {"Counts", [](PlanBuilder &p) { gather(p).add_inputs(2); }, {"1 outputs", "needs 2"}},
    {"Types",
     [](PlanBuilder &p) {
       PlanBuilder::addBuffer(program(p), schema::ARENA, {8, 3}, 0, 0, schema::I8);
       gather(p).set_outputs(0, 8);
     },
     {"different element types"}},
    {"ReductionMissing",
     [](PlanBuilder &p) {
       gather(p).set_kind(schema::Group::ALL_REDUCE);
       gather(p).set_outputs(0, 2);
     },
     {"kind 0 with reduction 0; it needs one"}},
    {"ReductionUnknown",
     [](PlanBuilder &p) {
       gather(p).set_kind(schema::Group::ALL_REDUCE);
       gather(p).set_reduction(schema::Group::Reduction(9));
     },
     {"kind 0 with reduction 9; it needs one"}},
    {"ReductionOfNone",
     [](PlanBuilder &p) { gather(p).set_reduction(schema::Group::SUM); },
     {"kind 1 with reduction 1; it has none"}},
    {"ReducesFloat8",
     [](PlanBuilder &p) {
       PlanBuilder::addBuffer(program(p), schema::ARENA, {8, 3}, 0, 0, schema::F8E4M3FN);
       gather(p).set_kind(schema::Group::ALL_REDUCE);
       gather(p).set_reduction(schema::Group::SUM);
       gather(p).set_inputs(0, 8);
       gather(p).set_outputs(0, 8);
     },
     {"reduces f8e4m3fn", "convert it to f32"}},
    {"Permutation",
     [](PlanBuilder &p) {
       gather(p).set_kind(schema::Group::PERMUTE);
       gather(p).set_outputs(0, 2);
       gather(p).add_permutation(0);
       gather(p).add_permutation(0);
     },
     {"permutes 2 of 2", "one twice"}},
    {"Exchange",
     [](PlanBuilder &p) {
       gather(p).set_kind(schema::Group::ALL_TO_ALL);
       PlanBuilder::addBuffer(program(p), schema::ARENA, {3});
       gather(p).set_inputs(0, 8);
       gather(p).set_outputs(0, 8);
     },
     {"splits 3 elements among 2"}},
    {"TwoStreams",
     [](PlanBuilder &p) {
       PlanBuilder::addStream(program(p), "other", schema::Stream::COMMUNICATION);
       schema::Step again = step(p, 3);
       again.set_stream(2);
       *program(p).add_body()->mutable_block()->add_steps() = again;
     },
     {"is on stream 2; an earlier step of the same group is on stream 1"}},
    {"Peer",
     [](PlanBuilder &p) { step(p, 5).mutable_group()->set_peer_stage(4); },
     {"peer stage 4", "of 2"}},
    {"PeerIsSelf",
     [](PlanBuilder &p) { step(p, 5).mutable_group()->set_peer_stage(0); },
     {"peer stage 0 in stage 0"}},
    {"NeverReceived",
     [](PlanBuilder &p) {
       p.program(1).mutable_body(0)->mutable_block()->mutable_steps()->DeleteSubrange(0, 1);
     },
     {"channel 0", "sent but never received"}},
    {"NeverSent",
     [](PlanBuilder &p) {
       program(p).mutable_body(0)->mutable_block()->mutable_steps()->RemoveLast();
     },
     {"channel 0", "received but never sent"}},
    {"TransferSize",
     [](PlanBuilder &p) { step(p, 5).mutable_group()->set_inputs(0, 2); },
     {"other sizes"}},
    {"TransferCount",
     [](PlanBuilder &p) {
       schema::Repeat *repeat = program(p).add_body()->mutable_repeat();
       repeat->set_count(3);
       *repeat->add_body()->mutable_block()->add_steps() = step(p, 5);
     },
     {"sent 4 times", "received 1"}},
};
INSTANTIATE_TEST_SUITE_P(Group, PlanLoader, testing::ValuesIn(groupRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

/// A derived tensor of two sources, and what can be wrong with it.
void addDerived(PlanBuilder &plan) {
  schema::Derived *derived = plan.stages[0].add_derived();
  derived->set_name("d");
  derived->set_type(schema::F32);
  derived->add_shape(24);
  derived->add_sources("w");
  PlanBuilder::addBuffer(*derived, schema::INPUT, {24});
  PlanBuilder::addBuffer(*derived, schema::OUTPUT, {24});
  PlanBuilder::addCopy(*derived->mutable_block(), 0, 1);
}

const Refusal derivedRefusals[] = {
    {"Source",
     [](PlanBuilder &p) {
       addDerived(p);
       p.stages[0].mutable_derived(0)->set_sources(0, "v");
     },
     {"'d' needs 'v'"}},
    {"Cycle",
     [](PlanBuilder &p) {
       addDerived(p);
       p.stages[0].mutable_derived(0)->set_sources(0, "d");
     },
     {"'d' needs 'd'", "neither a weight nor derived before it"}},
    {"Name",
     [](PlanBuilder &p) {
       addDerived(p);
       p.stages[0].mutable_derived(0)->set_name("w");
     },
     {"name of another tensor"}},
    {"Communicates",
     [](PlanBuilder &p) {
       addDerived(p);
       PlanBuilder::addGroup(*p.stages[0].mutable_derived(0)->mutable_block(),
                             schema::Group::ALL_REDUCE, {"model"}, {0}, {1}, 0);
     },
     {"communicates"}},
    {"ReadsState",
     [](PlanBuilder &p) {
       addDerived(p);
       PlanBuilder::addBuffer(*p.stages[0].mutable_derived(0), schema::STATE, {2});
     },
     {"is a state"}},
    {"PerRank",
     [](PlanBuilder &p) {
       addDerived(p);
       PlanBuilder::addBuffer(*p.stages[0].mutable_derived(0), schema::RANK_PARAM, {1}, 0, 0,
                              schema::I64);
     },
     {"differs per rank"}},
};
INSTANTIATE_TEST_SUITE_P(Derived, PlanLoader, testing::ValuesIn(derivedRefusals),
                         [](const auto &info) { return std::string(info.param.name); });

/// No truncation or flipped bit of any file is accepted, and none crashes.
TEST(PlanLoaderTest, RefusesEveryTruncationAndFlip) {
  TemporaryFolder folder;
  PlanBuilder builder = makePlan();
  std::filesystem::path path = builder.write(folder.getPath());
  for (const char *name : {"stage0.pb", "stage1.pb", "kernels/cpu.so"}) {
    std::ifstream file(path / name, std::ios::binary);
    std::string contents{std::istreambuf_iterator<char>(file), {}};
    for (size_t i = 0; i < contents.size(); i += 7) {
      std::string flipped = contents;
      flipped[i] = char(flipped[i] ^ (1 << i % 8));
      writeFile(path / name, flipped);
      EXPECT_THROW(Plan::load(path), Error) << name << " byte " << i;
      writeFile(path / name, contents.substr(0, i));
      EXPECT_THROW(Plan::load(path), Error) << name << " cut at " << i;
    }
    writeFile(path / name, contents);
  }
  Plan::load(path);
}

/// With checksums made right again, arbitrary bytes as a stage are refused or accepted, never more.
TEST(PlanLoaderTest, SurvivesDamagedStagesWithRightChecksums) {
  TemporaryFolder folder;
  PlanBuilder builder = makePlan();
  std::string stage = builder.stages[0].SerializeAsString();
  uint32_t seed = 1;
  auto next = [&] { return seed = seed * 1664525 + 1013904223; };
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = stage;
    for (int i = 0; i < 1 + round % 4; ++i)
      damaged[next() % damaged.size()] = char(next() >> 24);
    builder.rawStages[0] = damaged;
    std::filesystem::path path = builder.write(folder.getPath());
    try {
      Plan::load(path);
    } catch (const Error &error) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(PlanLoaderTest, RefusesADamagedManifest) {
  TemporaryFolder folder;
  PlanBuilder builder = makePlan();
  std::filesystem::path path = builder.write(folder.getPath());
  std::ifstream file(path / "manifest.json");
  std::string contents{std::istreambuf_iterator<char>(file), {}};
  for (size_t i = 0; i + 2 < contents.size(); i += 11) {
    writeFile(path / "manifest.json", contents.substr(0, i));
    EXPECT_THROW(Plan::load(path), Error) << "cut at " << i;
  }
  std::filesystem::remove(path / "manifest.json");
  EXPECT_THROW(Plan::load(path), Error);
  EXPECT_THROW(Plan::load(path / "none"), Error);
}

TEST(PlanLoaderTest, ReadsForeignTargetsWhenAskedTo) {
  TemporaryFolder folder;
  PlanBuilder builder = makePlan();
  builder.manifest["target"] = {{"kind", "cpu"}, {"arch", "x86-64-v9"}};
  PlanOptions options;
  options.requireTarget = false;
  EXPECT_EQ(Plan::load(builder.write(folder.getPath()), options)->getTargetArch(), "x86-64-v9");
}

} // namespace
