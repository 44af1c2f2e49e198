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

/// How --tie is written, for --help.
extern const char *const kTieGrammar;

/// 'A=B', or 'A=transpose(B)'.
std::string formatTie(const std::string &kept, const std::string &other, bool isTransposed);

/// Does what --tie says to a program that was imported to be trained: what reads the second weight
/// reads the first one, or its transpose, which thereby gets the sum of both gradients. The module
/// says so in `loom.tied`. Returns what is wrong, or nothing: no such weight, shapes that do not
/// fit, values that differ and do not begin otherwise by --init.
std::string tieWeights(mlir::ModuleOp module, const std::string &model,
                       const TrainOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_TIES_H
