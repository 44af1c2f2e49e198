//===- FileSwap.h - files and folders replaced in one step ---- -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Contents are written under another name beside the old ones and then renamed: whoever opens the
// path finds the complete old or new contents.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_FILESWAP_H
#define GRIDLOOM_SUPPORT_FILESWAP_H

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gridloom {

/// Replaces the file `given`, or the one it links to, by `parts`, one after another; writes to a
/// device or a pipe directly. With `isDurable` waits until the disk has the contents; otherwise a
/// power failure may lose them. Returns the system's reason on failure, else ""; then the old file
/// stays, and no other is left behind.
std::string replaceFile(const std::filesystem::path &given, std::span<const std::string_view> parts,
                        bool isDurable = false);
inline std::string replaceFile(const std::filesystem::path &given,
                               std::initializer_list<std::string_view> parts,
                               bool isDurable = false) {
  return replaceFile(given, std::span(parts.begin(), parts.size()), isDurable);
}

/// Waits until a file or folder is on the disk. Returns the system's reason on failure, else "".
/// Succeeds where the file system cannot sync, as some cannot sync folders.
std::string syncPath(const std::filesystem::path &path);

/// Whether `path`, which need not exist, is `folder` or inside of it; follows links.
bool isInside(const std::filesystem::path &path, const std::filesystem::path &folder);

/// A file that gets its name when `commit` is called, so that several can be replaced once all of
/// them are written. The destructor removes what is not committed. Devices and pipes are written to
/// at once.
class NewFile {
public:
  explicit NewFile(std::filesystem::path path) : path(std::move(path)) {}
  NewFile(const NewFile &) = delete;
  NewFile &operator=(const NewFile &) = delete;
  ~NewFile();

  /// Writes `parts` under another name beside the path, or beside what it links to. To be called
  /// once. Returns the system's reason on failure, else "".
  std::string write(std::span<const std::string_view> parts);
  /// Replaces the file by what was written; `isDurable` as for replaceFile. Returns the system's
  /// reason on failure, else "".
  std::string commit(bool isDurable = false);

private:
  std::filesystem::path path, fresh;
};

/// Replaces `folder` by a folder of `files`, by their paths below it. `check`, if given, sees the
/// new folder first; a line that it returns is the error. With `isDurable` the old folder is
/// removed only once the disk has all of the new one, so that one of the two survives a power
/// failure. Returns a line that names the path and the system's reason on failure, else ""; then
/// the old folder stays, and no other is left behind.
std::string
replaceFolder(const std::filesystem::path &folder, const std::map<std::string, std::string> &files,
              bool isDurable,
              const std::function<std::string(const std::filesystem::path &)> &check = {});

/// Files by their paths below a folder, as parts that follow each other.
using FileParts = std::map<std::string, std::vector<std::string_view>>;
/// The same for files in parts, so that large ones need not be put together.
std::string
replaceFolderByParts(const std::filesystem::path &folder, const FileParts &files, bool isDurable,
                     const std::function<std::string(const std::filesystem::path &)> &check = {});

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_FILESWAP_H
