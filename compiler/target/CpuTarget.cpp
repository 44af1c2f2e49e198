//===- CpuTarget.cpp - plans for CPUs ---------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Matrix multiplications and convolutions are oneDNN's, all else is a kernel.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/KernelFiles.h"
#include "compiler/target/Target.h"
#include "support/CpuLevels.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
const TargetKind &cpuTargets();
} // namespace gridloom

namespace {

class CpuTarget final : public Target {
public:
  using Target::Target;
  LogicalResult emitKernels(ModuleOp module, KernelFiles &kernels) const override;
};

} // namespace

LogicalResult CpuTarget::emitKernels(ModuleOp module, KernelFiles &kernels) const {
  std::string wideArch = getWideCpuLevel(getTraits().arch);
  FailureOr<codegen::CompiledKernels> compiled =
      codegen::compileCpuKernels(module, {getTraits().arch, wideArch});
  if (failed(compiled))
    return failure();
  for (const codegen::KernelInfo &info : compiled->kernels) {
    schema::Kernel &proto = kernels.add(info, "cpu.so");
    proto.set_rows(info.rows);
    proto.set_grain(info.grain);
  }
  if (compiled->kernels.empty())
    return success();
  kernels.files["kernels/cpu.so"] = std::move(compiled->sharedObject);
  if (!wideArch.empty())
    kernels.files["kernels/cpu." + wideArch + ".so"] = std::move(compiled->wideObject);
  return success();
}

static std::unique_ptr<Target> makeCpuTarget(const TargetOptions &options, std::string &) {
  if (options.name != "cpu")
    return nullptr;
  TargetTraits traits;
  traits.kind = "cpu";
  traits.arch = options.cpuArch;
  traits.machine = "cpu";
  traits.neuralLibrary = "onednn";
  traits.layout.forwardConvolutions = true;
  traits.layout.turnWeights = true;
  traits.fuse.convolutionEpilogues = false;
  traits.fuse.channelsLast = true;
  return std::make_unique<CpuTarget>(options.name, std::move(traits));
}

const TargetKind &gridloom::cpuTargets() {
  static constexpr StringRef spellings[] = {"cpu"};
  static const TargetFlag flags[] = {{"--cpu-arch", [](const TargetOptions &options) {
                                        return options.cpuArch != TargetOptions().cpuArch;
                                      }}};
  static const TargetKind kind{"cpu", spellings, "cpu", flags, makeCpuTarget};
  return kind;
}
