//===- NcclTransport.cpp - GPUs connected by NCCL -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclTransport.h"

#include "runtime/comm/nccl/NcclWatchdog.h"

#include <algorithm>

namespace gridloom::rt {

namespace {

class NcclCommunicator final : public Communicator {
public:
  NcclCommunicator(std::shared_ptr<NcclWatchdog> watchdog, CudaDevice &device,
                   std::span<const int> ranks, const std::string &name)
      : watchdog(std::move(watchdog)), device(device) {
    member.name = name;
    member.ranks.assign(ranks.begin(), ranks.end());
    index = static_cast<int>(std::find(ranks.begin(), ranks.end(), this->watchdog->getRank()) -
                             ranks.begin());
  }
  ~NcclCommunicator() override { watchdog->close(member); }

  int getRank() const override { return index; }
  int getSize() const override { return static_cast<int>(member.ranks.size()); }

  void allReduce(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 Reduction reduction, OpContext op) override {
    NcclReduction how = toNcclReduction(type, reduction);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().allReduce(in, out, count, how.type, how.operation, comm, native);
    });
  }

  void allGather(Stream &stream, const void *in, void *out, size_t count, DataType type,
                 OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().allGather(in, out, what.count, what.type, comm, native);
    });
  }

  void reduceScatter(Stream &stream, const void *in, void *out, size_t count, DataType type,
                     Reduction reduction, OpContext op) override {
    NcclReduction how = toNcclReduction(type, reduction);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().reduceScatter(in, out, count, how.type, how.operation, comm, native);
    });
  }

  void allToAll(Stream &stream, const void *in, void *out, size_t count, DataType type,
                OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      if (library().allToAll)
        return library().allToAll(in, out, what.count, what.type, comm, native);
      return exchangeParts(in, out, what, count * sizeOf(type), comm, native);
    });
  }

  void broadcast(Stream &stream, const void *in, void *out, size_t count, DataType type, int root,
                 OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().broadcast(in, out, what.count, what.type, root, comm, native);
    });
  }

  void send(Stream &stream, const void *in, size_t count, DataType type, int peer,
            OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().send(in, what.count, what.type, peer, comm, native);
    });
  }

  void recv(Stream &stream, void *out, size_t count, DataType type, int peer,
            OpContext op) override {
    NcclElements what = toNcclElements(type, count);
    submit(stream, op, [&](nccl::Comm comm, nccl::NativeStream native) {
      return library().recv(out, what.count, what.type, peer, comm, native);
    });
  }

  void barrier(Stream &stream, OpContext op) override {
    if (!token)
      token = device.allocate(sizeof(int32_t));
    allReduce(stream, token->data, token->data, 1, DataType::I32, Reduction::Max, op);
  }

  NcclMember &getMember() { return member; }

private:
  const NcclLibrary &library() const { return watchdog->getLibrary(); }

  template <typename Enqueue> void submit(Stream &stream, const OpContext &op, Enqueue enqueue) {
    auto *cudaStream = dynamic_cast<CudaStream *>(&stream);
    if (!cudaStream)
      throw Error(ErrorCode::InvalidArgument,
                  "NCCL needs a stream of a GPU; run this plan with --transport local");
    watchdog->submit(member, *cudaStream, op, enqueue);
  }

  /// All to all for NCCL before 2.28: in one group, since no send ends before its receive begins.
  nccl::Result exchangeParts(const void *in, void *out, const NcclElements &part, size_t bytes,
                             nccl::Comm comm, nccl::NativeStream native) const {
    nccl::Result result = library().groupStart();
    if (result != nccl::SUCCESS)
      return result;
    for (int peer = 0; peer < getSize() && isAccepted(result); ++peer) {
      size_t offset = static_cast<size_t>(peer) * bytes;
      result = library().send(static_cast<const std::byte *>(in) + offset, part.count, part.type,
                              peer, comm, native);
      if (isAccepted(result))
        result = library().recv(static_cast<std::byte *>(out) + offset, part.count, part.type, peer,
                                comm, native);
    }
    nccl::Result end = library().groupEnd();
    return isAccepted(result) ? end : result;
  }
  static bool isAccepted(nccl::Result result) {
    return result == nccl::SUCCESS || result == nccl::IN_PROGRESS;
  }

  std::shared_ptr<NcclWatchdog> watchdog;
  CudaDevice &device;
  int index;
  NcclMember member;
  std::unique_ptr<Memory> token;
};

class NcclTransport final : public Transport {
public:
  NcclTransport(CudaDevice &device, int rank, int size, NcclOptions options)
      : device(device), size(size) {
    auto library = std::make_shared<const NcclLibrary>(options.library);
    watchdog = std::make_shared<NcclWatchdog>(std::move(library), device.getContext(), rank,
                                              std::move(options));
  }
  ~NcclTransport() override { watchdog->stop(); }

  std::string getName() const override { return "nccl"; }
  int getRank() const override { return watchdog->getRank(); }
  int getSize() const override { return size; }

  std::unique_ptr<Communicator> createCommunicator(std::span<const int> ranks,
                                                   const std::string &name) override;
  void abort(const std::string &reason) override {
    watchdog->abort(Error(ErrorCode::PeerFailed, reason));
  }

private:
  void checkRanks(std::span<const int> ranks, const std::string &name) const;

  CudaDevice &device;
  int size;
  std::shared_ptr<NcclWatchdog> watchdog;
};

} // namespace

void NcclTransport::checkRanks(std::span<const int> ranks, const std::string &name) const {
  bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  bool inWorld = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size;
  if (!ascending || !inWorld || !std::binary_search(ranks.begin(), ranks.end(), getRank()))
    throw Error(ErrorCode::InvalidArgument,
                "communicator " + name + " must name ranks of 0 to " + std::to_string(size - 1) +
                    " in ascending order, rank " + std::to_string(getRank()) + " among them");
}

std::unique_ptr<Communicator> NcclTransport::createCommunicator(std::span<const int> ranks,
                                                                const std::string &name) {
  checkRanks(ranks, name);
  watchdog->poll();
  const NcclLibrary &library = watchdog->getLibrary();
  auto communicator = std::make_unique<NcclCommunicator>(watchdog, device, ranks, name);

  nccl::UniqueId id = {};
  if (communicator->getRank() == 0) {
    nccl::Result result = library.getUniqueId(&id);
    if (result != nccl::SUCCESS)
      throw Error(ErrorCode::Unavailable,
                  "ncclGetUniqueId failed: " + library.describe(result, nullptr) +
                      "; NCCL needs a network interface that is up");
  }
  watchdog->getOptions().exchange(std::as_writable_bytes(std::span(id.bytes)), ranks, name);

  nccl::Config config;
  watchdog->connect(communicator->getMember(), [&](nccl::Comm *handle) {
    return library.commInitRankConfig(handle, communicator->getSize(), id, communicator->getRank(),
                                      &config);
  });
  return communicator;
}

std::unique_ptr<Transport> createNcclTransport(CudaDevice &device, int rank, int size,
                                               NcclOptions options) {
  if (!options.exchange)
    throw Error(ErrorCode::InvalidArgument,
                "NCCL needs a way to exchange its ids: give it a bootstrap transport");
  return std::make_unique<NcclTransport>(device, rank, size, std::move(options));
}

} // namespace gridloom::rt
