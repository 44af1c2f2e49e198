//===- CheckpointLock.h - one run in a folder of checkpoints ----*- C++ -*-===//
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

/// Takes the lock on an open file for this process, as long as it is open; waits for at most
/// `patience`, in which a run that was killed gives it back. False where another has it. File
/// systems that cannot lock say true.
bool takeLock(int file, std::chrono::milliseconds patience = std::chrono::seconds(3));

/// Holds a folder of checkpoints for one run, as long as this lives and at most as long as the
/// process: a second run would remove what the first one is about to write. It is a lock on the
/// file `.lock` in the folder, which stays there.
class CheckpointLock {
public:
  /// Waits as takeLock does. Throws InvalidArgument naming the folder where another run has it, or
  /// the system's reason where the file cannot be opened.
  explicit CheckpointLock(const std::filesystem::path &folder,
                          std::chrono::milliseconds patience = std::chrono::seconds(3));

private:
  Descriptor file;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_CHECKPOINTLOCK_H
