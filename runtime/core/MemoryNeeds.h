//===- MemoryNeeds.h - device memory of a plan ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_MEMORYNEEDS_H
#define GRIDLOOM_RUNTIME_CORE_MEMORYNEEDS_H

#include "runtime/core/Plan.h"
#include "runtime/device/Device.h"

#include <algorithm>

namespace gridloom::schema {
class Binding;
} // namespace gridloom::schema

namespace gridloom::rt {

/// Bytes that one rank of a stage needs on its device, without the driver's own memory.
struct MemoryNeeds {
  uint64_t weights = 0;
  uint64_t arena = 0, registered = 0; // of the largest program
  uint64_t states = 0;
  uint64_t bindings = 0;      // inputs and outputs of all programs
  uint64_t workspaces = 0;    // of library calls, one for each stream
  uint64_t communication = 0; // NCCL's, estimated
  uint64_t prologue = 0;      // while weights are loaded, before the rest is allocated

  uint64_t getActivations() const { return arena + registered; }
  /// Memory that the plan itself places: known at compile time, independent of device and
  /// libraries.
  uint64_t getAllocated() const { return weights + states + bindings + getActivations(); }
  /// Memory that does not depend on the batch.
  uint64_t getFixed() const { return weights + states + bindings + workspaces + communication; }
  uint64_t getTotal() const {
    return std::max(getFixed() + getActivations(), weights + communication + prologue);
  }
};

/// Bytes of an input or output on one rank.
uint64_t getBytes(const schema::Binding &binding);

MemoryNeeds computeNeeds(const schema::Stage &stage);

/// "weights 1.2 GiB, activations 300 MiB, ..."
std::string describe(const MemoryNeeds &needs);

/// The smallest change of the compile options that makes `needs` fit into `bytes`, estimated: more
/// micro-batches of a pipeline if activations alone are too large, else a larger mesh. `plan` has
/// the present options. Empty if no factor up to 1024 suffices.
std::string findChangeThatFits(const Plan &plan, const MemoryNeeds &needs, uint64_t bytes);

/// Throws OutOfMemory if `needs` of rank `rank` exceed what `device` has free now.
void requireMemory(const Plan &plan, int rank, const MemoryNeeds &needs, const Device &device);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_MEMORYNEEDS_H
