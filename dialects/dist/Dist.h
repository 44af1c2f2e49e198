//===- Dist.h - the dist dialect --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_DIST_H
#define GRIDLOOM_DIALECTS_DIST_DIST_H

#include "dialects/dist/ShardingRule.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/dist/DistDialect.h.inc"
#include "dialects/dist/DistInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/dist/DistAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/dist/DistTypes.h.inc"

#define GET_OP_CLASSES
#include "dialects/dist/DistOps.h.inc"

namespace gridloom::dist {

/// Attribute names; the dialect's description explains them.
inline constexpr llvm::StringLiteral kShardings = "dist.shardings";
inline constexpr llvm::StringLiteral kOrigins = "dist.origins";
/// On a weight that a strategy tried to split, while shardings are chosen: the axis, and the
/// operation or result that prevented it.
inline constexpr llvm::StringLiteral kObstacle = "dist.obstacle";
/// On an operation that computes a part of its ONNX node: its result is not the node's.
inline constexpr llvm::StringLiteral kPart = "dist.part";
inline constexpr llvm::StringLiteral kSharding = "dist.sharding";
inline constexpr llvm::StringLiteral kOrigin = "dist.origin";
inline constexpr llvm::StringLiteral kSplits = "dist.splits";
inline constexpr llvm::StringLiteral kStage = "dist.stage";
inline constexpr llvm::StringLiteral kMicrobatches = "dist.microbatches";
inline constexpr llvm::StringLiteral kStageAxis = "dist.stage_axis";
inline constexpr llvm::StringLiteral kBecause = "dist.because";

/// The module's mesh, or null.
MeshOp getMesh(mlir::ModuleOp module);

/// True for collectives, sends and receives.
bool isCommunication(mlir::Operation *op);

/// Why a collective or transfer exists, for reports: who needs which data. Empty if no cause was
/// given.
llvm::StringRef getCause(mlir::Operation *op);
/// Adds a cause to those of the operation, unless it has it already.
void addCause(mlir::Operation *op, llvm::StringRef because);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_DIST_H
