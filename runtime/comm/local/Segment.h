//===- Segment.h - the shared memory of a job on one machine ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One memfd holds everything that local ranks share: who is there, the first failure, and a region
// per communicator. It has no name, so nothing is left behind when all processes are killed, and it
// is sparse: only pages that were written take memory.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENT_H
#define GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENT_H

#include "runtime/comm/local/Futex.h"
#include "runtime/core/Error.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

namespace gridloom::rt {

/// Ranks of one machine; a limit of the segment's table.
inline constexpr int maxLocalRanks = 256;

/// Bytes that a member stages at a time. Large enough that a meeting of all members costs little
/// beside the copies, small enough to stay in the second-level cache.
inline constexpr size_t defaultChunkBytes = 512 << 10;

/// The state of a rank in the segment. The n-th joining of a rank belongs to the job's n-th epoch.
struct alignas(64) RankSlot {
  Counter joins;
  Counter leaves;
  std::atomic<int32_t> pid;
};

/// The first failure of the job, which is everybody's.
struct Failure {
  ErrorCode code;
  int rank;
  std::string text;
};

/// Memory of the segment as this process sees it.
class Mapping {
public:
  Mapping(int fd, uint64_t offset, size_t bytes);
  ~Mapping();
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  std::byte *getData() const { return data; }
  /// Enters all pages into this process's tables at once: cheaper than a fault at each.
  void populate() const;

private:
  std::byte *data;
  size_t bytes;
};

/// Names a communicator: its members, and how many were made over the same members before. Or what
/// one rank allocated: nobody but `owner` asks for it, and peers map it by its offset.
struct RegionKey {
  std::array<uint64_t, maxLocalRanks / 64> members{};
  uint32_t owner = 0; // the rank and one; 0: the members
  uint32_t epoch = 0;
  uint32_t generation = 0;
  bool operator==(const RegionKey &) const = default;
};

class Segment {
public:
  /// Makes a segment for `ranks` ranks; throws InvalidArgument when there are too many, Unavailable
  /// when the system gives no memory file.
  static std::shared_ptr<Segment> create(int ranks, size_t chunkBytes = defaultChunkBytes);
  /// Takes over a descriptor that another process passed; throws InvalidArgument for a foreign one.
  static std::shared_ptr<Segment> adopt(int fd);
  ~Segment();

  int getFd() const { return fd; }
  int getRanks() const;
  size_t getChunkBytes() const;
  /// A random number that identifies this job; it stands in every message.
  uint64_t getJob() const;
  RankSlot &getRank(int rank) const;

  /// Records a failure; false when an earlier one stands.
  bool fail(ErrorCode code, int rank, const std::string &text);
  bool hasFailed() const;
  std::optional<Failure> getFailure() const;

  /// A zero-filled region that all `members` ranks who ask with this key get. Each of them releases
  /// it once. Throws DeadlineExceeded when a stopped process holds the table.
  uint64_t acquireRegion(const RegionKey &key, int members, size_t bytes,
                         std::chrono::milliseconds deadline);
  void releaseRegion(const RegionKey &key) noexcept;
  /// Takes memory for a region now, so that writing to it cannot fail later. Throws OutOfMemory.
  void reserve(uint64_t offset, size_t bytes);
  /// Ranks that are threads of one process get one mapping.
  std::shared_ptr<Mapping> map(uint64_t offset, size_t bytes);

private:
  struct Header;
  struct Region;
  class Lock;
  explicit Segment(int fd);

  int fd;
  std::unique_ptr<Mapping> headerMapping;
  Header *header = nullptr;
  std::mutex mutex;
  std::map<uint64_t, std::weak_ptr<Mapping>> mappings;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOCAL_SEGMENT_H
