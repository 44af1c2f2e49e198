//===- MappedFile.cpp - files mapped for reading --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "support/Descriptor.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// SIGBUS
//===----------------------------------------------------------------------===//

namespace {

/// A mapping that the signal handler handles.
struct Guard {
  std::atomic<bool> isTaken{false}, isDamaged{false};
  std::atomic<uintptr_t> begin{0}, end{0};
};

} // namespace

// Global, since a signal handler has no other way to find it.
static std::array<Guard, 1024> guards;
static struct sigaction previousAction;

static uintptr_t getPageBytes() {
  static const auto bytes = uintptr_t(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Maps zeros over the part of a mapped file that cannot be read, so that readers continue until
/// requireUnchanged is called. Passes other faults to the previous handler.
static void handleBusError(int signal, siginfo_t *info, void *context) {
  int savedError = errno;
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Guard &guard : guards) {
    uintptr_t begin = guard.begin.load(), end = guard.end.load();
    if (address < begin || address >= end)
      continue;
    uintptr_t page = address / getPageBytes() * getPageBytes();
    void *zeros = mmap(reinterpret_cast<void *>(page), end - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    guard.isDamaged = true;
    errno = savedError;
    if (zeros != MAP_FAILED)
      return;
  }
  if (previousAction.sa_flags & SA_SIGINFO) {
    previousAction.sa_sigaction(signal, info, context);
  } else if (previousAction.sa_handler != SIG_DFL && previousAction.sa_handler != SIG_IGN) {
    previousAction.sa_handler(signal);
  } else {
    struct sigaction standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &standard, nullptr); // the instruction faults again and ends the process
  }
}

/// The guard of a new mapping; -1 if all are taken.
static int takeGuard(const std::byte *data, size_t size) {
  static std::once_flag installed;
  std::call_once(installed, [] {
    getPageBytes();
    struct sigaction action = {};
    action.sa_sigaction = handleBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previousAction);
  });
  for (size_t i = 0; i < guards.size(); ++i) {
    if (guards[i].isTaken.exchange(true))
      continue;
    auto begin = reinterpret_cast<uintptr_t>(data);
    guards[i].isDamaged = false;
    guards[i].end = (begin + size + getPageBytes() - 1) / getPageBytes() * getPageBytes();
    guards[i].begin = begin;
    return int(i);
  }
  return -1;
}

static void giveBack(int guard) {
  if (guard < 0)
    return;
  guards[size_t(guard)].begin = UINTPTR_MAX;
  guards[size_t(guard)].end = 0;
  guards[size_t(guard)].isTaken = false;
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

[[noreturn]] static void failRead(const fs::path &path, const std::string &reason) {
  throw Error(ErrorCode::InvalidPlan, path.string() + ": cannot be read: " + reason);
}

static int openFile(const fs::path &path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    failRead(path, strerror(errno));
  return file;
}

/// The path of an open file, with links resolved.
static fs::path getPlace(int file) {
  std::error_code error;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(file), error);
}

int gridloom::rt::openBeneath(const fs::path &folder, const fs::path &relative) {
  fs::path path = folder / relative;
  if (!isInnerPath(relative.string()))
    failRead(path, "it is not a path inside the model's folder");
  int directory = ::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    failRead(path, strerror(errno));
  open_how how = {};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  int file = int(syscall(SYS_openat2, directory, relative.c_str(), &how, sizeof how));
  // Older kernels and some sandboxes lack the call, and it refuses absolute links that stay inside:
  // then open the file and check where it is.
  bool mayTryAgain = file < 0 && (errno == ENOSYS || errno == EPERM || errno == EXDEV ||
                                  errno == EAGAIN || errno == EINVAL);
  bool leadsOut = false;
  if (mayTryAgain) {
    file = openat(directory, relative.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0) {
      fs::path root = getPlace(directory), place = getPlace(file);
      leadsOut =
          root.empty() ||
          std::mismatch(root.begin(), root.end(), place.begin(), place.end()).first != root.end();
    }
  }
  int reason = errno;
  close(directory);
  if (leadsOut) {
    close(file);
    failRead(path, "it is a link that leads out of the model's folder");
  }
  if (file < 0)
    failRead(path, strerror(reason));
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::open(const fs::path &path) {
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path = path;
  mapped->map(openFile(path));
  return mapped;
}

std::shared_ptr<const MappedFile> MappedFile::openBeneath(const fs::path &folder,
                                                          const fs::path &relative) {
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path = folder / relative;
  mapped->map(gridloom::rt::openBeneath(folder, relative));
  return mapped;
}

static int64_t getNanoseconds(const timespec &time) {
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Closes the descriptor after mapping: a model may have more files than a process may hold open.
void MappedFile::map(int descriptor) {
  Descriptor file{descriptor};
  struct stat status;
  if (fstat(file.number, &status) || !S_ISREG(status.st_mode))
    failRead(path, "it is not a regular file");
  std::error_code error;
  absolute = fs::absolute(path, error);
  device = status.st_dev;
  inode = status.st_ino;
  time = getNanoseconds(status.st_mtim);
  identity = std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + ":" +
             std::to_string(status.st_size) + ":" + std::to_string(time);
  if (status.st_size == 0)
    return;
  void *mapped = mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, file.number, 0);
  if (mapped == MAP_FAILED)
    failRead(path, strerror(errno));
  data = static_cast<const std::byte *>(mapped);
  size = size_t(status.st_size);
  guard = takeGuard(data, size);
}

MappedFile::~MappedFile() {
  giveBack(guard);
  if (data)
    munmap(const_cast<std::byte *>(data), size);
}

void MappedFile::readAhead(bool enable) const {
  if (data)
    madvise(const_cast<std::byte *>(data), size, enable ? MADV_NORMAL : MADV_RANDOM);
}

void MappedFile::dropPages() const {
  if (data)
    madvise(const_cast<std::byte *>(data), size, MADV_DONTNEED);
}

void MappedFile::requireUnchanged() const {
  struct stat status;
  std::string change;
  // A file that was removed or replaced by rename stays intact while it is mapped.
  bool isHere =
      stat(absolute.c_str(), &status) == 0 && status.st_dev == device && status.st_ino == inode;
  if (isHere && uint64_t(status.st_size) != size)
    change = "was changed while it is in use: it had " + std::to_string(size) + " bytes and has " +
             std::to_string(status.st_size);
  else if (isHere && getNanoseconds(status.st_mtim) != time)
    change = "was written to while it is in use";
  else if (guard >= 0 && guards[size_t(guard)].isDamaged)
    change = "could not be read while it is in use";
  else
    return;
  throw Error(ErrorCode::Unavailable,
              path.string() + ": " + change +
                  "; load it again, and replace such files by renaming new ones over them");
}
