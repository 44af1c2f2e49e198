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

  /// Whether maxima and minima record which of two equal operands counts (loom.ties), so that
  /// derivatives are those of the activation functions.
  bool marksTies = false;

  /// Whether the program will be trained. Each specialisation then has two functions: entry
  /// `train_step` is the model as written, where results with `loom.updates` are the next values of
  /// running statistics; entry `main` is the model in evaluation mode. Float initializers of one
  /// element and rank 1 or more stay weights.
  bool isTraining = false;
  /// With `isTraining`: functions of entry `train_step` compute one of this many parts of the
  /// batch, the dimension that comes first in all inputs with a named one; `loom.batch` records it.
  int64_t microbatches = 1;
  /// Imports operators in training mode in evaluation mode.
  bool isInference = false;

  /// Pairs of an input and the output that is its value in the next call: names in which one `*`
  /// stands for any text, the same in both.
  std::vector<std::pair<std::string, std::string>> states;

  /// Files of external weights may be missing; values that the import itself needs must exist.
  bool mayLackWeights = false;

  /// Adds an argument of `--state`, `INPUT=OUTPUT`. The error is one line; empty on success.
  std::string addState(llvm::StringRef text);
  /// Adds an argument of `--dim`, `NAME=SIZE[,SIZE]...`. The error is one line; empty on success.
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
