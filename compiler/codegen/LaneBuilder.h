//===- LaneBuilder.h - loops over memory, written directly ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_LANEBUILDER_H
#define GRIDLOOM_COMPILER_CODEGEN_LANEBUILDER_H

#include "compiler/codegen/BodyEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::codegen {

/// The type for sums of elements: f32 for narrower floats.
mlir::Type getWideType(mlir::Type element);

/// A tensor's shape as [outer, size, inner] around one dimension.
struct Lanes {
  int64_t outer, size, inner;

  Lanes(mlir::RankedTensorType type, int64_t dim);
  int64_t count() const { return outer * inner; }
};

/// Shorthand for scf, memref and arith. Numbers are of type index unless said otherwise.
struct LaneBuilder {
  mlir::OpBuilder &builder;
  mlir::Location loc;

  mlir::Value index(int64_t value);
  mlir::Value literal(mlir::TypedAttr value);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, int64_t y);
  mlir::Value min(mlir::Value x, mlir::Value y);
  /// Quotient and remainder.
  std::pair<mlir::Value, mlir::Value> divide(mlir::Value x, int64_t y);
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value x, mlir::Value y);
  mlir::Value both(mlir::Value x, mlir::Value y);
  mlir::Value select(mlir::Value predicate, mlir::Value x, mlir::Value y);
  /// A signed integer as an index.
  mlir::Value toIndex(mlir::Value value);

  /// for (i = begin; i < end; i += step)
  void loop(mlir::Value begin, mlir::Value end, llvm::function_ref<void(mlir::Value)> body,
            int64_t step = 1);
  /// The same with loop-carried values, which `body` returns.
  llvm::SmallVector<mlir::Value>
  fold(mlir::Value begin, mlir::Value end, int64_t step, mlir::ValueRange inits,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body);
  /// while (condition(values)) values = body(values); returns the last values.
  llvm::SmallVector<mlir::Value>
  repeat(mlir::ValueRange inits, llvm::function_ref<mlir::Value(mlir::ValueRange)> condition,
         llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::ValueRange)> body);
  void when(mlir::Value condition, llvm::function_ref<void()> body);
  /// The result of `body` if `condition` holds, else `other`.
  mlir::Value whenElse(mlir::Value condition, llvm::function_ref<mlir::Value()> body,
                       mlir::Value other);

  /// Loads and stores elements of a tensor's type: in memory i1 is a byte and integers are
  /// signless.
  mlir::Value load(mlir::Value memory, mlir::Value at, mlir::Type element);
  void store(mlir::Value value, mlir::Value memory, mlir::Value at);
  mlir::Value fromMemory(mlir::Value value, mlir::Type element);
  mlir::Value toMemory(mlir::Value value);
  mlir::Value widen(mlir::Value value);
  mlir::Value narrow(mlir::Value value, mlir::Type element);
  /// Combines two values of a tensor's type `element`.
  mlir::Value combine(dist::ReductionKind kind, mlir::Value x, mlir::Value y, mlir::Type element);
  /// Stores `value` of the tensor's type `element`, or with a reduction its combination with the
  /// element in memory.
  void update(std::optional<dist::ReductionKind> reduction, mlir::Value value, mlir::Value memory,
              mlir::Value at, mlir::Type element);

  mlir::Value pointer(mlir::Value memory);
  mlir::Value allocate(mlir::Type element, int64_t count);
  mlir::Value allocateOnStack(mlir::func::FuncOp function, mlir::Type element, int64_t count);
  void free(mlir::Value memory);
};

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_LANEBUILDER_H
