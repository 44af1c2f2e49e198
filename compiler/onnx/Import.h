//===- Import.h - ONNX models as loom programs ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_IMPORT_H
#define GRIDLOOM_COMPILER_ONNX_IMPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace gridloom {

struct ImportOptions {
  /// Sizes of named dimensions, one specialisation per size, e.g. {"batch", {1, 8}}; of several
  /// dimensions with several sizes, one per combination. A dimension without a name is called
  /// INPUT.INDEX, e.g. `input_ids.0`.
  std::vector<std::pair<std::string, std::vector<int64_t>>> dims;

  /// Loops of at most this many iterations become that many copies of their body.
  int64_t unroll = 8;

  /// Whether maxima and minima say which operand counts where both are equal (loom.ties), for a
  /// derivative as activation functions have it.
  bool marksTies = false;

  /// Whether the program will be trained. There are two functions per specialisation then: one of
  /// entry `train_step` is the model as it says, where results with `loom.updates` give the next
  /// values of running statistics; in the one of entry `main` nothing is in training mode. Float
  /// initializers of one element and rank 1 or more stay weights.
  bool isTraining = false;
  /// With `isTraining`: functions of entry `train_step` have so many parts of the batch, the
  /// dimension that comes first in all inputs of one name, and say so in `loom.batch`.
  int64_t microbatches = 1;
  /// Takes all that is in training mode as if it were not.
  bool isInference = false;

  /// Inputs and the outputs whose values they are in the next call: names in which one `*` stands
  /// for any text, the same in both.
  std::vector<std::pair<std::string, std::string>> states;

  /// Files of external weights may be absent; values that the import itself needs have to be there.
  bool mayLackWeights = false;

  /// Adds what `--state` says, `INPUT=OUTPUT`. The error is one line; empty on success.
  std::string addState(llvm::StringRef text);
  /// Adds what `--dim` says, `NAME=SIZE[,SIZE]...`. The error is one line; empty on success.
  std::string addDim(llvm::StringRef text);
};

/// Reads an ONNX model: one function per specialisation, with static shapes. Weights stay in their
/// files; integer and one-element initializers become constants, which `loom.folded` lists. Null on
/// failure; errors go to the context's diagnostics and name the ONNX node.
mlir::OwningOpRef<mlir::ModuleOp> importOnnx(mlir::MLIRContext &context,
                                             const std::filesystem::path &path,
                                             const ImportOptions &options = {});

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_IMPORT_H
