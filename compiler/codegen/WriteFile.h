//===- WriteFile.h - files for other programs -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_WRITEFILE_H
#define GRIDLOOM_COMPILER_CODEGEN_WRITEFILE_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

namespace gridloom::codegen {

/// Writes a file; errors are reported at `loc`.
inline mlir::LogicalResult writeFile(mlir::Location loc, llvm::StringRef path,
                                     llvm::StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (!error) {
    stream << bytes;
    stream.close();
    error = stream.error();
  }
  if (error)
    return mlir::emitError(loc) << "cannot write " << path << ": " << error.message();
  return mlir::success();
}

} // namespace gridloom::codegen

#endif // GRIDLOOM_COMPILER_CODEGEN_WRITEFILE_H
