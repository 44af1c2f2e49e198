//===- TemporaryFolder.h - a folder that goes away again --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_TEMPORARYFOLDER_H
#define GRIDLOOM_SUPPORT_TEMPORARYFOLDER_H

#include <filesystem>
#include <string>

namespace gridloom {

/// A folder of this user alone, removed with what is in it when the object goes.
class TemporaryFolder {
public:
  /// Makes it in the system's folder for such; its name begins with `prefix`.
  explicit TemporaryFolder(const std::string &prefix = "gridloom");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  /// Why there is none, with the place where it should be; empty if there is one.
  const std::string &getError() const { return error; }
  const std::filesystem::path &getPath() const { return path; }
  /// The path of `name` in it.
  std::string file(const std::string &name) const { return (path / name).string(); }

private:
  std::filesystem::path path;
  std::string error;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_TEMPORARYFOLDER_H
