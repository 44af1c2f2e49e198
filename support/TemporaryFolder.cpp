//===- TemporaryFolder.cpp - a folder that is removed again ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "support/TemporaryFolder.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/syscall.h>
#include <unistd.h>

using namespace gridloom;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

namespace {
/// A folder that the handler removes. Whoever takes a slot away from `Used` has its path alone.
struct Slot {
  enum State { Free, Taken, Used };
  std::atomic<State> state = Free;
  char path[PATH_MAX];
};
} // namespace

static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
static std::array<Slot, 32> slots;
static_assert(std::atomic<Slot::State>::is_always_lock_free, "a signal handler uses it");
static std::atomic<pid_t> owner = 0; ///< the process whose folders are removed; 0: none
static std::mutex mutex;             ///< of the two below
static size_t numUsed = 0;
static std::array<struct sigaction, kSignals.size()> before;

/// Removes all that is in an open folder, and closes it. Makes system calls alone, as a handler
/// may.
static void empty(int folder, int depth) {
  constexpr int most = 8; // plans are three deep
  alignas(8) char buffer[4096];
  bool removes = true;
  // What is removed may hide other entries from the pass that does it.
  while (removes && lseek(folder, 0, SEEK_SET) == 0) {
    removes = false;
    long bytes = 0;
    while ((bytes = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0)
      for (long at = 0; at < bytes;) {
        constexpr long nameAt = 19; // behind inode, offset, length and type
        unsigned short length = 0;
        memcpy(&length, buffer + at + 16, sizeof length);
        const char *name = buffer + at + nameAt;
        at += length;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
          continue;
        if (unlinkat(folder, name, 0) == 0) {
          removes = true;
          continue;
        }
        int inner = depth < most
                        ? openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                        : -1;
        if (inner >= 0)
          empty(inner, depth + 1);
        removes |= unlinkat(folder, name, AT_REMOVEDIR) == 0;
      }
  }
  close(folder);
}

static void removeAndEnd(int signal) {
  if (getpid() == owner) // a fork of it has the handler, too
    for (Slot &slot : slots)
      if (Slot::State used = Slot::Used; slot.state.compare_exchange_strong(used, Slot::Taken)) {
        if (int folder = open(slot.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            folder >= 0)
          empty(folder, 0);
        rmdir(slot.path);
      }
  ::signal(signal, SIG_DFL);
  raise(signal); // it ends the process when this function returns
}

static void watch(const std::string &path) {
  if (getpid() != owner || path.size() >= PATH_MAX)
    return;
  for (Slot &slot : slots) {
    Slot::State free = Slot::Free;
    if (!slot.state.compare_exchange_strong(free, Slot::Taken))
      continue;
    memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.state = Slot::Used;
    break;
  }
  std::lock_guard lock(mutex);
  if (numUsed++)
    return;
  struct sigaction action = {};
  action.sa_handler = removeAndEnd;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler == SIG_DFL)
      sigaction(kSignals[i], &action, nullptr);
  }
}

static void unwatch(const std::string &path) {
  if (getpid() != owner || path.size() >= PATH_MAX)
    return;
  for (Slot &slot : slots)
    if (slot.state == Slot::Used && path == slot.path) {
      Slot::State used = Slot::Used;
      if (slot.state.compare_exchange_strong(used, Slot::Taken))
        slot.state = Slot::Free;
    }
  std::lock_guard lock(mutex);
  if (--numUsed == 0)
    for (size_t i = 0; i < kSignals.size(); ++i)
      if (before[i].sa_handler == SIG_DFL)
        sigaction(kSignals[i], &before[i], nullptr);
}

void TemporaryFolder::removeOnSignals() { owner = getpid(); }

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

TemporaryFolder::TemporaryFolder(const std::string &prefix) {
  std::error_code code;
  fs::path parent = fs::temp_directory_path(code);
  std::string pattern = (parent / (prefix + "-XXXXXX")).string();
  if (!code && !mkdtemp(pattern.data()))
    code = {errno, std::generic_category()};
  if (code) {
    error = "cannot make a temporary folder in '" + parent.string() + "': " + code.message();
    return;
  }
  path = pattern;
  watch(pattern);
}

TemporaryFolder::~TemporaryFolder() {
  if (!error.empty())
    return;
  std::error_code ignored;
  fs::remove_all(path, ignored);
  unwatch(path.string());
}
