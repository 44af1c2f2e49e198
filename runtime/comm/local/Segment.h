//===- Segment.h - the shared memory of a job on one machine ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One memfd holds everything that local ranks share: membership, the first failure, and a region
// per communicator. It has no name, so nothing remains when all processes are killed, and it is
// sparse: only written pages take memory.
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

/// Bytes that a member stages at a time: large enough that synchronising all members costs little
/// beside the copies, small enough for the L2 cache.
inline constexpr size_t defaultChunkBytes = 512 << 10;

/// The state of a rank in the segment. A rank's n-th join belongs to the job's n-th epoch.
struct alignas(64) RankSlot {
  Counter joins;
  Counter leaves;
  std::atomic<int32_t> pid;
};

/// The first failure of the job, which all ranks report.
struct Failure {
  ErrorCode code;
  int rank;
  std::string text;
};

/// A part of the segment, mapped into this process.
class Mapping {
public:
  Mapping(int fd, uint64_t offset, size_t bytes);
  ~Mapping();
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  std::byte *getData() const { return data; }
  /// Maps all pages at once, which is cheaper than a fault for each.
  void populate() const;

private:
  std::byte *data;
  size_t bytes;
};

/// Identifies a region: of a communicator, by its members and how many communicators they created
/// before; or an allocation of one rank, which only `owner` looks up and peers map by its offset.
struct RegionKey {
  std::array<uint64_t, maxLocalRanks / 64> members{};
  uint32_t owner = 0; // rank + 1; 0: a communicator's region
  uint32_t epoch = 0;
  uint32_t generation = 0;
  bool operator==(const RegionKey &) const = default;
};

class Segment {
public:
  /// Creates a segment for `ranks` ranks, as large as this process's files may be; throws
  /// InvalidArgument if there are too many ranks, Unavailable if there is no room for its tables or
  /// memfd_create fails.
  static std::shared_ptr<Segment> create(int ranks, size_t chunkBytes = defaultChunkBytes);
  /// Takes a descriptor from another process; throws InvalidArgument if it is not a segment of
  /// ours.
  static std::shared_ptr<Segment> adopt(int fd);
  ~Segment();

  int getFd() const { return fd; }
  int getRanks() const;
  size_t getChunkBytes() const;
  /// A random number that identifies this job in every message.
  uint64_t getJob() const;
  RankSlot &getRank(int rank) const;

  /// Records a failure; false if there is an earlier one.
  bool fail(ErrorCode code, int rank, const std::string &text);
  bool hasFailed() const;
  std::optional<Failure> getFailure() const;

  /// A zero-filled region, the same for all `members` ranks that pass this key; each must release
  /// it once. Throws DeadlineExceeded if a stopped process holds the table's lock.
  uint64_t acquireRegion(const RegionKey &key, int members, size_t bytes,
                         std::chrono::milliseconds deadline);
  void releaseRegion(const RegionKey &key) noexcept;
  /// Allocates the region's memory now, so that writing to it cannot fail later. Throws
  /// OutOfMemory.
  void reserve(uint64_t offset, size_t bytes);
  /// Maps a region; shared by ranks that are threads of one process.
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
