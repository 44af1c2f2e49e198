//===- CheckpointLock.cpp - one run in a folder of checkpoints ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/CheckpointLock.h"

#include "runtime/core/Error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using Clock = std::chrono::steady_clock;

CheckpointLock::CheckpointLock(const std::filesystem::path &folder,
                               std::chrono::milliseconds patience)
    : file{open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                0666)} {
  if (file.number < 0)
    throw Error(ErrorCode::InvalidArgument,
                (folder / ".lock").string() + " cannot be opened: " + strerror(errno));
  Clock::time_point end = Clock::now() + patience;
  while (flock(file.number, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (Clock::now() >= end)
      throw Error(ErrorCode::InvalidArgument,
                  "--checkpoint-dir " + folder.string() +
                      " is another run's that has not ended; wait for it, or name a new folder");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
