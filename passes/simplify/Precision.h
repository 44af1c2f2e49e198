//===- Precision.h - values that need 32 bits -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// f32 values are stored in 16 bits, except where that would change more than the last digits:
// integers held as floats and what is computed from them, sums over many elements, numbers beyond
// the type's range, and operands of comparisons, rounding and trigonometric functions.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY_PRECISION_H
#define GRIDLOOM_PASSES_SIMPLIFY_PRECISION_H

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom {

/// Decides which f32 values of a module stay f32. Values without facts are stored in the narrow
/// type.
class PrecisionAnalysis {
public:
  /// `narrow` is f16 or bf16; null if only contractions are asked about (tf32).
  PrecisionAnalysis(mlir::ModuleOp module, mlir::FloatType narrow);

  /// Whether the value stays f32.
  bool isWide(mlir::Value value) const;
  /// Whether a contraction or convolution works on integers held as floats, which need all bits.
  bool isFull(mlir::Operation *op) const { return full.contains(op); }
  /// Whether an operation computes in f32, because an operand or its result stays f32.
  bool computesWide(mlir::Operation *op) const;

  /// Whether a state is kept in the narrow type.
  bool isNarrowState(mlir::StringAttr state) const { return narrowStates.contains(state); }

  /// Whether a loop or branch takes an operand as f32.
  bool takesWide(mlir::OpOperand &use) const;

  /// Operations where a region of f32 begins, and why, in program order.
  llvm::ArrayRef<std::pair<mlir::Operation *, llvm::StringRef>> getReasons() const {
    return reasons;
  }

private:
  struct Facts {
    bool wide = false;
    bool sticky = false;  ///< passes on to results whose operands are all sticky or weights
    bool counted = false; ///< sticky because it holds integers
    bool large = false;   ///< may exceed the narrow type's range
    bool exact = false;   ///< every reader needs it unrounded
  };

  void findNarrowStates(mlir::ModuleOp module);
  void analyse(mlir::ModuleOp module);
  bool keepsWide(mlir::func::FuncOp function, unsigned result) const;
  void visitForward(mlir::func::FuncOp function);
  void visitForward(mlir::Operation *op);
  void visitControl(mlir::Operation *op);
  void visitBackward(mlir::func::FuncOp function);
  Facts derive(mlir::Operation *op);
  bool startsRegion(mlir::Operation *op, Facts &facts);
  void note(mlir::Operation *op, llvm::StringRef reason);
  bool wantsExact(mlir::OpOperand &use) const;
  bool isSum(mlir::Operation *op) const;
  bool isBeyondRange(mlir::Value constant) const;
  Facts lookup(mlir::Value value) const { return facts.lookup(value); }

  mlir::FloatType narrow;
  llvm::DenseSet<mlir::StringAttr> narrowStates;
  llvm::DenseMap<mlir::Value, Facts> facts;
  llvm::DenseSet<mlir::Operation *> full;
  llvm::SmallVector<std::pair<mlir::Operation *, llvm::StringRef>> reasons;
};

/// True for tensors of f32.
bool isF32Tensor(mlir::Value value);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SIMPLIFY_PRECISION_H
