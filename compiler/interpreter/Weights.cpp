//===- Weights.cpp - weights for the interpreter --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Weights.h"

#include "llvm/Support/Errc.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

#include <cstring>

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

/// A zero tensor of the weight's type.
static FailureOr<HostTensor> makeTensor(loom::WeightOp weight) {
  RankedTensorType type = weight.getTensorType();
  std::optional<loom::ElementKind> kind = loom::getElementKind(type.getElementType());
  if (!kind)
    return weight.emitOpError() << "has element type " << type.getElementType()
                                << ", which cannot be computed with";
  return HostTensor(*kind, type.getShape());
}

FailureOr<HostTensor> FileWeights::load(loom::WeightOp weight) {
  auto found = loaded.find(weight.getSymName());
  if (found != loaded.end())
    return found->second;
  FailureOr<HostTensor> tensor = makeTensor(weight);
  if (failed(tensor))
    return failure();
  loom::SourceAttr source = weight.getSource();
  SmallString<256> path(modelPath);
  if (!source.getFile().empty()) {
    llvm::sys::path::remove_filename(path);
    llvm::sys::path::append(path, source.getFile());
  }
  if (source.getBytes() != tensor->getNumBytes())
    return weight.emitOpError() << "has " << source.getBytes() << " bytes in '" << path
                                << "', its type " << weight.getTensorType() << " needs "
                                << tensor->getNumBytes();
  auto buffer = llvm::MemoryBuffer::getFileSlice(path, source.getBytes(), source.getOffset());
  if (!buffer)
    return weight.emitOpError() << "cannot be read from '" << path
                                << "': " << buffer.getError().message();
  if ((*buffer)->getBufferSize() != source.getBytes())
    return weight.emitOpError() << "needs " << source.getBytes() << " bytes at "
                                << source.getOffset() << " of '" << path << "', which ends after "
                                << (*buffer)->getBufferSize() << " of them";
  std::memcpy(tensor->getMutableData(), (*buffer)->getBufferStart(), source.getBytes());
  loaded[weight.getSymName()] = *tensor;
  return tensor;
}

std::vector<double> gridloom::makeUniform(uint64_t seed, int64_t count) {
  std::vector<double> values(count);
  for (auto [i, value] : llvm::enumerate(values)) {
    // splitmix64: well mixed, and the same everywhere.
    uint64_t state = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    value = static_cast<double>((state ^ (state >> 31)) >> 11) * 0x1p-53;
  }
  return values;
}

FailureOr<HostTensor> GeneratedWeights::load(loom::WeightOp weight) {
  FailureOr<HostTensor> tensor = makeTensor(weight);
  if (failed(tensor) || !loom::isFloatKind(tensor->getKind()))
    return tensor;
  std::vector<double> values =
      makeUniform(llvm::xxh3_64bits(weight.getSymName()), tensor->getNumElements());
  for (double &value : values)
    value = 2 * value - 1;
  return HostTensor::fromDoubles(tensor->getKind(), tensor->getShape(), values);
}
