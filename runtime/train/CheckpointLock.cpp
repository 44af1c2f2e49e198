//===- CheckpointLock.cpp - lock of a checkpoint folder -------------------===//
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

bool gridloom::rt::takeLock(int file, std::chrono::milliseconds patience) {
  Clock::time_point end = Clock::now() + patience;
  while (flock(file, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (Clock::now() >= end)
      return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

CheckpointLock::CheckpointLock(const std::filesystem::path &folder,
                               std::chrono::milliseconds patience)
    : file{open((folder / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                0666)} {
  if (file.number < 0)
    throw Error(ErrorCode::InvalidArgument,
                (folder / ".lock").string() + " cannot be opened: " + strerror(errno));
  if (!takeLock(file.number, patience))
    throw Error(ErrorCode::InvalidArgument,
                "--checkpoint-dir " + folder.string() +
                    " is another run's that has not ended; wait for it, or name a new folder");
}
