//===- Nest.h - loop nests of a kernel --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_NEST_H
#define GRIDLOOM_COMPILER_CODEGEN_NEST_H

#include "compiler/codegen/Body.h"
#include "compiler/codegen/Codegen.h"

#include <memory>

namespace gridloom::codegen {

/// Atoms that one loop runs over, major first: the whole body uses them as one collapsed index.
struct Loop {
  llvm::SmallVector<AtomId, 2> atoms;
  int64_t extent = 1;
  bool contains(AtomId atom) const { return llvm::is_contained(atoms, atom); }
};

/// A loop nest that computes some outputs, or a part of them.
struct Nest {
  std::unique_ptr<Body> body;
  llvm::SmallVector<Loop> outer; // over the outputs, outermost first
  llvm::SmallVector<Loop> inner; // that only reductions need
  /// Index in `outer` of the loop over contiguous output elements; -1 if there is none.
  int contiguous = -1;
  /// Reductions read contiguous elements and neighbouring outputs do not: the reductions' loops are
  /// vectorised instead of the contiguous one.
  bool reducesContiguous = false;

  const Loop &loopOf(AtomId atom) const;
};

/// Inserts before `kernel` a copy whose composites are replaced by simpler operations. Emits an
/// error and fails if an operation or type has no code.
mlir::FailureOr<plan::KernelOp> prepareKernel(plan::KernelOp kernel);

/// Makes a kernel compute f16, bf16 and 8-bit floats in f32 and round them where it stores them.
void widenBody(plan::KernelOp kernel);

/// The nests of a prepared kernel. Each output element is stored by exactly one.
llvm::SmallVector<Nest> buildNests(plan::KernelOp kernel);

/// The skeleton of the loops. Never Column, Product or Lanes, which the emitters choose.
plan::Skeleton classify(llvm::ArrayRef<Nest> nests);

/// Fills symbol, numPointers, flops, bytes, inPlace and, where there are nests, skeleton.
KernelInfo describeKernel(plan::KernelOp kernel, llvm::ArrayRef<Nest> nests);

/// "kernel NAME (ONNX nodes a, b)" for messages.
std::string kernelTitle(plan::KernelOp kernel);

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_NEST_H
