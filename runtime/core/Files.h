//===- Files.h - files and digests ------------------------------*- C++ -*-===//
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

/// A file mapped for reading.
class MappedFile {
public:
  /// Throws InvalidPlan naming the file and the system's reason.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const std::byte> getBytes() const { return {data, size}; }
  const std::filesystem::path &getPath() const { return path; }
  /// Tells this version of the file from every other without reading it.
  const std::string &getIdentity() const { return identity; }

private:
  MappedFile() = default;
  std::filesystem::path path;
  std::string identity;
  const std::byte *data = nullptr;
  size_t size = 0;
};

/// Reads a whole file of exactly `bytes`; throws InvalidPlan with both numbers otherwise.
std::vector<std::byte> readFile(const std::filesystem::path &path, uint64_t bytes);

/// The SHA-256 of `bytes`, 64 lower-case hexadecimal digits.
std::string sha256(std::span<const std::byte> bytes);

/// Whether `path` is relative and stays below the folder it is relative to.
bool isInnerPath(const std::string &path);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_FILES_H
