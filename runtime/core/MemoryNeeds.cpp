//===- MemoryNeeds.cpp - device memory of a plan --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/MemoryNeeds.h"

#include "runtime/core/Error.h"
#include "runtime/core/plan.pb.h"
#include "support/Text.h"

#include <algorithm>
#include <bit>
#include <map>

using namespace gridloom;
using namespace gridloom::rt;

uint64_t gridloom::rt::getBytes(const schema::Binding &binding) {
  uint64_t bytes = sizeOf(DataType(binding.type()));
  for (int64_t size : binding.shape())
    bytes *= uint64_t(size);
  return bytes;
}

using Body = google::protobuf::RepeatedPtrField<schema::Control>;

/// Raises `largest`, by stream, to the largest workspace that calls of `body` may use.
static void findWorkspaces(const schema::Specialisation &program, const Body &body,
                           std::map<std::string, uint64_t> &largest) {
  for (const schema::Control &control : body) {
    for (const schema::Step &step : control.block().steps()) {
      if (!step.has_library())
        continue;
      const schema::Library &call = step.library();
      uint64_t limit = call.has_convolution() ? call.convolution().workspace_limit()
                       : call.has_attention() ? call.attention().workspace_limit()
                                              : call.matmul().workspace_limit();
      uint64_t &known = largest[program.streams(int(step.stream())).name()];
      known = std::max(known, limit);
    }
    for (const Body *inner : {&control.repeat().body(), &control.loop().body(),
                              &control.branch().then(), &control.branch().otherwise()})
      findWorkspaces(program, *inner, largest);
  }
}

MemoryNeeds gridloom::rt::computeNeeds(const schema::Stage &stage) {
  MemoryNeeds needs;
  for (const schema::Weight &weight : stage.weights())
    needs.weights += weight.bytes();
  for (const schema::State &state : stage.states())
    needs.states += state.bytes();
  for (const schema::Derived &tensor : stage.derived()) {
    uint64_t bytes = sizeOf(DataType(tensor.type()));
    for (int64_t size : tensor.shape())
      bytes *= uint64_t(size);
    needs.prologue = std::max<uint64_t>(needs.prologue, tensor.arena_bytes() + bytes);
  }
  std::map<std::string, uint64_t> workspaces;
  for (const schema::Entry &entry : stage.entries())
    for (const schema::Specialisation &program : entry.specialisations()) {
      findWorkspaces(program, program.body(), workspaces);
      needs.arena = std::max<uint64_t>(needs.arena, program.arena_bytes());
      needs.registered = std::max<uint64_t>(needs.registered, program.registered_bytes());
      for (const auto *bindings : {&program.inputs(), &program.outputs()})
        for (const schema::Binding &binding : *bindings)
          needs.bindings += getBytes(binding);
    }
  for (const auto &[stream, bytes] : workspaces)
    needs.workspaces += std::bit_ceil(bytes); // as CudaStream allocates them
  return needs;
}

std::string gridloom::rt::describe(const MemoryNeeds &needs) {
  std::string text = "weights " + formatBytes(needs.weights) + ", activations " +
                     formatBytes(needs.getActivations());
  if (needs.states)
    text += ", states " + formatBytes(needs.states);
  text += ", inputs and outputs " + formatBytes(needs.bindings);
  if (needs.workspaces)
    text += ", workspaces up to " + formatBytes(needs.workspaces);
  if (needs.communication)
    text += ", NCCL about " + formatBytes(needs.communication);
  if (needs.weights + needs.communication + needs.prologue >
      needs.getFixed() + needs.getActivations())
    text += ", and " + formatBytes(needs.prologue) + " while weights are prepared";
  return text;
}

/// The batch that micro-batches split: the first dimension of all inputs if they agree, else 1.
static int64_t getBatch(const Plan &plan) {
  int64_t batch = 0;
  for (const Entry &entry : plan.getEntries())
    for (const EntrySpecialisation &specialisation : entry.specialisations)
      for (const Argument &input : specialisation.inputs) {
        int64_t own = input.shape.empty() ? 1 : input.shape.front();
        batch = batch == 0 || batch == own ? own : 1;
      }
  return std::max<int64_t>(batch, 1);
}

std::string gridloom::rt::findChangeThatFits(const Plan &plan, const MemoryNeeds &needs,
                                             uint64_t bytes) {
  constexpr uint64_t most = 1024;
  uint64_t fixed = needs.getFixed();
  auto tell = [](const std::string &option, uint64_t estimate) {
    return option + " (about " + formatBytes(estimate) + ")";
  };
  // Without a pipeline compile ignores the option, and a training step has parts of its own.
  bool isPipeline = plan.getNumStages() > 1 && !plan.getTraining();
  for (uint64_t times = 2; isPipeline && times <= most; times *= 2) {
    uint64_t count = uint64_t(plan.getMicrobatches()) * times;
    uint64_t estimate = fixed + needs.getActivations() / times;
    if (estimate <= bytes && uint64_t(getBatch(plan)) % count == 0)
      return tell("--microbatches " + std::to_string(count), estimate);
  }
  int64_t present = 1;
  std::string others;
  for (const Mesh::Axis &axis : plan.getMesh().getAxes())
    if (axis.name == "model")
      present = axis.size;
    else
      others += axis.name + "=" + std::to_string(axis.size) + ",";
  for (uint64_t times = 2; times <= most; times *= 2)
    if (uint64_t estimate = needs.communication + (needs.getTotal() - needs.communication) / times;
        estimate <= bytes)
      return tell("--mesh " + others + "model=" + std::to_string(uint64_t(present) * times),
                  estimate);
  return "";
}

void gridloom::rt::requireMemory(const Plan &plan, int rank, const MemoryNeeds &needs,
                                 const Device &device) {
  std::optional<DeviceMemory> memory = device.getMemory();
  if (!memory || needs.getTotal() <= memory->free)
    return;
  std::string change = findChangeThatFits(plan, needs, memory->free);
  throw Error(ErrorCode::OutOfMemory,
              device.getName() + " has " + formatBytes(memory->free) + " of " +
                  formatBytes(memory->total) + " free, rank " + std::to_string(rank) + " needs " +
                  formatBytes(needs.getTotal()) + ": " + describe(needs) +
                  (change.empty()
                       ? "; shard over more devices, or compile for a smaller batch"
                       : "; the smallest change that fits is to compile with " + change));
}
