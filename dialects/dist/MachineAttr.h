//===- MachineAttr.h - the machine that costs depend on, in IR --*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_MACHINEATTR_H
#define GRIDLOOM_DIALECTS_DIST_MACHINEATTR_H

#include "cluster/Machine.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <optional>

namespace gridloom::dist {

/// On the module, from the shard phase on: the machine that the program is split for. All later
/// phases read it, so that compiling a dump further gives the same result.
inline constexpr llvm::StringLiteral kCluster = "dist.cluster";

mlir::DictionaryAttr makeMachineAttr(mlir::MLIRContext *context, const cluster::Machine &machine);
/// Nullopt if the attribute does not describe a machine.
std::optional<cluster::Machine> parseMachineAttr(mlir::Attribute attr);

/// The number type in which tensors of the element type are computed.
cluster::NumberType getNumberType(mlir::Type element);

/// The module's machine, or if it names none, CPU ranks of one host. Never null.
std::shared_ptr<const cluster::Machine> getMachine(mlir::ModuleOp module);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_MACHINEATTR_H
