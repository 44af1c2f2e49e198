//===- TemporaryFolder.h - files for other programs -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_CODEGEN_TEMPORARYFOLDER_H
#define GRIDLOOM_COMPILER_CODEGEN_TEMPORARYFOLDER_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace gridloom::codegen {

/// A folder that is gone when this is.
class TemporaryFolder {
public:
  explicit TemporaryFolder(llvm::StringRef prefix)
      : error(llvm::sys::fs::createUniqueDirectory(prefix, path)) {}
  ~TemporaryFolder() {
    if (!error)
      error = llvm::sys::fs::remove_directories(path);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  std::error_code getError() const { return error; }
  /// The path of a file in it.
  std::string file(llvm::StringRef name) const {
    llvm::SmallString<128> result(path);
    llvm::sys::path::append(result, name);
    return std::string(result);
  }

private:
  llvm::SmallString<128> path;
  std::error_code error;
};

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

#endif // GRIDLOOM_COMPILER_CODEGEN_TEMPORARYFOLDER_H
