//===- Segment.cpp - the shared memory of a job on one machine ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/Segment.h"

#include "support/AlignTo.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace gridloom::rt;

static constexpr uint64_t magicNumber = 0x6d6f6f6c64697267; // "gridloom"
static constexpr uint32_t layoutVersion = 3;
static constexpr uint64_t mostBytes = uint64_t(1) << 40; // address space of a sparse file
static constexpr size_t maxRegions = 4096;
static constexpr size_t pageBytes = 4096;

enum FailureState : uint32_t { NoFailure, WritingFailure, FailureStands };

struct Segment::Region {
  RegionKey key;
  uint64_t offset;
  uint64_t bytes;
  uint32_t unreleased; // members that have not released it; 0: free
};

struct Segment::Header {
  std::atomic<uint64_t> magic; // written last
  uint32_t version;
  uint32_t ranks;
  uint64_t chunkBytes;
  uint64_t job;
  uint64_t capacity; // the file's size

  std::atomic<uint32_t> failureState;
  int32_t failureRank;
  uint32_t failureCode;
  char failureText[2048];

  pthread_mutex_t lock; // guards the table of regions
  uint32_t numRegions;
  uint64_t end;
  RankSlot slots[maxLocalRanks];
  Region regions[maxRegions];
};

/// Locks the table. The mutex is robust: if a process is killed while it holds it, the others
/// continue, and at worst a region is leaked.
class Segment::Lock {
public:
  Lock(pthread_mutex_t &mutex, std::chrono::milliseconds deadline) : mutex(mutex) {
    timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += deadline.count() / 1000 + 1;
    int result = pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
    if (result == EOWNERDEAD)
      pthread_mutex_consistent(&mutex);
    else if (result != 0)
      throw Error(ErrorCode::DeadlineExceeded,
                  "another rank of this job has held the table of communicators for " +
                      std::to_string(deadline.count()) + " ms; is it stopped?");
  }
  ~Lock() { pthread_mutex_unlock(&mutex); }
  Lock(const Lock &) = delete;
  Lock &operator=(const Lock &) = delete;

private:
  pthread_mutex_t &mutex;
};

static Error systemError(const std::string &what) {
  return {ErrorCode::Unavailable, what + ": " + strerror(errno)};
}

/// The size of a segment: memory files count for the limit of file sizes, beyond which ftruncate
/// ends the process with SIGXFSZ. Throws Unavailable if the limit is below `least`.
static uint64_t chooseCapacity(uint64_t least) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= mostBytes)
    return mostBytes;
  if (limit.rlim_cur < least)
    throw Error(ErrorCode::Unavailable, "the memory that ranks share is a file of at least " +
                                            std::to_string(least) + " bytes, and files may have " +
                                            std::to_string(limit.rlim_cur) +
                                            " (ulimit -f); raise the limit");
  return limit.rlim_cur / pageBytes * pageBytes;
}

Mapping::Mapping(int fd, uint64_t offset, size_t bytes) : bytes(bytes) {
  void *address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, off_t(offset));
  if (address == MAP_FAILED)
    throw Error(ErrorCode::OutOfMemory, "cannot map " + std::to_string(bytes) +
                                            " bytes of shared memory: " + strerror(errno));
  data = static_cast<std::byte *>(address);
}

Mapping::~Mapping() { munmap(data, bytes); }

void Mapping::populate() const {
#ifdef MADV_POPULATE_WRITE
  madvise(data, bytes, MADV_POPULATE_WRITE); // on older kernels pages fault instead
#endif
}

Segment::Segment(int fd) : fd(fd) {
  try {
    headerMapping = std::make_unique<Mapping>(fd, 0, sizeof(Header));
  } catch (...) {
    close(fd);
    throw;
  }
  header = reinterpret_cast<Header *>(headerMapping->getData());
}

Segment::~Segment() { close(fd); }

std::shared_ptr<Segment> Segment::create(int ranks, size_t chunkBytes) {
  if (ranks < 1 || ranks > maxLocalRanks)
    throw Error(ErrorCode::InvalidArgument, "the local transport joins 1 to " +
                                                std::to_string(maxLocalRanks) + " ranks, not " +
                                                std::to_string(ranks));
  // A member splits its chunk among all members; each part has at least a cache line.
  chunkBytes = std::max(chunkBytes, size_t(64) * size_t(ranks));
  chunkBytes = alignTo(chunkBytes, pageBytes);
  uint64_t capacity = chooseCapacity(alignTo(sizeof(Header), pageBytes));
  int fd = memfd_create("gridloom", MFD_CLOEXEC);
  if (fd < 0)
    throw systemError("cannot make a shared memory file");
  if (ftruncate(fd, off_t(capacity)) != 0) {
    Error error = systemError("cannot size a shared memory file");
    close(fd);
    throw error;
  }
  std::shared_ptr<Segment> segment(new Segment(fd));
  Header &header = *segment->header;
  header.version = layoutVersion;
  header.ranks = uint32_t(ranks);
  header.chunkBytes = chunkBytes;
  header.capacity = capacity;
  if (getrandom(&header.job, sizeof header.job, 0) != sizeof header.job)
    throw systemError("cannot draw a job number");
  header.end = alignTo(sizeof(Header), pageBytes);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header.lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  header.magic.store(magicNumber, std::memory_order_release);
  return segment;
}

std::shared_ptr<Segment> Segment::adopt(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0 || uint64_t(status.st_size) < sizeof(Header)) {
    close(fd);
    throw Error(ErrorCode::InvalidArgument,
                "descriptor " + std::to_string(fd) + " is not the shared memory of a gridloom job");
  }
  std::shared_ptr<Segment> segment(new Segment(fd));
  const Header &header = *segment->header;
  if (header.magic.load(std::memory_order_acquire) != magicNumber ||
      header.version != layoutVersion || header.ranks < 1 || header.ranks > maxLocalRanks ||
      header.capacity != uint64_t(status.st_size))
    throw Error(ErrorCode::InvalidArgument,
                "the shared memory of this job was made by another version of gridloom; start all "
                "ranks with the same one");
  return segment;
}

int Segment::getRanks() const { return int(header->ranks); }
size_t Segment::getChunkBytes() const { return header->chunkBytes; }
uint64_t Segment::getJob() const { return header->job; }
RankSlot &Segment::getRank(int rank) const { return header->slots[rank]; }

bool Segment::fail(ErrorCode code, int rank, const std::string &text) {
  uint32_t expected = NoFailure;
  if (!header->failureState.compare_exchange_strong(expected, WritingFailure))
    return false;
  header->failureCode = uint32_t(code);
  header->failureRank = rank;
  strncpy(header->failureText, text.c_str(), sizeof header->failureText - 1);
  header->failureState.store(FailureStands, std::memory_order_release);
  return true;
}

bool Segment::hasFailed() const {
  return header->failureState.load(std::memory_order_acquire) != NoFailure;
}

std::optional<Failure> Segment::getFailure() const {
  uint32_t state = header->failureState.load(std::memory_order_acquire);
  if (state == NoFailure)
    return std::nullopt;
  // The writer needs only a copy's time, unless it is descheduled or was killed.
  for (int i = 0; state == WritingFailure && i < 1000; ++i) {
    usleep(1000);
    state = header->failureState.load(std::memory_order_acquire);
  }
  if (state == WritingFailure)
    return Failure{ErrorCode::PeerFailed, -1, "a rank failed and died before it could report why"};
  return Failure{ErrorCode(header->failureCode), header->failureRank, header->failureText};
}

uint64_t Segment::acquireRegion(const RegionKey &key, int members, size_t bytes,
                                std::chrono::milliseconds deadline) {
  bytes = alignTo(bytes, pageBytes);
  Lock lock(header->lock, deadline);
  std::span<Region> regions(header->regions, header->numRegions);
  Region *free = nullptr;
  for (Region &region : regions) {
    if (region.unreleased != 0 && region.key == key)
      return region.offset;
    // Only reuse a region of the same size: processes keep mappings by offset.
    if (region.unreleased == 0 && region.bytes == bytes && !free)
      free = &region;
  }
  if (!free) {
    if (header->numRegions == maxRegions)
      throw Error(ErrorCode::OutOfMemory,
                  "the local transport holds at most " + std::to_string(maxRegions) +
                      " communicators and buffers of ranks together, and these are made");
    if (header->capacity - header->end < bytes)
      throw Error(
          ErrorCode::OutOfMemory,
          "the local transport holds at most " + std::to_string(header->capacity) +
              " bytes of all ranks together" + "; " + std::to_string(bytes) + " more are too many" +
              (header->capacity < mostBytes ? "; raise the limit of file sizes (ulimit -f)" : ""));
    free = new (&header->regions[header->numRegions++]) Region{};
    free->offset = header->end;
    free->bytes = bytes;
    header->end += bytes;
  }
  free->key = key;
  free->unreleased = uint32_t(members);
  return free->offset;
}

void Segment::releaseRegion(const RegionKey &key) noexcept try {
  Lock lock(header->lock, std::chrono::milliseconds(1000));
  for (Region &region : std::span(header->regions, header->numRegions))
    if (region.unreleased != 0 && region.key == key) {
      if (region.unreleased == 1)
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(region.offset),
                  off_t(region.bytes));
      --region.unreleased;
      return;
    }
} catch (const Error &) {
  // A stopped process holds the lock; the region stays in use until the job ends.
  return;
}

void Segment::reserve(uint64_t offset, size_t bytes) {
  // Otherwise touching a page that the system cannot allocate would kill the process. Systems
  // without fallocate support allocate on first touch as usual.
  int result;
  do
    result = fallocate(fd, FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(bytes));
  while (result != 0 && errno == EINTR);
  if (result == 0 || (errno != ENOMEM && errno != ENOSPC))
    return;
  throw Error(ErrorCode::OutOfMemory,
              "cannot take " + std::to_string(bytes) +
                  " bytes of shared memory for what ranks exchange: " + strerror(errno) +
                  "; give the job more memory, or run fewer ranks on this machine");
}

std::shared_ptr<Mapping> Segment::map(uint64_t offset, size_t bytes) {
  std::lock_guard guard(mutex);
  std::weak_ptr<Mapping> &known = mappings[offset];
  if (std::shared_ptr<Mapping> mapping = known.lock())
    return mapping;
  auto mapping = std::make_shared<Mapping>(fd, offset, bytes);
  known = mapping;
  return mapping;
}
