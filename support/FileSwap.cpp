//===- FileSwap.cpp - files and folders replaced in one step --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/FileSwap.h"

#include "support/Descriptor.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <random>
#include <set>
#include <sys/stat.h>

using namespace gridloom;
namespace fs = std::filesystem;

/// An unused name beside `path`. It is random, since processes of other machines and containers on
/// the same volume may have this process's number.
static fs::path makeNameBeside(const fs::path &path, const char *what) {
  std::random_device random;
  char suffix[2 * 8 + 1];
  snprintf(suffix, sizeof suffix, "%08x%08x", unsigned(random()), unsigned(random()));
  return path.string() + what + suffix;
}

/// Writes all of `bytes`; false with errno. If the file system rejects direct writes, they go
/// through the page cache.
static bool writeAll(int number, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(number, bytes.data(), bytes.size());
    if (written >= 0)
      bytes.remove_prefix(size_t(written));
    else if (errno == EINVAL && (fcntl(number, F_GETFL) & O_DIRECT))
      fcntl(number, F_SETFL, fcntl(number, F_GETFL) & ~O_DIRECT);
    else if (errno != EINTR)
      return false;
  }
  return true;
}

/// Writes to `file` and closes it. Returns the system's reason, or "".
static std::string writeFile(Descriptor &file, std::span<const std::string_view> parts) {
  for (std::string_view part : parts)
    if (!writeAll(file.number, part))
      return strerror(errno);
  return file.close() ? "" : strerror(errno);
}

/// Writes a large file past the page cache, and closes it: filling the cache would take most of the
/// processor time of writing, while other threads compute. Copies blocks to an aligned buffer,
/// which stays in the processor's cache. Returns the system's reason, or "".
static std::string writeDirectly(Descriptor &file, std::span<const std::string_view> parts) {
  constexpr size_t page = 4096, blockBytes = size_t(1) << 20;
  std::unique_ptr<char, decltype(&std::free)> block(
      static_cast<char *>(std::aligned_alloc(page, blockBytes)), &std::free);
  if (!block || fcntl(file.number, F_SETFL, fcntl(file.number, F_GETFL) | O_DIRECT) != 0)
    return writeFile(file, parts);
  size_t held = 0;
  for (std::string_view part : parts)
    while (!part.empty()) {
      size_t taken = std::min(part.size(), blockBytes - held);
      memcpy(block.get() + held, part.data(), taken);
      part.remove_prefix(taken);
      held += taken;
      if (held < blockBytes)
        continue;
      if (!writeAll(file.number, {block.get(), held}))
        return strerror(errno);
      held = 0;
    }
  size_t pages = held / page * page;
  if (!writeAll(file.number, {block.get(), pages}))
    return strerror(errno);
  fcntl(file.number, F_SETFL, fcntl(file.number, F_GETFL) & ~O_DIRECT);
  if (!writeAll(file.number, {block.get() + pages, held - pages}))
    return strerror(errno);
  return file.close() ? "" : strerror(errno);
}

/// Creates a file that must not exist, not even as a link; negative, with errno, on failure.
static int makeFile(const fs::path &path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

std::string gridloom::syncPath(const fs::path &path) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  // Some file systems cannot sync folders.
  if (file.number < 0 || (fsync(file.number) != 0 && errno != EINVAL && errno != ENOTSUP))
    return strerror(errno);
  return "";
}

bool gridloom::isInside(const fs::path &path, const fs::path &folder) {
  std::error_code error;
  fs::path at = fs::weakly_canonical(fs::absolute(path, error), error);
  while (!at.empty() && !fs::equivalent(at, folder, error)) {
    if (at == at.parent_path()) // the root
      return false;
    at = at.parent_path();
  }
  return !at.empty();
}

NewFile::~NewFile() {
  if (!fresh.empty())
    unlink(fresh.c_str());
}

std::string NewFile::write(std::span<const std::string_view> parts) {
  std::error_code error;
  if (fs::is_character_file(path, error) || fs::is_fifo(path, error)) {
    Descriptor device{open(path.c_str(), O_WRONLY | O_CLOEXEC)};
    return device.number < 0 ? strerror(errno) : writeFile(device, parts);
  }
  if (fs::is_symlink(path, error))
    path = fs::canonical(path, error);
  if (path.empty())
    return error.message();
  fs::path name = makeNameBeside(path, ".tmp-");
  Descriptor file{makeFile(name)};
  if (file.number < 0)
    return strerror(errno);
  fresh = name;
  return writeFile(file, parts);
}

std::string NewFile::commit(bool isDurable) {
  if (fresh.empty())
    return "";
  std::string reason = isDurable ? syncPath(fresh) : "";
  if (reason.empty() && rename(fresh.c_str(), path.c_str()) != 0)
    reason = strerror(errno);
  if (!reason.empty())
    return reason;
  fresh.clear();
  std::error_code error;
  if (isDurable) // where the folder cannot be synced, the file is there all the same
    syncPath(fs::absolute(path, error).parent_path());
  return "";
}

std::string gridloom::replaceFile(const fs::path &given, std::span<const std::string_view> parts,
                                  bool isDurable) {
  NewFile file(given);
  std::string reason = file.write(parts);
  return reason.empty() ? file.commit(isDurable) : reason;
}

/// Creates a folder that must not exist, and missing ones above it. Returns an error of one line,
/// or "".
static std::string makeFolder(const fs::path &folder) {
  std::error_code error;
  if (folder.has_parent_path())
    fs::create_directories(folder.parent_path(), error);
  if (!error && mkdir(folder.c_str(), 0777) != 0)
    error.assign(errno, std::generic_category());
  return error ? "cannot make the folder '" + folder.string() + "': " + error.message() : "";
}

/// From this size on, durable files are written past the page cache.
static constexpr size_t leastDirectBytes = size_t(4) << 20;

static size_t countBytes(std::span<const std::string_view> parts) {
  size_t bytes = 0;
  for (std::string_view part : parts)
    bytes += part.size();
  return bytes;
}

/// Writes all files below `folder`, which is new and empty. Returns an error of one line, or "".
static std::string writeFiles(const FileParts &files, const fs::path &folder, bool isDurable) {
  std::set<fs::path> folders = {folder};
  for (const auto &[name, parts] : files) {
    fs::path path = folder / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      return "cannot make the folder '" + path.parent_path().string() + "': " + error.message();
    Descriptor file{makeFile(path)};
    std::string reason = file.number < 0 ? strerror(errno)
                         : isDurable && countBytes(parts) >= leastDirectBytes
                             ? writeDirectly(file, parts)
                             : writeFile(file, parts);
    if (!reason.empty())
      return "cannot write '" + path.string() + "': " + reason;
    folders.insert(path.parent_path());
  }
  if (!isDurable)
    return "";
  for (const auto &[name, parts] : files)
    if (std::string reason = syncPath(folder / name); !reason.empty())
      return "cannot write '" + (folder / name).string() + "': " + reason;
  for (const fs::path &path : folders)
    if (std::string reason = syncPath(path); !reason.empty())
      return "cannot write '" + path.string() + "': " + reason;
  return "";
}

/// Moves `fresh` to `folder`. The previous folder is then at `fresh` if both could be exchanged in
/// one step, else at `old`. Returns the system's reason, or "".
static std::string exchange(const fs::path &fresh, const fs::path &folder, const fs::path &old) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0)
    return "";
  std::error_code error;
  // There is no folder yet, or the file system cannot exchange.
  bool had = fs::exists(folder, error);
  if (had)
    fs::rename(folder, old, error);
  if (!error)
    fs::rename(fresh, folder, error);
  if (!error)
    return "";
  std::string message = error.message();
  if (had && !fs::exists(folder, error))
    fs::rename(old, folder, error);
  return message;
}

std::string gridloom::replaceFolder(const fs::path &folder,
                                    const std::map<std::string, std::string> &files, bool isDurable,
                                    const std::function<std::string(const fs::path &)> &check) {
  FileParts parts;
  for (const auto &[name, contents] : files)
    parts[name] = {contents};
  return replaceFolderByParts(folder, parts, isDurable, check);
}

std::string
gridloom::replaceFolderByParts(const fs::path &folder, const FileParts &files, bool isDurable,
                               const std::function<std::string(const fs::path &)> &check) {
  fs::path plain = folder.has_filename() ? folder : folder.parent_path(); // "m.plan/"
  fs::path fresh = makeNameBeside(plain, ".tmp-"), old = makeNameBeside(plain, ".old-");
  std::error_code error;
  if (std::string reason = makeFolder(fresh); !reason.empty())
    return reason;
  std::string message = writeFiles(files, fresh, isDurable);
  if (message.empty() && check)
    message = check(fresh);
  if (message.empty())
    if (std::string reason = exchange(fresh, plain, old); !reason.empty())
      message = "cannot replace '" + folder.string() + "': " + reason;
  // Sync before the old folder is removed: until then the disk may have only that one. If the
  // folder above cannot be synced, the new one is in its place all the same.
  if (message.empty() && isDurable)
    syncPath(fs::absolute(plain, error).parent_path());
  fs::remove_all(fresh, error);
  if (message.empty())
    fs::remove_all(old, error);
  return message;
}
