//===- Body.h - a kernel body as expressions --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Both emitters work on this form of a kernel: for each output the scalar expression that computes
// one element, as a graph of nodes over loop variables. Operations that only move elements are
// folded into the index expressions of loads.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_BODY_H
#define GRIDLOOM_COMPILER_CODEGEN_BODY_H

#include "compiler/codegen/Linear.h"
#include "dialects/loom/Kernels.h"
#include "dialects/plan/Plan.h"

namespace gridloom::codegen {

/// Memory a kernel reads or writes, as a flat array of elements.
struct Buffer {
  mlir::Type element;
  int64_t elements = 0;
  mlir::DenseElementsAttr constant;         // null for the kernel's inputs and outputs
  int64_t alignment = loom::kViewAlignment; // bytes
};

/// Kernel attribute: the alignment of each pointer in bytes, inputs before outputs. Absent where
/// all have that of a view.
inline constexpr llvm::StringLiteral kAlignments = "codegen.alignments";

/// A scalar computed from loop variables.
struct Node {
  enum class Kind { Load, Splat, Iota, Compute, Reduce, Choose };
  Kind kind = Kind::Load;
  mlir::Type element;
  mlir::Operation *op = nullptr;         // the operation it was built from
  llvm::SmallVector<NodeId, 3> operands; // Compute, Reduce, Choose
  unsigned buffer = 0;                   // Load
  Linear index;                          // Load, Iota; Choose: the place along the dimension
  mlir::Attribute value;                 // Splat
  dist::ReductionKind reduction{};       // Reduce
  bool isUnsigned = false;               // Reduce: of unsigned integers
  bool ignoresNan = false; // Reduce: may drop a NaN, which reaches the result another way
  AtomSet bound;           // Reduce: the loops it runs over
  llvm::SmallVector<int64_t, 3> limits; // Choose: operand i where index is below limits[i]
  AtomSet free;                         // loop variables it depends on
  double own = 0;                       // cycles for a vector of elements, roughly
  double cost = 0;                      // of the whole expression, operands included
};

/// The iteration of one dimension: [begin, begin + size), as nested loops of `factors`, major
/// first.
struct DimSpec {
  int64_t begin = 0;
  int64_t size = 1;
  llvm::SmallVector<int64_t, 2> factors;

  static DimSpec whole(int64_t size) { return {0, size, {size}}; }
};

/// The iteration space of a nest: `outer` has the output's dimensions, `inner` those that only
/// reductions run over.
struct NestSpec {
  llvm::SmallVector<DimSpec> outer;
  llvm::SmallVector<DimSpec> inner;
};

struct Store {
  unsigned buffer;
  Linear index;
  NodeId value;
};

/// The expressions of the outputs that one loop nest computes.
class Body {
public:
  /// Builds the expressions of results `outputs` of `kernel`, which have equal shapes. `spec.inner`
  /// grows as reductions need loops.
  Body(plan::KernelOp kernel, llvm::ArrayRef<unsigned> outputs, NestSpec &spec);

  AtomTable atoms;
  std::vector<Node> nodes; // operands before users
  std::vector<Buffer> buffers;
  llvm::SmallVector<Store> stores;
  AtomSet outerAtoms; // of the output's dimensions, row-major
  AtomSet innerAtoms;

  /// Iteration spaces to use instead of `spec` for simpler expressions: one with finer loops, or
  /// two parts of a dimension. Empty if there is nothing to gain.
  llvm::SmallVector<NestSpec> improve(const NestSpec &spec) const;

private:
  struct Dim {
    Linear index;
    int64_t size; // 0 for part of a dimension
    AtomSet atoms;
  };
  struct AtomPlace {
    bool outer;
    unsigned dim, factor;
  };

  Dim addDim(const DimSpec &spec, bool outer, unsigned number);
  NodeId intern(Node node);
  NodeId pull(mlir::Value value, llvm::ArrayRef<Linear> index);
  NodeId pullOp(mlir::Operation *op, llvm::ArrayRef<Linear> index);
  NodeId pullConcatenate(loom::ConcatenateOp op, llvm::ArrayRef<Linear> index);
  NodeId zero(mlir::Type element);
  NodeId pullGather(loom::GatherOp op, llvm::ArrayRef<Linear> index);
  NodeId pullPad(loom::PadOp op, llvm::SmallVector<Linear> index, size_t dim);
  NodeId pullGatherElements(loom::GatherElementsOp op, llvm::ArrayRef<Linear> index);
  NodeId pullReduce(loom::ReduceOp op, llvm::ArrayRef<Linear> index);
  NodeId pullConstant(loom::ConstantOp op, llvm::ArrayRef<Linear> index);
  llvm::SmallVector<Linear> reshapeIndex(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to,
                                         llvm::ArrayRef<Linear> index);
  NodeId load(unsigned buffer, mlir::RankedTensorType type, llvm::ArrayRef<Linear> index);
  void suggestCut(const Linear &index, int64_t limit);

  NestSpec &spec;
  llvm::SmallVector<Dim> dims;
  std::map<AtomId, AtomPlace> places;
  llvm::SmallVector<std::pair<AtomId, int64_t>> cuts;
  unsigned usedInner = 0;
  std::map<std::vector<int64_t>, NodeId> interned, pulled;
  llvm::DenseMap<mlir::Operation *, unsigned> constants;
};

/// Name of the attribute on loom.reduce that sets Node::ignoresNan.
inline constexpr llvm::StringLiteral kIgnoresNan = "codegen.ignores_nan";

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_BODY_H
