//===- WeightStore.h - load weights -----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A WeightSource says in which file each of the model's tensors lies; a WeightSet is what one rank
// needs of them, on its device, in the plan's layout; a WeightCache shares equal shards between the
// ranks of a process.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_WEIGHTSTORE_H
#define GRIDLOOM_RUNTIME_CORE_WEIGHTSTORE_H

#include "runtime/core/Files.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"
#include "runtime/device/Device.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <unordered_map>

namespace gridloom::rt {

/// The tensors of one model file or of one replacement for it, by name. Files are mapped once.
class WeightSource {
public:
  /// The model the plan was compiled from. Its size must be the plan's, and so must its SHA-256
  /// with `verifyDigest`, where it is newer than the plan or up to 32 MiB large. Of files with
  /// external data the fingerprints must be the plan's. Throws InvalidPlan naming the file and both
  /// values.
  static std::shared_ptr<const WeightSource> openModel(const Plan &plan, bool verifyDigest = false);
  /// Another .onnx or .safetensors file with the same weights, or a checkpoint's folder: every one
  /// must be there with the plan's type and shape, and folded initializers must have the plan's
  /// values. A checkpoint is read and checked whole.
  static std::shared_ptr<const WeightSource> openReplacement(const Plan &plan,
                                                             const std::filesystem::path &path);
  /// openModel, or openReplacement where `path` is not empty.
  static std::shared_ptr<const WeightSource>
  open(const Plan &plan, const std::filesystem::path &path, bool verifyDigest = false);

  /// The whole tensor, in the mapped file; throws InvalidPlan when there is none of this name.
  HostArray read(const std::string &name) const;
  /// Names the files on this machine: equal for equal files.
  const std::string &getIdentity() const { return identity; }
  /// Names the contents of all files, the same on all machines.
  const std::string &getFingerprint() const { return fingerprint; }
  /// The file that `data` lies in; null when in none.
  std::shared_ptr<const MappedFile> findFile(const std::byte *data) const;
  /// See MappedFile.
  void requireUnchanged() const;
  void dropPages() const;

private:
  void add(const std::shared_ptr<const MappedFile> &file, const std::string &fingerprintOfFile);

  std::unordered_map<std::string, HostArray> tensors;
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::string identity, fingerprint;
};

/// Device memory that ranks share: whatever keeps it alive, where it is, and the file it is a part
/// of where it was not copied.
struct SharedMemory {
  const void *data = nullptr;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> file = nullptr;
};

/// Shares loaded weights between the sessions that are given the same cache. Entries live as long
/// as someone uses them.
class WeightCache {
public:
  /// The memory of `key`, made by `make` if nobody has it. Concurrent callers wait for one maker;
  /// when it throws, the next caller tries.
  SharedMemory get(const std::string &key, const std::function<SharedMemory()> &make);

private:
  struct Slot {
    bool busy = false;
    const void *data = nullptr;
    std::weak_ptr<const void> owner;
    std::weak_ptr<const MappedFile> file;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_map<std::string, Slot> slots;
};

/// One rank's weights, in the order of its stage program: shards, padded rows, derived tensors.
class WeightSet {
public:
  /// Reads and computes all of them on `device`; `cache` may be null.
  static std::shared_ptr<const WeightSet> load(const Plan &plan, int rank, Device &device,
                                               const WeightSource &source, WeightCache *cache);
  const void *getData(size_t index) const { return weights[index].data; }
  size_t getNumWeights() const { return weights.size(); }
  /// Throws Unavailable when a file that is used where it lies has changed since it was opened: see
  /// MappedFile.
  void requireUnchanged() const;
  /// Takes the pages of files out of memory: for when libraries have copies.
  void dropPages() const;

private:
  friend class WeightLoader;
  std::vector<SharedMemory> weights;
  std::set<std::shared_ptr<const MappedFile>> files; // that weights are parts of
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_WEIGHTSTORE_H
