//===- NcclKind.cpp - registers the transport `nccl` ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Registry.h"
#include "runtime/comm/nccl/NcclLibrary.h"
#include "runtime/comm/nccl/NcclTransport.h"
#include "runtime/core/Error.h"

#include <array>
#include <unistd.h>

using namespace gridloom::rt;

namespace gridloom::rt {
const TransportKind &ncclKind();
} // namespace gridloom::rt

/// Refuses ranks that share a GPU with a clearer error than NCCL's.
static void requireOwnGpus(const CudaDevice &device, Transport &host) {
  struct Place {
    std::array<char, 64> host = {}, uuid = {};
    int ordinal = 0, visible = 0;
  } mine;
  gethostname(mine.host.data(), mine.host.size() - 1);
  const CudaContext &context = *device.getContext();
  context.getUuid().copy(mine.uuid.data(), mine.uuid.size() - 1);
  mine.ordinal = context.getOrdinal();
  mine.visible = countCudaDevices();

  int size = host.getSize(), rank = host.getRank();
  std::vector<Place> places(static_cast<size_t>(size));
  host.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(places)));
  for (int other = 0; other < size; ++other)
    for (int first = 0; first < other; ++first) {
      const Place &one = places[size_t(first)], &two = places[size_t(other)];
      if (one.uuid != two.uuid || !one.uuid[0])
        continue;
      if (rank != first && rank != other)
        throw Error(ErrorCode::PeerFailed, "ranks " + std::to_string(first) + " and " +
                                               std::to_string(other) + " have one GPU");
      auto describe = [](const Place &place) {
        return "cuda:" + std::to_string(place.ordinal) + " of " + std::to_string(place.visible);
      };
      throw Error(ErrorCode::Unavailable,
                  "ranks " + std::to_string(first) + " and " + std::to_string(other) +
                      " have the same GPU, " + describe(one) + " and " + describe(two) +
                      " that they see on " + one.host.data() +
                      "; give each its own with CUDA_VISIBLE_DEVICES, or put all ranks on one with "
                      "--transport loopback");
    }
}

namespace {

class NcclKind final : public TransportKind {
public:
  std::string getName() const override { return "nccl"; }
  std::string getDeviceKind() const override { return "cuda"; }
  std::string getSummary() const override { return "a GPU for each rank"; }
  std::string findLibrary() const override {
    try {
      return formatNcclVersion(NcclLibrary().getVersionCode());
    } catch (const Error &) {
      return "missing";
    }
  }
  bool needsOwnDevices() const override { return true; }
  bool hasCopyEngines() const override { return true; }
  bool connectsOne() const override { return true; }
  std::unique_ptr<Transport> connect(const ConnectContext &context) const override {
    auto &device = static_cast<CudaDevice &>(context.device);
    if (!context.shareDevice)
      requireOwnGpus(device, context.host);
    NcclOptions options = makeNcclOptions(context.host, context.limits);
    options.copyEngines = context.copyEngines;
    return createNcclTransport(device, context.host.getRank(), context.host.getSize(),
                               std::move(options));
  }
};

} // namespace

const TransportKind &gridloom::rt::ncclKind() {
  static const NcclKind kind;
  return kind;
}
