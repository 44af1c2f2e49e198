//===- ReadableNames.h - names of values in dumps ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_READABLENAMES_H
#define GRIDLOOM_COMPILER_DRIVER_READABLENAMES_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace gridloom {

/// Makes names from ONNX nodes readable in a printed program: the printer writes a slash as its
/// code, `%_2Flayers.02Fmlp2FAdd`, which becomes `%layers.0.mlp.Add`. Names stay distinct, and the
/// text parses to the same program.
std::string makeNamesReadable(llvm::StringRef text);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_READABLENAMES_H
