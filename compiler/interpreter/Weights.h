//===- Weights.h - weights for the interpreter ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_WEIGHTS_H
#define GRIDLOOM_COMPILER_INTERPRETER_WEIGHTS_H

#include "dialects/loom/Loom.h"

#include "llvm/ADT/StringMap.h"

namespace gridloom {

/// Gives weights their values.
class WeightProvider {
public:
  virtual ~WeightProvider() = default;
  /// The whole tensor of a weight. Fails with a diagnostic on the weight.
  virtual llvm::FailureOr<loom::HostTensor> load(loom::WeightOp weight) = 0;
};

/// Reads weights from their `source`, and keeps them.
class FileWeights : public WeightProvider {
public:
  /// `modelPath` is the model file; sources of other files are in its folder.
  explicit FileWeights(llvm::StringRef modelPath) : modelPath(modelPath) {}
  llvm::FailureOr<loom::HostTensor> load(loom::WeightOp weight) override;

private:
  std::string modelPath;
  llvm::StringMap<loom::HostTensor> loaded;
};

/// Values in [-1, 1) made from the weight's name and the element's index; integers are 0.
class GeneratedWeights : public WeightProvider {
public:
  llvm::FailureOr<loom::HostTensor> load(loom::WeightOp weight) override;
};

/// `count` numbers in [0, 1) that depend on `seed` and their index alone.
std::vector<double> makeUniform(uint64_t seed, int64_t count);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_WEIGHTS_H
