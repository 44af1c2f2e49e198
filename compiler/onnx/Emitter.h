//===- Emitter.h - builds loom operations the way ONNX means them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_EMITTER_H
#define GRIDLOOM_COMPILER_ONNX_EMITTER_H

#include "dialects/loom/Loom.h"

#include "mlir/IR/Builders.h"

namespace gridloom::onnx_import {

inline mlir::RankedTensorType getTensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}
inline llvm::ArrayRef<int64_t> getShape(mlir::Value value) {
  return getTensorType(value).getShape();
}

/// Builds loom operations and folds constants, so that shape arithmetic disappears during the
/// import. A null operand gives a null result: an error is reported once, where it arises, and
/// importing a node fails if its result is null.
class Emitter {
public:
  /// `what` begins every error, e.g. "Reshape '/layer/Reshape'".
  Emitter(mlir::OpBuilder &builder, mlir::Location loc, std::string what)
      : builder(builder), loc(loc), what(std::move(what)) {}

  mlir::InFlightDiagnostic error() const { return mlir::emitError(loc) << what << ": "; }
  mlir::MLIRContext *getContext() const { return builder.getContext(); }
  mlir::OpBuilder &getBuilder() const { return builder; }
  mlir::Location getLoc() const { return loc; }
  /// The prefix of every error.
  const std::string &getName() const { return what; }

  //===--------------------------------------------------------------------===//
  // Constants
  //===--------------------------------------------------------------------===//

  mlir::Value constant(const loom::HostTensor &tensor);
  /// A one-dimensional or, without dimensions, scalar i64 constant.
  mlir::Value ints(llvm::ArrayRef<int64_t> values);
  /// Every element of `type` is `number`.
  mlir::Value splat(mlir::RankedTensorType type, double number);
  /// Every element is `number`, of the shape and type of `like`.
  mlir::Value splatLike(mlir::Value like, double number);

  //===--------------------------------------------------------------------===//
  // Elementwise; operands are broadcast as numpy does
  //===--------------------------------------------------------------------===//

  template <typename OpT> mlir::Value unary(mlir::Value x) {
    return x ? emit<OpT>(x.getType(), x) : x;
  }
  template <typename OpT> mlir::Value binary(mlir::Value x, mlir::Value y) {
    if (!x || !y || !broadcastTogether({&x, &y}))
      return {};
    return emit<OpT>(x.getType(), x, y);
  }
  /// The other operand is `number` in x's type.
  template <typename OpT> mlir::Value binary(mlir::Value x, double number) {
    return x ? binary<OpT>(x, splatLike(x, number)) : x;
  }
  mlir::Value compare(loom::Direction direction, mlir::Value x, mlir::Value y);
  mlir::Value compare(loom::Direction direction, mlir::Value x, double number);
  mlir::Value select(mlir::Value predicate, mlir::Value onTrue, mlir::Value onFalse);
  /// `saturate` matters for 8-bit floats: whether numbers that are too large become their largest.
  mlir::Value convert(mlir::Value x, mlir::Type elementType, bool saturate = true);
  /// 16-bit floats as f32, in which sums and squares neither overflow nor vanish; other elements
  /// stay.
  mlir::Value widen(mlir::Value x);

  //===--------------------------------------------------------------------===//
  // Moves
  //===--------------------------------------------------------------------===//

  /// The shape numpy's broadcasting gives; an error if there is none.
  std::optional<llvm::SmallVector<int64_t>> broadcastShapes(llvm::ArrayRef<int64_t> a,
                                                            llvm::ArrayRef<int64_t> b) const;
  /// Dimensions align at the end.
  mlir::Value broadcastTo(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  /// Dimension i of x becomes dims[i].
  mlir::Value broadcast(mlir::Value x, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims);
  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> permutation);
  /// Elements start, start + stride, ... below limit along `dim`.
  mlir::Value slice(mlir::Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  mlir::Value concatenate(llvm::ArrayRef<mlir::Value> values, int64_t dim);
  /// Indices are not negative.
  mlir::Value gather(mlir::Value x, mlir::Value indices, int64_t dim);
  /// The index along `dim`.
  mlir::Value iota(mlir::RankedTensorType type, int64_t dim);

  //===--------------------------------------------------------------------===//
  // Contractions and reductions
  //===--------------------------------------------------------------------===//

  /// numpy.matmul.
  mlir::Value matmul(mlir::Value x, mlir::Value y);
  mlir::Value dotGeneral(mlir::Value x, mlir::Value y, llvm::ArrayRef<int64_t> xBatch,
                         llvm::ArrayRef<int64_t> yBatch, llvm::ArrayRef<int64_t> xContract,
                         llvm::ArrayRef<int64_t> yContract);
  /// `dims` increase strictly; they become 1 if `keepDims`.
  mlir::Value reduce(mlir::Value x, dist::ReductionKind kind, llvm::ArrayRef<int64_t> dims,
                     bool keepDims);
  mlir::Value mean(mlir::Value x, llvm::ArrayRef<int64_t> dims, bool keepDims);
  /// reduce, then repeated over x's shape.
  mlir::Value reduceLike(mlir::Value x, dist::ReductionKind kind, llvm::ArrayRef<int64_t> dims);

  /// x - max - log(sum(exp(x - max))) along `dim`.
  mlir::Value logSoftmax(mlir::Value x, int64_t dim);

  /// Creates an operation and folds it to a constant where possible.
  template <typename OpT, typename... Args> mlir::Value emit(mlir::Type type, Args &&...args) {
    if (!checkSize(type))
      return {};
    return fold(OpT::create(builder, loc, type, std::forward<Args>(args)...));
  }

private:
  bool checkSize(mlir::Type type) const;
  bool broadcastTogether(llvm::ArrayRef<mlir::Value *> values);
  mlir::Value fold(mlir::Operation *op);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  std::string what;
};

/// Whether a tensor of this shape could be in some machine's memory and has at most rt::kMaxRank
/// dimensions.
bool isReasonable(llvm::ArrayRef<int64_t> shape);
/// The most entries of a table that the importer computes itself, such as the places that padding
/// reads.
inline constexpr int64_t kMostTableEntries = int64_t(1) << 24;
/// "[2, 3]"
std::string toString(llvm::ArrayRef<int64_t> shape);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_EMITTER_H
