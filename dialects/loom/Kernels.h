//===- Kernels.h - which operations will be one kernel ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Cost estimates before fusion need to know which operations will share a kernel or library call,
// so that values between them cost nothing and they pay for one launch. The phases layout and fuse
// decide that (passes/fuse/FusionGroups.h, FormMatmuls, FormAttention, FormConvolutions); this is
// an approximation of their rules from operations and their readers, without strides and layouts.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_KERNELS_H
#define GRIDLOOM_DIALECTS_LOOM_KERNELS_H

#include "cluster/Machine.h"
#include "dialects/loom/Loom.h"

namespace gridloom::loom {

//===----------------------------------------------------------------------===//
// Rules that prices share with the phases that form kernels and calls
//===----------------------------------------------------------------------===//

/// The most tensors that one kernel joins: each needs its own loop nest.
inline constexpr size_t kMostPieces = 8;
/// The alignment of views that start inside a buffer, in bytes: kernels rely on no more.
inline constexpr int64_t kViewAlignment = 16;

/// The value that a float tensor repeats, if it is a splat.
std::optional<double> getFloatSplat(mlir::Value value);
/// Whether an operation works on each row of the last dimension independently.
bool isRowWise(mlir::Operation *op);
/// Whether an operation is elementwise and costs about as much as reading its result.
bool isCheap(mlir::Operation *op);
/// Whether a value depends only on the index, literals and the device's place in the mesh, through
/// few cheap operations: repeating them is faster than writing and reading the tensor.
bool isIndexArithmetic(mlir::Value value);
/// Whether an operation is a lookup that keeps the rows of the table, so that its reader can
/// compute it.
bool looksUpRows(mlir::Operation *op);
/// Whether a product sums over one dimension, and its result has `rank` - 2 batch dimensions and
/// one dimension of either side.
bool isPlainProduct(DotGeneralOp dot, int64_t rank);
/// Whether attention libraries support heads of this depth.
bool isAttentionDepth(int64_t depth);
/// Whether a step computes a value, which is then in the arena.
bool isComputed(mlir::Value value);
/// Whether libraries and kernels read `base` from an element on as fast as from the first.
bool isAligned(mlir::Value base, int64_t offset);
/// True for slices that are only addresses: consecutive elements of a computed value, from a
/// multiple of 16 bytes on.
bool isMemoryView(SliceOp slice);

/// The convolutions that a library computes; all others become products of copied columns.
enum class ConvolutionLibrary {
  None,
  Forward, ///< of f32, outside training steps, where the window is no larger than the result
  All
};
bool isLibraryConvolution(ConvolutionOp op, ConvolutionLibrary library);

/// What the libraries of a machine's devices compute in one call.
struct Libraries {
  bool attention = false; ///< in 16 bits
  ConvolutionLibrary convolutions = ConvolutionLibrary::Forward;
  bool epilogues = false; ///< of a product, residuals and activations; biases always

  bool mergesProducts = false; ///< of one operand and several weights

  /// A bound holds for all ways to split a program. Parts may be one kernel where the whole is not:
  /// dimensions of one element have no order, and padding may be in another device's part.
  bool isBound = false;

  static Libraries of(const cluster::Machine &machine, bool isBound = false);
};

/// Whether a value is never in memory: it passes from its operation to its only reader within a
/// kernel or call, or each reader's kernel computes it, as indices and masks of a lookup.
bool staysInRegisters(mlir::Value value, const Libraries &libraries);

/// Whether a kernel generated for an operation can read its operand at computed addresses, to look
/// up rows or to cut out a part: it is no part of a library call. A broadcast is computed in the
/// kernels of its readers.
bool readsAnywhere(mlir::Operation *reader, const Libraries &libraries);

/// Whether an operation is part of a library call's epilogue.
bool isEpilogue(mlir::Operation *op, const Libraries &libraries);

/// Whether a transpose takes no time only because the product before it writes its result in that
/// order. A message between the two makes it a copy.
bool isWrittenTransposed(mlir::Operation *op, const Libraries &libraries);

/// Whether a permutation of a tensor's dimensions keeps its elements in order: it moves only
/// dimensions of one element.
bool keepsOrder(llvm::ArrayRef<int64_t> permutation, llvm::ArrayRef<int64_t> shape);

/// Whether a value is transposed, directly or after slices.
bool isTransposed(mlir::Value value);

/// Where an operation is computed.
enum class Place {
  Kernel,  ///< its kernel or call starts with it
  Joined,  ///< in its reader's kernel
  Call,    ///< in a library call, as an epilogue or a part of an attention or product
  Address, ///< not at all: readers use another address
};
Place findPlace(mlir::Operation *op, const Libraries &libraries);

/// The share of an operand that a kernel or call reads from memory: each kernel repeats broadcasts
/// and scalars itself.
double getReadShare(mlir::OpOperand &operand, const Libraries &libraries);
/// The same for a result that is written: a call writes once, whatever its epilogue does.
double getWrittenShare(mlir::Value value, const Libraries &libraries);

/// How a convolution is computed that no library supports.
struct Columns {
  bool areCopied = false; ///< in their own kernel, before the product
  bool isPadded = false;  ///< the input, in an earlier kernel
  int64_t zeros = 1;      ///< elements of the product per element that is not an inserted zero
};
Columns findColumns(mlir::Operation *op, const Libraries &libraries);

/// Everything about an operation's place and operands that its cost depends on, as text: two
/// operations with equal attributes, types and texts cost the same.
std::string describePlace(mlir::Operation *op, const Libraries &libraries);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_KERNELS_H
