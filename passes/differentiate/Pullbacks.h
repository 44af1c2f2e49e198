//===- Pullbacks.h - the table of pullbacks ---------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A pullback is a function
//
//   void pullBack(loom::MultiplyOp op, Term ct, Adjoints &to)
//
// that adds to the cotangents of the operands, given that of the result. x and y are operand and
// result; the formulas are those of Griewank and Walther 2008, table 2.3, and of sources that each
// file names.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_PULLBACKS_H
#define GRIDLOOM_PASSES_DIFFERENTIATE_PULLBACKS_H

#include "dialects/loom/Derivatives.h"
#include "passes/differentiate/Adjoints.h"

namespace gridloom {

/// Makes `pull` the DerivativeInterface of operation class Op. `obstacle`, if given, says why some
/// forms have no derivative.
template <typename Op, auto pull, auto obstacle = nullptr>
struct PullbackModel
    : public DerivativeInterface::ExternalModel<PullbackModel<Op, pull, obstacle>, Op> {
  void pullBack(mlir::Operation *op, mlir::Value cotangent, Adjoints &adjoints) const {
    pull(llvm::cast<Op>(op), adjoints.term(cotangent), adjoints);
  }
  llvm::StringRef findObstacle(mlir::Operation *op) const {
    if constexpr (std::is_same_v<decltype(obstacle), std::nullptr_t>)
      return "";
    else
      return obstacle(llvm::cast<Op>(op));
  }
  bool isFlat(mlir::Operation *op) const { return op->hasAttr(loom::kFlat); }
};

/// For operations whose results change in steps only.
template <typename Op>
struct FlatModel : public DerivativeInterface::ExternalModel<FlatModel<Op>, Op> {
  void pullBack(mlir::Operation *, mlir::Value, Adjoints &) const {}
  llvm::StringRef findObstacle(mlir::Operation *) const { return ""; }
  bool isFlat(mlir::Operation *) const { return true; }
};

/// Gives operation class Op its PullbackModel.
template <typename Op, auto pull, auto obstacle = nullptr>
void attachPullback(mlir::MLIRContext &context) {
  Op::template attachInterface<PullbackModel<Op, pull, obstacle>>(context);
}

/// The type and the shape of a tensor.
inline mlir::RankedTensorType typeOf(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return typeOf(value).getShape(); }

void attachElementwisePullbacks(mlir::MLIRContext &context);
void attachMovePullbacks(mlir::MLIRContext &context);
void attachIndexingPullbacks(mlir::MLIRContext &context);
void attachContractionPullbacks(mlir::MLIRContext &context);
void attachWindowPullbacks(mlir::MLIRContext &context);

/// Gives loom operations their pullbacks, in contexts that load the dialect from `registry`.
void registerPullbacks(mlir::DialectRegistry &registry);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_PULLBACKS_H
