//===- Term.h - formulas of tensors -----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_DIFFERENTIATE_TERM_H
#define GRIDLOOM_PASSES_DIFFERENTIATE_TERM_H

#include "dialects/loom/Loom.h"

#include "mlir/IR/Builders.h"

namespace gridloom {

/// A tensor in a formula. Builds loom operations at the builder's place, all at one location.
/// Operands of an operator have one type; numbers are repeated to the type of the other operand.
class Term {
public:
  Term(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value)
      : builder(&builder), loc(loc), value(value) {}

  operator mlir::Value() const { return value; }
  mlir::RankedTensorType getType() const {
    return llvm::cast<mlir::RankedTensorType>(value.getType());
  }
  llvm::ArrayRef<int64_t> getShape() const { return getType().getShape(); }
  int64_t getRank() const { return getType().getRank(); }

  /// Another value in the same formula.
  Term with(mlir::Value other) const { return {*builder, loc, other}; }
  /// `number` in every element, with this type or `type`.
  Term splat(double number) const { return splat(getType(), number); }
  Term splat(mlir::RankedTensorType type, double number) const;
  /// The index along `dim`, an i64 tensor of `shape`.
  Term iota(llvm::ArrayRef<int64_t> shape, int64_t dim) const;

  template <typename Op> Term apply() const {
    return with(Op::create(*builder, loc, getType(), value));
  }
  template <typename Op> Term apply(mlir::Value other) const {
    return with(Op::create(*builder, loc, getType(), value, other));
  }
  /// An operation with operands and attributes of its own.
  template <typename Op, typename... Args> Term emit(mlir::Type type, Args &&...args) const {
    return with(Op::create(*builder, loc, type, std::forward<Args>(args)...));
  }

  Term compare(loom::Direction direction, mlir::Value other) const;
  Term compare(loom::Direction direction, double other) const {
    return compare(direction, splat(other));
  }
  /// For an i1 tensor: `chosen` where it is true, else `otherwise`.
  Term select(mlir::Value chosen, mlir::Value otherwise) const;
  /// This where `condition` is true, else zero.
  Term where(Term condition) const { return condition.select(value, splat(0)); }

  Term convert(mlir::Type element) const;
  Term reshape(llvm::ArrayRef<int64_t> shape) const;
  Term transpose(llvm::ArrayRef<int64_t> permutation) const;
  Term reverse(llvm::ArrayRef<int64_t> dims) const;
  Term sum(llvm::ArrayRef<int64_t> dims) const;
  /// Repeated to `shape`, with this tensor's dimensions as its dimensions `dims`.
  Term broadcast(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims) const;
  /// Repeated along the dimensions `dims` of `shape`, which this lacks.
  Term repeat(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims) const;
  Term slice(llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> limits,
             llvm::ArrayRef<int64_t> strides) const;
  /// Elements [start, stop) of a dimension.
  Term slice(int64_t dim, int64_t start, int64_t stop) const;
  /// Adds zeros around and between the elements; negative numbers take elements off afterwards.
  Term pad(llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high,
           llvm::ArrayRef<int64_t> interior) const;

private:
  mlir::OpBuilder *builder;
  mlir::Location loc;
  mlir::Value value;
};

inline Term operator+(const Term &a, const Term &b) { return a.apply<loom::AddOp>(b); }
inline Term operator-(const Term &a, const Term &b) { return a.apply<loom::SubtractOp>(b); }
inline Term operator*(const Term &a, const Term &b) { return a.apply<loom::MultiplyOp>(b); }
inline Term operator/(const Term &a, const Term &b) { return a.apply<loom::DivideOp>(b); }
inline Term operator-(const Term &a) { return a.apply<loom::NegateOp>(); }
inline Term operator+(const Term &a, double b) { return a + a.splat(b); }
inline Term operator-(const Term &a, double b) { return a - a.splat(b); }
inline Term operator-(double a, const Term &b) { return b.splat(a) - b; }
inline Term operator*(const Term &a, double b) { return a * a.splat(b); }

} // namespace gridloom

#endif // GRIDLOOM_PASSES_DIFFERENTIATE_TERM_H
