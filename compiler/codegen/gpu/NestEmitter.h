//===- NestEmitter.h - a nest as the code of one thread ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_GPU_NESTEMITTER_H
#define GRIDLOOM_COMPILER_CODEGEN_GPU_NESTEMITTER_H

#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/gpu/ThreadPlan.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace gridloom::codegen {

/// Emits one nest into a function. There is a method per kind of plan, each in a file of its own.
class NestEmitter {
public:
  /// `firstBlock` is the nest's first block in the kernel's grid; `isOnly` says that the kernel has
  /// no other nest. `memories` are the buffers of its body.
  NestEmitter(mlir::gpu::GPUFuncOp function, const Nest &nest, const ThreadPlan &plan,
              mlir::OpBuilder &builder, llvm::ArrayRef<mlir::Value> memories, int64_t firstBlock,
              bool isOnly);
  void emit();

private:
  void emitElements();
  void emitVectors(Context &outer, mlir::Value vector);
  void emitRow();
  void emitColumn();
  void emitProduct();
  struct ProductPlace;
  struct ProductStep;
  std::unique_ptr<ProductStep> openStep(Context &outer, mlir::Value base, int64_t offset,
                                        int64_t rows);
  void addProducts(Context &outer, llvm::ArrayRef<std::unique_ptr<ProductStep>> steps,
                   llvm::SmallVectorImpl<mlir::Value> &sums);
  llvm::SmallVector<mlir::Value> sumProducts(Context &lanes, const ProductPlace &at);
  mlir::Value addExchanged(mlir::Value value, int32_t mask);
  std::function<mlir::Value()> shareSums(Context &lanes, const ProductPlace &at,
                                         llvm::ArrayRef<mlir::Value> sums, int64_t parts);
  void emitTranspose();
  struct TilePlace;
  void fillTiles(Context &outer, const TilePlace &place, int64_t row,
                 llvm::ArrayRef<mlir::Value> tiles);
  void storeTiles(Context &outer, const TilePlace &place, int64_t row,
                  llvm::ArrayRef<mlir::Value> tiles);
  void setTileLoop(Context &context, const Loop &loop, mlir::Value base, int64_t offset,
                   mlir::Value &isInside);

  mlir::Value index(int64_t value) { return emitter.constantIndex(value); }
  /// value * factor + offset. The operands are negative only in blocks of other nests.
  mlir::Value scale(mlir::Value value, int64_t factor, mlir::Value offset = {});
  mlir::Value isBelow(mlir::Value value, int64_t limit);
  mlir::Value least(mlir::Value value, int64_t limit);
  /// The number of the block along x, y or z, or of the thread in its block.
  mlir::Value blockId(mlir::gpu::Dimension dimension);
  mlir::Value threadId();
  /// Splits the number `item` into the variables of `loops` and adds them to `context`.
  void takeLoops(Context &context, llvm::ArrayRef<const Loop *> loops, mlir::Value item);
  /// The loops over outputs except these two.
  llvm::SmallVector<const Loop *> otherLoops(const Loop *first, const Loop *second) const;
  /// Continues inside a branch that is taken if `condition` holds.
  void guard(mlir::Value condition);

  mlir::gpu::GPUFuncOp function;
  const Nest &nest;
  const ThreadPlan &plan;
  mlir::OpBuilder &builder;
  mlir::Location loc;
  int64_t firstBlock;
  bool isOnly;
  BodyEmitter emitter;
  Context root;
};

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_GPU_NESTEMITTER_H
