//===- TargetTest.cpp - targets and their options -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "cluster/Presets.h"
#include "compiler/target/KernelFiles.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

#include <gmock/gmock.h>

using namespace gridloom;
using testing::HasSubstr;
using testing::Not;

namespace {

std::unique_ptr<Target> parse(TargetOptions options) {
  std::string error;
  std::unique_ptr<Target> target = parseTarget(options, error);
  EXPECT_EQ(error, "");
  return target;
}

std::string errorOf(const TargetOptions &options) {
  std::string error;
  EXPECT_EQ(parseTarget(options, error), nullptr);
  return error;
}

/// The passes of a phase, with their options.
template <typename Options>
std::string print(void (*addPasses)(mlir::OpPassManager &, const Options &),
                  const Options &options) {
  mlir::OpPassManager pm("builtin.module");
  addPasses(pm, options);
  std::string text;
  llvm::raw_string_ostream os(text);
  pm.printAsTextualPipeline(os);
  return text;
}

std::string describe(const Target &target, const KernelFiles &kernels) {
  return llvm::formatv("{0}", llvm::json::Value(target.describe(kernels))).str();
}

TEST(TargetTest, EveryListedNameIsATarget) {
  EXPECT_EQ(listTargets(), "cpu, cuda:sm_80, cuda:sm_90 or cuda:sm_100");
  for (const TargetKind *kind : getTargetKinds()) {
    EXPECT_TRUE(llvm::is_contained(kind->spellings, kind->example));
    for (llvm::StringRef name : kind->spellings) {
      std::unique_ptr<Target> target = parse({.name = name.str()});
      ASSERT_TRUE(target);
      EXPECT_EQ(target->getName(), name);
      EXPECT_EQ(target->getTraits().kind, kind->name);
    }
  }
}

TEST(TargetTest, GpusAreOfAGenerationAndAMachine) {
  struct Row {
    const char *name, *arch, *machine;
    unsigned generation;
    int64_t processors;
  };
  for (const Row &row : {Row{"cuda:sm_80", "sm_80", "A100-80GB", 80, 108},
                         {"cuda:sm_86", "sm_86", "A100-80GB", 80, 108},
                         {"cuda:sm_90", "sm_90", "H100-80GB", 90, 132},
                         {"cuda:sm_90a", "sm_90a", "H100-80GB", 90, 132},
                         {"cuda:sm_103", "sm_103", "B200-180GB", 100, 148}}) {
    std::unique_ptr<Target> target = parse({.name = row.name});
    ASSERT_TRUE(target) << row.name;
    EXPECT_EQ(target->getTraits().arch, row.arch);
    EXPECT_EQ(target->getTraits().machine, row.machine);
    EXPECT_EQ(target->getTraits().generation, row.generation);
    EXPECT_EQ(target->getTraits().processors, row.processors);
  }
}

TEST(TargetTest, OtherNamesAreRefusedWithThoseThereAre) {
  for (const char *name : {"", "CPU", "cpu:x86-64-v4", "cuda", "cuda:", "cuda:90", "cuda:sm_",
                           "cuda:sm_70", "cuda:sm_9000", "cuda:sm_90 ", "sm_90", "rocm:gfx942"})
    EXPECT_EQ(errorOf({.name = name}), "unknown --target '" + std::string(name) +
                                           "'; write cpu, cuda:sm_80, cuda:sm_90 or cuda:sm_100");
}

TEST(TargetTest, OptionsOfOtherTargetsAreRefused) {
  EXPECT_EQ(errorOf({.name = "cuda:sm_90", .cpuArch = "x86-64-v4"}),
            "--cpu-arch does nothing for --target cuda:sm_90; use --target cpu");
  EXPECT_EQ(errorOf({.toolkit = "/"}),
            "--cuda-toolkit does nothing for --target cpu; use --target cuda:sm_90");
  EXPECT_EQ(errorOf({.cudnn = false}),
            "--no-cudnn does nothing for --target cpu; use --target cuda:sm_90");
  EXPECT_THAT(errorOf({.name = "cuda:sm_80", .toolkit = "/nowhere"}),
              HasSubstr("--cuda-toolkit /nowhere has no bin/ptxas"));
}

TEST(TargetTest, OnlyGpusRoundToTf32) {
  EXPECT_EQ(parse({.name = "cuda:sm_80"})->findPrecisionObstacle("tf32"), "");
  EXPECT_EQ(parse({})->findPrecisionObstacle("tf32"),
            "--precision tf32 is a format of NVIDIA's tensor cores; add --target cuda:sm_90, or "
            "use --precision f32 or bf16 on the cpu");
  for (const char *precision : {"f32", "bf16", "f16"})
    EXPECT_EQ(parse({})->findPrecisionObstacle(precision), "");
}

TEST(TargetTest, PassesGetWhatTheTargetHas) {
  std::unique_ptr<Target> host = parse({.cpuArch = "x86-64-v4"}),
                          gpu = parse({.name = "cuda:sm_90"}),
                          plain = parse({.name = "cuda:sm_90", .cudnn = false});
  EXPECT_EQ(host->getTraits().arch, "x86-64-v4");
  auto layout = [](const Target &target) {
    return print(addLayoutPasses, target.getTraits().layout);
  };
  auto fuse = [](const Target &target) { return print(addFusePasses, target.getTraits().fuse); };
  EXPECT_THAT(layout(*host), Not(HasSubstr("loom-merge-matmuls")));
  EXPECT_THAT(layout(*host), HasSubstr("loom-turn-weights"));
  EXPECT_THAT(layout(*host), HasSubstr("keep-forward=true keep-library=false"));
  EXPECT_THAT(fuse(*host), HasSubstr("plan-form-convolutions{epilogues=false}"));
  EXPECT_THAT(fuse(*host), HasSubstr("plan-channels-last{f32=true}"));
  EXPECT_THAT(layout(*host), HasSubstr("pad-elements=16 pad-multiple=256"));
  EXPECT_THAT(fuse(*host), Not(HasSubstr("plan-form-attention")));
  EXPECT_THAT(fuse(*host), HasSubstr("activations=false keep-row-products=false residuals=false"));
  EXPECT_THAT(layout(*gpu), HasSubstr("loom-merge-matmuls"));
  EXPECT_THAT(layout(*gpu), Not(HasSubstr("loom-turn-weights")));
  EXPECT_THAT(layout(*gpu), HasSubstr("keep-forward=false keep-library=true"));
  EXPECT_THAT(fuse(*gpu), HasSubstr("plan-form-convolutions{epilogues=true}"));
  EXPECT_THAT(fuse(*gpu), HasSubstr("plan-channels-last{f32=false}"));
  EXPECT_THAT(layout(*gpu), HasSubstr("pad-multiple=0"));
  EXPECT_THAT(fuse(*gpu), HasSubstr("plan-form-attention"));
  EXPECT_THAT(fuse(*gpu), HasSubstr("activations=true keep-row-products=true residuals=true"));
  EXPECT_THAT(layout(*plain), HasSubstr("keep-library=false"));
  EXPECT_THAT(layout(*plain), HasSubstr("loom-merge-matmuls"));
  EXPECT_THAT(fuse(*plain), Not(HasSubstr("plan-form-attention")));
}

TEST(TargetTest, ManifestSaysWhatRunsThePlan) {
  EXPECT_EQ(describe(*parse({}), {}), R"({"arch":"x86-64-v3","kind":"cpu"})");
  std::unique_ptr<Target> gpu = parse({.name = "cuda:sm_90"});
  EXPECT_EQ(gpu->getTraits().neuralLibrary, "cudnn");
  KernelFiles kernels;
  EXPECT_EQ(describe(*gpu, kernels), R"({"arch":"sm_90","kind":"cuda"})");
  kernels.cudaVersion = 12040;
  EXPECT_EQ(describe(*gpu, kernels), R"({"arch":"sm_90","cuda":12040,"kind":"cuda"})");
}

TEST(TargetTest, EveryTargetHasAKindOfDevice) {
  for (const TargetKind *kind : getTargetKinds())
    for (llvm::StringRef name : kind->spellings) {
      const cluster::DeviceKind *device =
          cluster::findKind(parse({.name = name.str()})->getTraits().machine.str());
      ASSERT_TRUE(device) << name.str();
      EXPECT_EQ(device->target, name);
    }
  for (const std::string &name : cluster::listKinds())
    if (const std::string &target = cluster::findKind(name)->target; !target.empty())
      EXPECT_TRUE(parse({.name = target})) << name;
}

} // namespace
