//===- LaneKernels.h - kernels that walk a dimension in order ---*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Most kernels are an expression per output element. Some operations are not: a step along a
// dimension needs the one before (cumulative), the data decides where to write (scatter), or
// elements are ordered (argsort). Such an operation is a kernel of its own; its rows are lanes, the
// slices along that dimension. A new one derives from LaneKernel and gets a line in makeLaneKernel.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_CPU_LANEKERNELS_H
#define GRIDLOOM_COMPILER_CODEGEN_CPU_LANEKERNELS_H

#include "compiler/codegen/Nest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::codegen {

/// Emits one operation. Its operands and result are the function's memrefs of rank 1, in order. The
/// result of a cumulative or scatter may be the memory of its first operand.
class LaneKernel {
public:
  virtual ~LaneKernel() = default;

  /// Lanes or groups of lanes, the units that are divided among threads.
  virtual int64_t getRows() const = 0;
  /// Approximate cycles of one row.
  virtual double getCycles() = 0;
  /// Scratch memory that the rows of a call use in turn: an element type and a count; none by
  /// default.
  virtual std::pair<mlir::Type, int64_t> getScratch() { return {}; }
  /// Emits the work of row number `row`. `scratch` is null where there is none.
  virtual void emitRow(mlir::OpBuilder &builder, mlir::ValueRange memories, mlir::Value row,
                       mlir::Value scratch) = 0;
};

/// The emitter of the kernel's only operation; null for kernels that are computed by element.
std::unique_ptr<LaneKernel> makeLaneKernel(plan::KernelOp kernel);

/// Emits all rows from lo to hi, the last two arguments of `function`, and fills in rows and grain.
void emitLaneKernel(mlir::func::FuncOp function, LaneKernel &kernel, KernelInfo &info);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_CPU_LANEKERNELS_H
