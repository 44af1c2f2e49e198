//===- Measure.h - gridloom devices --measure -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_MEASURE_H
#define GRIDLOOM_RUNTIME_CLI_MEASURE_H

#include "cluster/Cluster.h"
#include "support/OutputFormat.h"

#include <string>

namespace gridloom::rt {

struct MeasureSettings {
  std::string output;         ///< the cluster file
  std::string device = "cpu"; ///< a name of Devices.def
  int ranks = 0;              ///< of the cluster; 0: one per core, 2 to 16
  bool quick = false;
  bool force = false; ///< replace the file
};

/// Times kernels, library calls and collectives on this machine, and writes a cluster file for
/// which the cost library estimates these times. Returns the exit code. Throws InvalidArgument if
/// the file exists or cannot be written, Unavailable if the compiler or the devices are missing.
int measureMachine(const MeasureSettings &settings, const OutputFormat &format);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_MEASURE_H
