//===- TemporaryFolder.h - a folder that is removed again -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_TEMPORARYFOLDER_H
#define GRIDLOOM_SUPPORT_TEMPORARYFOLDER_H

#include <filesystem>
#include <string>

namespace gridloom {

/// A folder that only this user can access. The destructor removes it with its contents.
class TemporaryFolder {
public:
  /// Creates it in the system's folder for temporary files; its name begins with `prefix`.
  explicit TemporaryFolder(const std::string &prefix = "gridloom");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;

  /// From now on SIGINT, SIGTERM and SIGHUP remove the folders of this process, if these signals
  /// end it, as they do by default when the first folder is created.
  static void removeOnSignals();

  /// Why it could not be created, with its place; empty on success.
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
