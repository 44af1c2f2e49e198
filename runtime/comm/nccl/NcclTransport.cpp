//===- NcclTransport.cpp - GPUs connected by NCCL -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclTransport.h"

#include "runtime/comm/Call.h"
#include "runtime/comm/nccl/NcclWatchdog.h"

#include <algorithm>
#include <numeric>

namespace gridloom::rt {

namespace {

/// About what NCCL takes of a GPU for a communicator: buffers of its channels to some peers.
constexpr uint64_t communicatorBytes = uint64_t(128) << 20;

/// Memory that NCCL made.
struct NcclMemory final : Memory {
  NcclMemory(std::shared_ptr<const NcclLibrary> library, std::shared_ptr<const CudaContext> context,
             void *pointer, size_t size)
      : library(std::move(library)), context(std::move(context)) {
    data = pointer;
    bytes = size;
  }
  ~NcclMemory() override {
    context->useQuietly();
    library->memFree(data);
  }

  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<const CudaContext> context;
};

/// A member that is given up with its last owner.
std::shared_ptr<NcclMember> makeMember(const std::shared_ptr<NcclWatchdog> &watchdog,
                                       std::span<const int> ranks, const std::string &name) {
  auto close = [watchdog](NcclMember *member) {
    watchdog->close(*member);
    delete member;
  };
  std::shared_ptr<NcclMember> member(new NcclMember, close);
  member->name = name;
  member->ranks.assign(ranks.begin(), ranks.end());
  return member;
}

/// NCCL's max and min of floats drop NaN, ours keep it: they are taken of integers in the order of
/// the floats, with NaN at the winning end.
class OrderedFloats {
public:
  OrderedFloats(CudaDevice &device, DataType type, Reduction reduction)
      : bytes(sizeOf(type) == 8 ? 8 : 4),
        ncclType(toNcclElements(bytes == 8 ? DataType::I64 : DataType::I32, 1).type),
        device(device), type(type), reduction(reduction) {}

  bool isNeeded() const {
    return isFloat(type) && (reduction == Reduction::Max || reduction == Reduction::Min);
  }
  bool widens() const { return bytes > sizeOf(type); }
  /// Bytes for integers outside of the result: `apart` operands of a reduce_scatter, and those of
  /// the `gotten` results that are wider.
  size_t countScratch(size_t apart, size_t gotten) const {
    return (apart + (widens() ? gotten : 0)) * bytes;
  }
  void enter(CudaStream &stream, const void *in, void *out, size_t count) const {
    bool isMax = reduction == Reduction::Max;
    device.map(stream, isMax ? MapKind::OrderNanLast : MapKind::OrderNanFirst, type, in, out,
               count);
  }
  void leave(CudaStream &stream, const void *in, void *out, size_t count) const {
    device.map(stream, MapKind::Unorder, type, in, out, count);
  }

  const size_t bytes; // of an integer
  const int ncclType; // of it

private:
  CudaDevice &device;
  DataType type;
  Reduction reduction;
};

class NcclCommunicator final : public Communicator {
public:
  NcclCommunicator(std::shared_ptr<NcclWatchdog> watchdog, CudaDevice &device,
                   std::shared_ptr<NcclMember> made)
      : watchdog(std::move(watchdog)), device(device), member(std::move(made)),
        index(int(std::find(member->ranks.begin(), member->ranks.end(), this->watchdog->getRank()) -
                  member->ranks.begin())) {}

  int getRank() const override { return index; }
  int getSize() const override { return static_cast<int>(member->ranks.size()); }

  void allReduce(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 Reduction reduction, OpContext op) override {
    NcclReduction how = toNcclReduction(type, reduction);
    OrderedFloats ordered(device, type, reduction);
    void *result = out;
    if (ordered.isNeeded()) {
      // 16 bits become 32, which do not fit in place.
      if (ordered.widens())
        result = getScratch(stream, ordered.countScratch(0, count));
      ordered.enter(toCuda(stream), in, result, count);
      in = result;
      how.type = ordered.ncclType;
    }
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().allReduce(in, result, count, how.type, how.operation, comm, native);
    });
    if (ordered.isNeeded())
      ordered.leave(toCuda(stream), result, out, count);
  }

  void allGather(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().allGather(in, out, what.count, what.type, comm, native);
    });
  }

  void allGatherMany(Stream &stream, std::span<const GatheredValue> values, OpContext op) override {
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return runGroup([&] {
        nccl::Result result = nccl::SUCCESS;
        for (const GatheredValue &value : values) {
          NcclElements what = toNcclElements(DataType::U8, value.bytes);
          if (isAccepted(result))
            result = library().allGather(value.in, value.out, what.count, what.type, comm, native);
        }
        return result;
      });
    });
  }

  void reduceScatter(Stream &stream, const void *in, void *out, size_t count, DataType type,
                     Reduction reduction, OpContext op) override {
    NcclReduction how = toNcclReduction(type, reduction);
    OrderedFloats ordered(device, type, reduction);
    void *result = out;
    if (ordered.isNeeded()) {
      size_t all = count * size_t(getSize());
      auto *mapped = static_cast<std::byte *>(getScratch(stream, ordered.countScratch(all, count)));
      ordered.enter(toCuda(stream), in, mapped, all);
      in = mapped;
      if (ordered.widens())
        result = mapped + all * ordered.bytes;
      how.type = ordered.ncclType;
    }
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().reduceScatter(in, result, count, how.type, how.operation, comm, native);
    });
    if (ordered.isNeeded())
      ordered.leave(toCuda(stream), result, out, count);
  }

  void allToAll(Stream &stream, const void *in, void *out, size_t count, DataType type,
                OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      if (library().allToAll)
        return library().allToAll(in, out, what.count, what.type, comm, native);
      return exchangeParts(in, out, what, count * sizeOf(type), comm, native);
    });
  }

  void broadcast(Stream &stream, const void *in, void *out, size_t count, DataType type, int root,
                 OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().broadcast(in, out, what.count, what.type, root, comm, native);
    });
  }

  void send(Stream &stream, const void *in, size_t count, DataType type, int peer,
            OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {peer}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().send(in, what.count, what.type, peer, comm, native);
    });
  }

  void recv(Stream &stream, void *out, size_t count, DataType type, int peer,
            OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {peer}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().recv(out, what.count, what.type, peer, comm, native);
    });
  }

  void barrier(Stream &stream, OpContext op) override {
    if (!token) {
      token = device.allocate(sizeof(int32_t));
      int32_t zero = 0;
      device.copyIn(stream, token->data, &zero, sizeof(zero));
    }
    allReduce(stream, token->data, token->data, 1, DataType::I32, Reduction::Max, op);
  }

  void sendRecv(Stream &stream, const void *in, int to, void *out, int from, size_t count,
                DataType type, bool, OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, {to, from}, [&](nccl::Comm comm, nccl::NativeStream native) {
      return runGroup([&] {
        nccl::Result result = library().send(in, what.count, what.type, to, comm, native);
        return isAccepted(result) ? library().recv(out, what.count, what.type, from, comm, native)
                                  : result;
      });
    });
  }

  void reserveReduction(size_t given, size_t gotten, DataType type, Reduction reduction) override {
    OrderedFloats ordered(device, type, reduction);
    size_t apart = given == gotten ? 0 : given;
    size_t bytes = ordered.isNeeded() ? ordered.countScratch(apart, gotten) : 0;
    if (bytes > (scratch ? scratch->bytes : 0))
      scratch = device.allocate(bytes);
  }

  void registerMemory(const Memory &memory) override {
    if (dynamic_cast<const NcclMemory *>(&memory))
      watchdog->registerMemory(*member, memory);
  }

private:
  const NcclLibrary &library() const { return watchdog->getLibrary(); }

  static CudaStream &toCuda(Stream &stream) {
    if (auto *cudaStream = dynamic_cast<CudaStream *>(&stream))
      return *cudaStream;
    throw Error(ErrorCode::InvalidArgument,
                "NCCL needs a stream of a GPU; run this plan with --transport local");
  }

  /// Memory for operands of NCCL. A stream's workspace is from the driver's pool, which GPUs of the
  /// same process cannot read: it is for calls that were not foreseen.
  void *getScratch(Stream &stream, size_t bytes) {
    if (scratch && bytes <= scratch->bytes)
      return scratch->data;
    return toCuda(stream).getWorkspace(bytes);
  }

  /// `partners`: the other ends of a transfer, as members.
  template <typename Enqueue>
  void submit(Stream &stream, const OpContext &op, std::initializer_list<int> partners,
              Enqueue enqueue) {
    std::vector<int> peers;
    for (int partner : partners)
      if (partner >= 0 && partner < getSize())
        peers.push_back(member->ranks[size_t(partner)]);
    watchdog->submit(*member, toCuda(stream), op, peers, enqueue);
  }

  /// Has the calls of `body` progress together: no send ends before its receive begins.
  template <typename Body> nccl::Result runGroup(Body body) const {
    nccl::Result result = library().groupStart();
    if (result != nccl::SUCCESS)
      return result;
    result = body();
    nccl::Result end = library().groupEnd();
    return isAccepted(result) ? end : result;
  }

  /// All to all for NCCL before 2.28.
  nccl::Result exchangeParts(const void *in, void *out, const NcclElements &part, size_t bytes,
                             nccl::Comm comm, nccl::NativeStream native) const {
    return runGroup([&] {
      nccl::Result result = nccl::SUCCESS;
      for (int peer = 0; peer < getSize() && isAccepted(result); ++peer) {
        size_t offset = static_cast<size_t>(peer) * bytes;
        result = library().send(static_cast<const std::byte *>(in) + offset, part.count, part.type,
                                peer, comm, native);
        if (isAccepted(result))
          result = library().recv(static_cast<std::byte *>(out) + offset, part.count, part.type,
                                  peer, comm, native);
      }
      return result;
    });
  }
  static bool isAccepted(nccl::Result result) {
    return result == nccl::SUCCESS || result == nccl::IN_PROGRESS;
  }

  std::shared_ptr<NcclWatchdog> watchdog;
  CudaDevice &device;
  // Before `member`, whose end ends operations that use them.
  std::unique_ptr<Memory> token, scratch;
  std::shared_ptr<NcclMember> member;
  int index;
};

class NcclTransport final : public Transport {
public:
  NcclTransport(CudaDevice &device, int rank, int size, NcclOptions options)
      : device(device), size(size), library(open(options)),
        watchdog(std::make_shared<NcclWatchdog>(library, device.getContext(), rank,
                                                std::move(options))) {}
  ~NcclTransport() override {
    world.reset();
    watchdog->stop();
  }

  std::string getName() const override { return "nccl"; }
  uint64_t getCommunicatorBytes() const override { return communicatorBytes; }
  int getRank() const override { return watchdog->getRank(); }
  int getSize() const override { return size; }

  std::unique_ptr<Communicator> createCommunicator(std::span<const int> ranks,
                                                   const std::string &name) override;
  std::unique_ptr<Communicator> split(std::span<const int> ranks, const std::string &name) override;
  std::unique_ptr<Memory> allocate(Device &owner, size_t bytes) override;
  // NCCL captures since 2.9, and 2.18 is needed anyway.
  std::string whyNotCapturable() const override { return ""; }
  void abort(const std::string &reason) override {
    watchdog->abort(Error(ErrorCode::PeerFailed, reason));
  }
  void check() override { watchdog->poll(); }

private:
  static std::shared_ptr<const NcclLibrary> open(const NcclOptions &options);
  std::shared_ptr<NcclMember> connect(std::span<const int> ranks, const std::string &name);
  nccl::Config makeConfig() const;
  bool registers() const {
    return watchdog->getOptions().registerBuffers && library->memAlloc && library->memFree &&
           (library->commWindowRegister || library->commRegister);
  }

  CudaDevice &device;
  int size;
  std::shared_ptr<const NcclLibrary> library;
  std::shared_ptr<NcclWatchdog> watchdog;
  /// The first communicator of all ranks: connected once, others are split from it.
  std::shared_ptr<NcclMember> world;
};

} // namespace

std::shared_ptr<const NcclLibrary> NcclTransport::open(const NcclOptions &options) {
  constexpr int firstCopyEngines = 22800;
  auto opened = std::make_shared<const NcclLibrary>(options.library);
  if (options.copyEngines && opened->getVersionCode() < firstCopyEngines)
    throw Error(ErrorCode::Unavailable, "copy engines do collectives since NCCL 2.28.0, this is " +
                                            formatNcclVersion(opened->getVersionCode()) +
                                            "; leave the option out or install a newer libnccl2");
  return opened;
}

nccl::Config NcclTransport::makeConfig() const {
  nccl::Config config;
  if (watchdog->getOptions().copyEngines) {
    config.size = sizeof(config);
    config.version = 22800;
    config.CTAPolicy = nccl::CTA_POLICY_ZERO;
  }
  return config;
}

std::shared_ptr<NcclMember> NcclTransport::connect(std::span<const int> ranks,
                                                   const std::string &name) {
  std::shared_ptr<NcclMember> member = makeMember(watchdog, ranks, name);
  struct {
    nccl::UniqueId id = {};
    int version = 0;
  } shared;
  int own = library->getVersionCode();
  if (ranks.front() == getRank()) {
    shared.version = own;
    nccl::Result result = library->getUniqueId(&shared.id);
    if (result != nccl::SUCCESS)
      throw Error(ErrorCode::Unavailable,
                  "ncclGetUniqueId failed: " + library->describe(result, nullptr) +
                      "; NCCL needs a network interface that is up");
  }
  watchdog->getOptions().exchange(std::as_writable_bytes(std::span(&shared, 1)), ranks, name);
  if (shared.version != own)
    throw Error(ErrorCode::Unavailable,
                "rank " + std::to_string(getRank()) + " has NCCL " + formatNcclVersion(own) +
                    ", rank " + std::to_string(ranks.front()) + " has NCCL " +
                    formatNcclVersion(shared.version) + "; install the same version everywhere");
  nccl::Config config = makeConfig();
  int index = int(std::find(ranks.begin(), ranks.end(), getRank()) - ranks.begin());
  watchdog->connect(*member, [&](nccl::Comm *handle) {
    return library->commInitRankConfig(handle, int(ranks.size()), shared.id, index, &config);
  });
  return member;
}

std::unique_ptr<Communicator> NcclTransport::createCommunicator(std::span<const int> ranks,
                                                                const std::string &name) {
  checkGroup(ranks, getRank(), size, name);
  watchdog->poll();
  std::shared_ptr<NcclMember> member = connect(ranks, name);
  if (int(ranks.size()) == size && !world)
    world = member;
  return std::make_unique<NcclCommunicator>(watchdog, device, std::move(member));
}

std::unique_ptr<Communicator> NcclTransport::split(std::span<const int> ranks,
                                                   const std::string &name) {
  if (!ranks.empty())
    checkGroup(ranks, getRank(), size, name);
  watchdog->poll();
  if (!world) {
    std::vector<int> all(static_cast<size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    world = connect(all, "world");
  }
  // Without shared resources: operations of several communicators run beside each other.
  nccl::Config config = makeConfig();
  std::shared_ptr<NcclMember> member = makeMember(watchdog, ranks, name);
  watchdog->split(*world, *member, ranks.empty() ? int(nccl::SPLIT_NOCOLOR) : ranks.front(),
                  config);
  if (ranks.empty())
    return nullptr;
  return std::make_unique<NcclCommunicator>(watchdog, device, std::move(member));
}

std::unique_ptr<Memory> NcclTransport::allocate(Device &owner, size_t bytes) {
  if (!registers())
    return owner.allocate(bytes);
  constexpr size_t windowAlignment = 4096;
  bytes = (std::max<size_t>(bytes, 1) + windowAlignment - 1) / windowAlignment * windowAlignment;
  device.getContext()->use();
  void *data = nullptr;
  nccl::Result result = library->memAlloc(&data, bytes);
  if (result != nccl::SUCCESS)
    throw Error(ErrorCode::OutOfMemory, "ncclMemAlloc of " + std::to_string(bytes) + " bytes on " +
                                            device.getName() +
                                            " failed: " + library->describe(result, nullptr) +
                                            "; shard over more devices, or use more micro-batches");
  return std::make_unique<NcclMemory>(library, device.getContext(), data, bytes);
}

std::unique_ptr<Transport> createNcclTransport(CudaDevice &device, int rank, int size,
                                               NcclOptions options) {
  if (!options.exchange)
    throw Error(ErrorCode::InvalidArgument,
                "NCCL needs a way to exchange its ids: give it a bootstrap transport");
  return std::make_unique<NcclTransport>(device, rank, size, std::move(options));
}

} // namespace gridloom::rt
