//===- TargetOptions.h - command line options of targets --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Plain data, free of MLIR: filled by the command line, read by parseTarget.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_TARGET_TARGETOPTIONS_H
#define GRIDLOOM_COMPILER_TARGET_TARGETOPTIONS_H

#include "support/CpuLevels.h"

#include <string>

namespace gridloom {

struct TargetOptions {
  std::string name = "cpu";              ///< one of listTargets()
  std::string cpuArch{kDefaultCpuLevel}; ///< the CPU, as LLVM names it
  std::string toolkit = {}; ///< CUDA toolkit folder; empty: $CUDA_HOME, else /usr/local/cuda
  bool cudnn = true;        ///< convolutions and attention of GPUs are cuDNN's
};

/// "cpu, cuda:sm_80, cuda:sm_90 or cuda:sm_100".
std::string listTargets();

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_TARGET_TARGETOPTIONS_H
