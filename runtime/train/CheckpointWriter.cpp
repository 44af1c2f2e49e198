//===- CheckpointWriter.cpp - write checkpoints during steps --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/CheckpointWriter.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

using namespace gridloom::rt;
namespace fs = std::filesystem;

void gridloom::rt::awaitOnRank0(Session &session, const std::future<void> &work) {
  for (std::byte busy{1}; busy != std::byte{0};) {
    if (session.getRank() == 0 && (!work.valid() || work.wait_for(std::chrono::milliseconds(500)) ==
                                                        std::future_status::ready))
      busy = std::byte{0};
    busy = session.exchange({&busy, 1}).front().front();
  }
}

void CheckpointWriter::prepare(const std::map<std::string, Checkpoint::Wanted> &states) {
  assert(!writing.valid() && "a checkpoint is being written");
  writing = std::async(std::launch::async, [this, states] {
    try {
      for (const auto &[name, wanted] : states) {
        if (isEnding)
          return;
        HostArray array = HostArray::allocate(wanted.type, wanted.shape);
        // The system allocates pages at the first write.
        std::memset(array.getMutableData(), 1, array.getNumBytes());
        spare.emplace(name, std::move(array));
      }
    } catch (const Error &) {
      // The checkpoint itself reports it if memory is still missing then.
      spare.clear();
    }
  });
}

void CheckpointWriter::start(Checkpoint checkpoint, std::function<void()> before) {
  assert(!writing.valid() && "a checkpoint is being written");
  writing = std::async(std::launch::async, [this, checkpoint = std::move(checkpoint),
                                            before = std::move(before)]() mutable {
    before();
    write(checkpoint);
    spare = std::move(checkpoint.states);
  });
}

HostArray CheckpointWriter::takeSpare(const std::string &state) {
  auto found = spare.find(state);
  return found == spare.end() ? HostArray() : std::exchange(found->second, HostArray());
}

void CheckpointWriter::check() {
  if (writing.valid() && writing.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    writing.get();
}

void CheckpointWriter::finish(Session &session) {
  awaitOnRank0(session, writing);
  if (writing.valid())
    writing.get();
}

/// Removes folders that killed runs left unfinished.
static void removeUnfinished(const fs::path &run) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(run, error), end; !error && entry != end;
       entry.increment(error))
    if (std::string name = entry->path().filename().string();
        name.starts_with("step-") && name.find(".tmp-") != std::string::npos)
      found.push_back(entry->path());
  for (const fs::path &path : found)
    fs::remove_all(path, error);
}

void CheckpointWriter::write(const Checkpoint &checkpoint) const {
  int64_t step = checkpoint.progress.step;
  checkpoint.write(getCheckpointFolder(run, step));
  std::vector<int64_t> steps = listCheckpoints(run);
  steps.erase(std::ranges::upper_bound(steps, step), steps.end());
  // Ignores errors: a folder that is not removed only takes space.
  std::error_code error;
  for (size_t i = 0; i + size_t(keep) < steps.size(); ++i)
    if (steps[i] != checkpoint.evaluations.bestStep)
      fs::remove_all(getCheckpointFolder(run, steps[i]), error);
  removeUnfinished(run);
}
