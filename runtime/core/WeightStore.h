//===- WeightStore.h - load weights -----------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A WeightSource finds the model's tensors in files; a WeightSet holds those that one rank needs,
// on its device and in the plan's layout; a WeightCache shares equal shards between the ranks of a
// process.
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

/// The tensors of a model or of a replacement for it, by name. Each file is mapped once.
class WeightSource {
public:
  /// The model that the plan was compiled from. Its size must be the plan's, and also its SHA-256
  /// if `verifyDigest` is set, the plan's signature was required, the file is newer than the plan,
  /// or it has at most 32 MiB. The fingerprints of files with external data must be the plan's, and
  /// their SHA-256 a required signature's. Throws InvalidPlan naming the file and both values.
  static std::shared_ptr<const WeightSource> openModel(const Plan &plan, bool verifyDigest = false);
  /// Another .onnx or .safetensors file with the same weights, or a checkpoint's folder. Every
  /// weight must be present with the plan's type and shape, and folded initializers must have the
  /// values that were compiled in; checkpoints and .safetensors files may lack those. A checkpoint
  /// is read and checked completely.
  static std::shared_ptr<const WeightSource> openReplacement(const Plan &plan,
                                                             const std::filesystem::path &path);
  /// openReplacement if `path` is not empty, else openModel.
  static std::shared_ptr<const WeightSource>
  open(const Plan &plan, const std::filesystem::path &path, bool verifyDigest = false);

  /// The whole tensor, in the mapped file; throws InvalidPlan if there is no tensor `name`.
  HostArray read(const std::string &name) const;
  /// Identifies the files on this machine (MappedFile::getIdentity).
  const std::string &getIdentity() const { return identity; }
  /// Identifies the contents of all files, the same on all machines.
  const std::string &getFingerprint() const { return fingerprint; }
  /// The mapped file that contains address `data`; null if none does.
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

/// The SHA-256 of the model's files with external data whose fingerprint in the plan does not cover
/// all bytes, by name. Calls `onRead` before it reads one, with its name and size. Throws
/// InvalidPlan naming a file that cannot be read or has another fingerprint.
std::map<std::string, std::string>
digestSampledData(const Plan &plan,
                  const std::function<void(const std::string &name, uint64_t bytes)> &onRead);

/// Device memory that ranks share, its owner, and the mapped file that it is a part of unless it
/// was copied.
struct SharedMemory {
  const void *data = nullptr;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> file = nullptr;
};

/// Shares loaded weights between the sessions that use the same cache. Entries live as long as they
/// are used.
class WeightCache {
public:
  /// The memory for `key`, created by `make` if there is none. Concurrent callers wait for one
  /// maker; if it throws, the next caller tries.
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

/// One rank's weights, in its stage program's order: shards, also of derived tensors, rows padded.
class WeightSet {
public:
  /// Loads them onto `device` and computes derived ones; `cache` may be null.
  static std::shared_ptr<const WeightSet> load(const Plan &plan, int rank, Device &device,
                                               const WeightSource &source, WeightCache *cache);
  const void *getData(size_t index) const { return weights[index].data; }
  size_t getNumWeights() const { return weights.size(); }
  /// Throws Unavailable if a mapped file whose weights are used in place has changed: see
  /// MappedFile.
  void requireUnchanged() const;
  /// See MappedFile; used once libraries have made copies.
  void dropPages() const;

private:
  friend class WeightLoader;
  std::vector<SharedMemory> weights;
  std::set<std::shared_ptr<const MappedFile>> files; // that weights are used in place from
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_WEIGHTSTORE_H
