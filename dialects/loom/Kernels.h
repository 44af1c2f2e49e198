//===- Kernels.h - which operations will be one kernel ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What prices say before anything is fused: which operations will share a kernel or a call of a
// library, so that what passes between them costs nothing and one launch is paid for all. The
// phases layout and fuse decide it (passes/fuse/FusionGroups.h, FormMatmuls, FormAttention,
// FormConvolutions); here are their rules as far as operations and their readers tell, without
// strides and layouts.
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

/// Tensors that one kernel joins at most: each is a loop nest of its own.
inline constexpr size_t kMostPieces = 8;

/// The number that a value of floats repeats, if it is one.
std::optional<double> getFloatSplat(mlir::Value value);
/// Whether an operation works on each row of the last dimension on its own.
bool isRowWise(mlir::Operation *op);
/// Whether a product has one dimension of either side in its result behind `rank` - 2 of the batch,
/// and sums over one.
bool isPlainProduct(DotGeneralOp dot, int64_t rank);
/// Whether libraries of attention have heads of this depth.
bool isAttentionDepth(int64_t depth);

/// Which convolutions a library does as they are: all others are products of copied columns.
enum class ConvolutionLibrary {
  None,
  Forward, ///< of f32, outside training steps, where the window is no larger than the result
  All
};
bool isLibraryConvolution(ConvolutionOp op, ConvolutionLibrary library);

/// What the libraries of a machine's devices do in one call.
struct Libraries {
  bool attention = false; ///< in 16 bits
  ConvolutionLibrary convolutions = ConvolutionLibrary::Forward;
  bool epilogues = false; ///< of a product, residuals and activations; biases always

  bool mergesProducts = false; ///< of one operand and several weights

  /// A bound is of all ways to split a program, parts of which may be one kernel where the whole is
  /// not: dimensions of one element have no order, and padding may be another device's part.
  bool isBound = false;

  static Libraries of(const cluster::Machine &machine, bool isBound = false);
};

/// Whether a value passes from the operation that makes it to its only reader within a kernel or
/// call.
bool staysInRegisters(mlir::Value value, const Libraries &libraries);

/// Whether a permutation of a tensor's dimensions leaves its elements in order: only dimensions of
/// one element change places.
bool keepsOrder(llvm::ArrayRef<int64_t> permutation, llvm::ArrayRef<int64_t> shape);

/// Whether a value is transposed, by itself or after slices.
bool isTransposed(mlir::Value value);

/// What of an operation is done where.
enum class Place {
  Kernel,  ///< its kernel or call starts with it
  Joined,  ///< in the kernel of what reads it
  Call,    ///< in a library's call, as an epilogue, a part of an attention or of a product
  Address, ///< nowhere: those who read it read elsewhere
};
Place findPlace(mlir::Operation *op, const Libraries &libraries);

/// Of what a kernel or call reads for an operand, the share that lies in memory: a broadcast is
/// repeated in each kernel that reads it, and so is a number.
double getReadShare(mlir::OpOperand &operand, const Libraries &libraries);
/// The same of a result that is written: a call writes once, whatever its epilogue does.
double getWrittenShare(mlir::Value value, const Libraries &libraries);

/// How a convolution is done that no library has.
struct Columns {
  bool areCopied = false; ///< in a kernel of their own, then there is a product
  bool isPadded = false;  ///< the input, in a kernel before
  int64_t zeros = 1;      ///< elements of the product for each that is not an inserted zero
};
Columns findColumns(mlir::Operation *op, const Libraries &libraries);

/// Whatever of an operation's place and operands its price depends on, as text: two with equal
/// attributes, types and texts cost the same.
std::string describePlace(mlir::Operation *op, const Libraries &libraries);

} // namespace gridloom::loom

#endif // GRIDLOOM_DIALECTS_LOOM_KERNELS_H
