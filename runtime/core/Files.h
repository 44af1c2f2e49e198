//===- Files.h - files and fingerprints -------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_FILES_H
#define GRIDLOOM_RUNTIME_CORE_FILES_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gridloom::rt {

/// A file mapped for reading. If it shrinks or becomes unreadable while it is mapped, readers get
/// zeros instead of SIGBUS, and requireUnchanged throws.
class MappedFile {
public:
  /// Throws InvalidPlan naming the file and the system's reason.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path &path);
  /// The file `relative` inside the model's `folder`; `..` and links that lead out are refused.
  static std::shared_ptr<const MappedFile> openBeneath(const std::filesystem::path &folder,
                                                       const std::filesystem::path &relative);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const std::byte> getBytes() const { return {data, size}; }
  const std::filesystem::path &getPath() const { return path; }
  /// Identifies this version of the file on this machine, without reading it: device, inode, size
  /// and modification time.
  const std::string &getIdentity() const { return identity; }
  /// The modification time, in nanoseconds since 1970.
  int64_t getTime() const { return time; }
  /// Turns the kernel's read-ahead on or off: off where most of the file is skipped.
  void readAhead(bool enable) const;
  /// Unmaps the pages from this process's memory; later reads get them from the page cache.
  void dropPages() const;
  /// Throws Unavailable naming the file if it was written to, truncated or lost since it was
  /// opened. A file replaced by rename still maps the old contents and passes. Takes about a
  /// microsecond.
  void requireUnchanged() const;

private:
  MappedFile() = default;
  void map(int file);

  std::filesystem::path path, absolute;
  std::string identity;
  const std::byte *data = nullptr;
  size_t size = 0;
  int64_t time = 0;
  uint64_t device = 0, inode = 0;
  int guard = -1;
};

/// Opens the regular file `relative` inside a model's `folder` for reading and returns its
/// descriptor; links that lead out are refused. Throws InvalidPlan naming the file and the reason.
int openBeneath(const std::filesystem::path &folder, const std::filesystem::path &relative);

/// A SHA-256 that is quick for large files: of all bytes up to 32 MiB, else of the size and of 256
/// evenly spaced blocks of 4 KiB.
std::string fingerprint(std::span<const std::byte> bytes);
inline constexpr size_t fingerprintedWhole = size_t(32) << 20;

/// Reads a whole file of exactly `bytes`; throws InvalidPlan with both numbers otherwise.
std::vector<std::byte> readFile(const std::filesystem::path &path, uint64_t bytes);

/// Whether `path` is relative and stays below the folder it is relative to.
bool isInnerPath(const std::string &path);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_FILES_H
