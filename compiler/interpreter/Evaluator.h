//===- Evaluator.h - operations of one device -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_EVALUATOR_H
#define GRIDLOOM_COMPILER_INTERPRETER_EVALUATOR_H

#include "compiler/interpreter/Weights.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"

namespace gridloom {

using TensorList = llvm::SmallVector<loom::HostTensor>;

/// Evaluates what needs no other device: loom operations, kernels, library calls, weights.
class Evaluator {
public:
  struct Options {
    /// Floats are elements of a finite field: sums do not depend on their order.
    bool exact = false;
    /// Indices outside a gather's input give poison: rows of padding have such indices.
    bool poisonOutside = false;
  };

  Evaluator(mlir::ModuleOp module, WeightProvider &weights, Options options)
      : symbols(module), weights(weights), options(options) {}

  /// The results of one operation. Fails with a diagnostic on it.
  llvm::FailureOr<TensorList> evaluate(mlir::Operation *op,
                                       llvm::ArrayRef<loom::HostTensor> operands);
  /// The operands of the block's terminator.
  llvm::FailureOr<TensorList> evaluateBlock(mlir::Block &block,
                                            llvm::ArrayRef<loom::HostTensor> arguments);
  /// The whole tensor a get_weight is a part of; derived tensors are computed once.
  llvm::FailureOr<loom::HostTensor> getGlobalWeight(loom::GetWeightOp op);

  bool isExact() const { return options.exact; }

private:
  llvm::FailureOr<TensorList> evaluateMatmul(plan::MatmulOp op,
                                             llvm::ArrayRef<loom::HostTensor> operands);
  llvm::FailureOr<TensorList> evaluateConvolution(plan::ConvolutionOp op,
                                                  llvm::ArrayRef<loom::HostTensor> operands);
  llvm::FailureOr<TensorList> evaluateAttention(plan::AttentionOp op,
                                                llvm::ArrayRef<loom::HostTensor> operands);

  mlir::SymbolTable symbols;
  WeightProvider &weights;
  Options options;
  llvm::StringMap<loom::HostTensor> globals;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_EVALUATOR_H
