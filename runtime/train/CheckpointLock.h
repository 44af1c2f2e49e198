//===- CheckpointLock.h - lock of a checkpoint folder -----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTLOCK_H
#define GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTLOCK_H

#include "support/Descriptor.h"

#include <chrono>
#include <filesystem>

namespace gridloom::rt {

/// Locks an open file for this process until it is closed; waits for at most `patience`, so that a
/// killed run can release it. False if another process holds the lock. True if the file system has
/// no locks.
bool takeLock(int file, std::chrono::milliseconds patience = std::chrono::seconds(3));

/// Locks a folder of checkpoints for one run while this object or the process lives: a second run
/// would remove what the first one is about to write. The lock is on the file `.lock` in the
/// folder, which is never removed.
class CheckpointLock {
public:
  /// Waits as takeLock does. Throws InvalidArgument naming the folder if another run has it, or
  /// with the system's reason if the file cannot be opened.
  explicit CheckpointLock(const std::filesystem::path &folder,
                          std::chrono::milliseconds patience = std::chrono::seconds(3));

private:
  Descriptor file;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTLOCK_H
