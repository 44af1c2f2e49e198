//===- ChoiceChecks.cpp - options against the chosen plan -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace gridloom;

/// Warns if the user names other devices than the plan is for.
void Compilation::checkDevices() {
  std::string error, flag = getClusterFlag();
  if (flag.empty())
    return;
  for (const cluster::DeviceKind &kind : choice.machine.kinds) {
    TargetOptions usual;
    usual.name = kind.target;
    std::unique_ptr<Target> named = kind.target.empty() ? nullptr : parseTarget(usual, error);
    if (!named)
      continue;
    const TargetTraits &traits = target->getTraits(), &of = named->getTraits();
    if (of.kind != traits.kind)
      emitWarning(module->getLoc())
          << flag << " estimates for " << kind.name << " but the plan is for --target "
          << target->getName() << "; to run on them add --target " << named->getName();
    else if (of.generation != traits.generation)
      emitWarning(module->getLoc())
          << flag << " are " << of.arch << " but --target " << target->getName()
          << (traits.generation > of.generation ? " does not run on them"
                                                : " is for an older generation")
          << "; add --target " << named->getName();
  }
}

/// Checks options about machines and pipelines against the chosen strategy.
LogicalResult Compilation::checkChoice() {
  checkDevices();
  if (options.microbatches > 1 && !options.train.isOn && !choice.options.hasPipeline())
    emitWarning(module->getLoc()) << "--microbatches " << options.microbatches
                                  << " does nothing: the plan has no pipeline; add an axis pipe to "
                                     "--mesh, e.g. pipe=2";
  if (options.certifies && !choice.bound)
    emitWarning(module->getLoc()) << "--certify does nothing: there is one candidate; "
                                  << suggestCandidates();
  if (options.chunkMatmul && choice.options.mesh.empty())
    emitWarning(module->getLoc()) << "--chunk-matmul " << options.chunkMatmul
                                  << " does nothing: the plan is for one device";
  return success();
}
