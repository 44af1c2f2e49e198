//===- PtxRun.cpp - running kernels on the host, for tests ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/PtxRun.h"

#include "test/fake/PtxModule.h"

#include <cstring>

namespace gridloom::fake {

struct PtxProgram::Kernels {
  std::map<std::string, PtxKernel> byName;
};

PtxProgram::PtxProgram(const std::string &text) : kernels(std::make_unique<Kernels>()) {
  try {
    kernels->byName = parsePtx(text);
  } catch (const PtxError &fault) {
    error = fault.what();
  }
}

PtxProgram::~PtxProgram() = default;

namespace {

/// A tensor's bytes at an address with exactly its alignment.
struct Placed {
  std::unique_ptr<std::byte[]> storage;
  std::byte *data = nullptr;
  std::unique_ptr<PtxShadow> shadow;
};

Placed place(const PtxTensor &tensor) {
  constexpr size_t page = 256;
  Placed placed;
  placed.storage = std::make_unique<std::byte[]>(tensor.bytes.size() + 2 * page);
  auto address = reinterpret_cast<uintptr_t>(placed.storage.get());
  size_t skip = (page - address % page) % page + tensor.alignment % page;
  placed.data = placed.storage.get() + skip;
  // The shadow begins at the page, so that its offsets have the alignment of the addresses.
  placed.shadow = std::make_unique<PtxShadow>(tensor.alignment % page + tensor.bytes.size());
  if (tensor.isInput) {
    std::memcpy(placed.data, tensor.bytes.data(), tensor.bytes.size());
    placed.shadow->markWritten(tensor.alignment % page, tensor.bytes.size());
  }
  return placed;
}

} // namespace

std::string PtxProgram::run(const std::string &name, const PtxRun &run,
                            std::vector<PtxTensor> &tensors) const {
  auto kernel = kernels->byName.find(name);
  if (kernel == kernels->byName.end())
    return error.empty() ? "there is no kernel " + name : error;
  if (kernel->second.parameters.size() != tensors.size())
    return "kernel " + name + " takes " + std::to_string(kernel->second.parameters.size()) +
           " pointers, not " + std::to_string(tensors.size());
  Launch launch;
  std::memcpy(launch.grid, run.grid, sizeof(run.grid));
  std::memcpy(launch.block, run.block, sizeof(run.block));
  launch.sharedBytes = run.sharedBytes;
  std::vector<Placed> memory;
  std::vector<PtxBuffer> buffers;
  std::vector<size_t> places; // of each tensor, in `memory`
  for (const PtxTensor &tensor : tensors) {
    bool isOwn = tensor.inPlaceOf < 0;
    places.push_back(isOwn ? memory.size() : places.at(static_cast<size_t>(tensor.inPlaceOf)));
    if (isOwn)
      memory.push_back(place(tensor));
    Placed &placed = memory[places.back()];
    launch.pointers.push_back(placed.data);
    size_t skip = placed.shadow->getBytes() - tensor.bytes.size();
    if (isOwn && !tensor.bytes.empty())
      buffers.push_back({placed.data, placed.data - skip, placed.data + tensor.bytes.size(),
                         placed.shadow.get()});
  }
  try {
    PtxInaccuracy inaccuracy(run.inaccuracy);
    PtxOptions options;
    options.seed = run.seed;
    options.maxInstructions = run.maxInstructions;
    runPtx(kernel->second, launch, buffers, options);
  } catch (const PtxError &fault) {
    return fault.what();
  }
  for (size_t n = 0; n < tensors.size(); ++n) {
    if (tensors[n].isInput)
      continue;
    const Placed &placed = memory[places[n]];
    size_t bytes = tensors[n].bytes.size();
    size_t skip = placed.shadow->getBytes() - bytes;
    if (!placed.shadow->isWritten(skip, bytes))
      return "kernel " + name + " leaves a part of pointer " + std::to_string(n) + " unwritten";
    std::memcpy(tensors[n].bytes.data(), placed.data, bytes);
  }
  return "";
}

} // namespace gridloom::fake
