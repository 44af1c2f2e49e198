//===- Registration.h - dialects and passes of the tools --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_REGISTRATION_H
#define GRIDLOOM_COMPILER_DRIVER_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace gridloom {

/// All dialects that appear in a program, from import to plan.
void registerDialects(mlir::DialectRegistry &registry);
/// Every pass, for gridloom-opt.
void registerPasses();

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_REGISTRATION_H
