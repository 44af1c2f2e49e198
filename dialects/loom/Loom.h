//===- Loom.h - the loom dialect --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_LOOM_LOOM_H
#define GRIDLOOM_DIALECTS_LOOM_LOOM_H

#include "dialects/dist/Dist.h"
#include "dialects/loom/HostTensor.h"

#include "dialects/loom/LoomDialect.h.inc"
#include "dialects/loom/LoomEnums.h.inc"

namespace gridloom::loom {

/// One operation per output element.
int64_t elementwiseFlops(mlir::Operation *op);
/// Bytes of a tensor in memory; i1 takes one byte per element.
int64_t getByteSize(mlir::Type tensor);

/// An elementwise operation of at most that many cycles is computed again rather than stored
/// (KernelBodyInterface::getScalarCycles).
inline constexpr int64_t kCheapCycles = 4;
/// Cycles of a loom.convert on a vector of 16 f32; 8-bit floats are converted by integer
/// arithmetic.
int64_t getConversionCycles(mlir::Value input, mlir::Value output);
bool isFloatTensor(mlir::Value value);

/// How rounding to 16 bits harms an operation (LoomBase.td says what each trait promises).
template <typename OpT> class Bounded : public mlir::OpTrait::TraitBase<OpT, Bounded> {};
template <typename OpT>
class AmplifiesError : public mlir::OpTrait::TraitBase<OpT, AmplifiesError> {};
template <typename OpT> class ExceedsHalf : public mlir::OpTrait::TraitBase<OpT, ExceedsHalf> {};
/// layer_norm and the like (LoomBase.td).
template <typename OpT>
class NormalizesRows : public mlir::OpTrait::TraitBase<OpT, NormalizesRows> {};

/// True for operations that step along a dimension in order, scatter, or move everything: each is
/// its own kernel.
bool isLaneOp(mlir::Operation *op);

/// Attribute names; the dialect's description explains them.
inline constexpr llvm::StringLiteral kEntry = "loom.entry";
inline constexpr llvm::StringLiteral kDims = "loom.dims";
inline constexpr llvm::StringLiteral kName = "loom.name";
inline constexpr llvm::StringLiteral kDimNames = "loom.dim_names";
/// On an input that is used as indices, {node, size, first, last}: a number from `first` to `last`
/// is added to it, and the sum indexes a dimension of `size`.
inline constexpr llvm::StringLiteral kIndices = "loom.indices";
inline constexpr llvm::StringLiteral kGlobalType = "loom.global_type";
inline constexpr llvm::StringLiteral kModel = "loom.model";
inline constexpr llvm::StringLiteral kPrecision = "loom.precision";
inline constexpr llvm::StringLiteral kFolded = "loom.folded";
inline constexpr llvm::StringLiteral kBody = "loom.body";
inline constexpr llvm::StringLiteral kState = "loom.state";
inline constexpr llvm::StringLiteral kInit = "loom.init";
inline constexpr llvm::StringLiteral kTraining = "loom.training";
inline constexpr llvm::StringLiteral kUpdates = "loom.updates";

/// The name of an operation's ONNX node; several are joined with " + ".
std::string getNodeName(mlir::Location loc);
/// "node 'NAME': " and the text of `diagnostic`. Only the text if there is no name, if the name is
/// `whole`, the model's, or if the text already names the node, or an input, output or state that
/// the name is of.
std::string describeWithNode(const mlir::Diagnostic &diagnostic, llvm::StringRef whole = "");

} // namespace gridloom::loom

#include "dialects/loom/LoomInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/loom/LoomAttrs.h.inc"

#define GET_OP_CLASSES
#include "dialects/loom/LoomOps.h.inc"

#endif // GRIDLOOM_DIALECTS_LOOM_LOOM_H
