//===- OptionText.h - compile options in report.json ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The options that decide how a model is split and what a plan costs, so that it can be planned
// again.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_OPTIONTEXT_H
#define GRIDLOOM_COMPILER_DRIVER_OPTIONTEXT_H

#include "compiler/driver/Options.h"

#include "llvm/Support/JSON.h"

namespace gridloom {

/// The options by the names of their flags, without dashes; defaults are left out. A file of
/// --cluster or --strategy is named by its absolute path.
llvm::json::Object describeOptions(const CompileOptions &options);

/// Reads what describeOptions wrote; ignores unknown options.
void readOptions(const llvm::json::Object &object, CompileOptions &options);

/// The options as on a command line, quoted for a shell: " --dim batch=8 --mesh data=2".
std::string printFlags(const CompileOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_OPTIONTEXT_H
