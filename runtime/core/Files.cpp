//===- Files.cpp - files and fingerprints ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Files.h"

#include "runtime/core/Error.h"
#include "support/Descriptor.h"
#include "support/Sha256.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;

[[noreturn]] static void failRead(const std::filesystem::path &path, const std::string &reason) {
  throw Error(ErrorCode::InvalidPlan, path.string() + ": cannot be read: " + reason);
}

/// Opens a regular file and fills in its `status`.
static int openRegular(const std::filesystem::path &path, struct stat &status) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    failRead(path, strerror(errno));
  if (fstat(file, &status) || !S_ISREG(status.st_mode)) {
    close(file);
    failRead(path, "it is not a regular file");
  }
  return file;
}

std::vector<std::byte> gridloom::rt::readFile(const std::filesystem::path &path, uint64_t bytes) {
  struct stat status;
  Descriptor file{openRegular(path, status)};
  if (uint64_t(status.st_size) != bytes)
    throw Error(ErrorCode::InvalidPlan, path.string() + ": has " + std::to_string(status.st_size) +
                                            " bytes, expected " + std::to_string(bytes));
  std::vector<std::byte> contents(bytes);
  for (size_t done = 0; done < bytes;) {
    ssize_t got = read(file.number, contents.data() + done, bytes - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      failRead(path, strerror(errno));
    if (got == 0)
      failRead(path, "it ended after " + std::to_string(done) + " of " + std::to_string(bytes) +
                         " bytes");
    done += size_t(got);
  }
  return contents;
}

std::string gridloom::rt::fingerprint(std::span<const std::byte> bytes) {
  constexpr size_t blocks = 256, block = 4096;
  if (bytes.size() <= fingerprintedWhole)
    return sha256(bytes);
  std::vector<std::byte> sample(sizeof(uint64_t) + blocks * block);
  uint64_t size = bytes.size();
  memcpy(sample.data(), &size, sizeof size);
  for (size_t i = 0; i < blocks; ++i)
    memcpy(sample.data() + sizeof size + i * block,
           bytes.data() + (bytes.size() - block) / (blocks - 1) * i, block);
  return sha256(sample);
}

bool gridloom::rt::isInnerPath(const std::string &text) {
  std::filesystem::path path(text);
  if (text.empty() || path.is_absolute() || text.find('\0') != std::string::npos)
    return false;
  for (const std::filesystem::path &part : path)
    if (part == "..")
      return false;
  return true;
}
