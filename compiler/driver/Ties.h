//===- Ties.h - weights that become one parameter ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_TIES_H
#define GRIDLOOM_COMPILER_DRIVER_TIES_H

#include "passes/train/TrainOptions.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace gridloom {

/// The syntax of --tie, for --help.
extern const char *const kTieGrammar;

/// 'A=B', or 'A=transpose(B)'.
std::string formatTie(const std::string &kept, const std::string &other, bool isTransposed);

/// Applies --tie to a program that was imported to be trained: what reads the second weight reads
/// the first, or its transpose, which so gets the sum of both gradients. Records the ties in the
/// module's `loom.tied`. Returns what is wrong, or "": an unknown weight, shapes that do not match,
/// or values that differ without an --init for them.
std::string tieWeights(mlir::ModuleOp module, const std::string &model,
                       const TrainOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_TIES_H
