//===- Placement.cpp - what a rank runs on --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Placement.h"

#include "runtime/comm/loopback/LoopbackTransport.h"
#include "runtime/comm/nccl/NcclTransport.h"
#include "runtime/core/Error.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <algorithm>
#include <array>
#include <unistd.h>

using namespace gridloom::rt;

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

void PlacementOptions::prepare(const std::string &kind, int ranks, bool inProcess,
                               const std::string &subject) {
  onGpu = kind != "cpu";
  if (transport.empty())
    transport = onGpu ? "nccl" : "local";
  if (transport != "local" && transport != "nccl" && transport != "loopback")
    throw refuse("there is no transport '" + transport + "'; there are local, nccl and loopback");
  if (!onGpu && transport != "local")
    throw refuse("--transport " + transport + " joins GPUs, but " + subject + " is for " + kind +
                 "; use --transport local");
  if (onGpu && transport == "local" && ranks > 1)
    throw refuse("--transport local joins CPU ranks, but " + subject +
                 " is for GPUs; use --transport nccl, or loopback to try it on one GPU");
  if (!onGpu && gpu >= 0)
    throw refuse("--device names a GPU, but " + subject + " is for " + kind);
  if (gpu >= 0 && ranks > 1 && transport == "nccl")
    throw refuse("NCCL has one GPU for each rank, so --device cannot be one for all " +
                 std::to_string(ranks) +
                 "; use CUDA_VISIBLE_DEVICES to choose GPUs, or --transport loopback for one GPU");
  if (copyEngines && transport != "nccl")
    throw refuse("--copy-engines is for --transport nccl, not " + transport);
  if (transport != "loopback")
    return;
  if (!inProcess && ranks > 1)
    throw refuse("loopback's ranks are threads of one process, but a launcher started several "
                 "processes; start one, or use --transport nccl");
  gpu = std::max(gpu, 0);
  hub = std::make_shared<LoopbackHub>(ranks);
}

/// Refuses ranks that have the same GPU, which NCCL would refuse in its own words.
static void requireOwnGpus(const CudaDevice &device, Transport &host) {
  struct Place {
    std::array<char, 64> host = {}, uuid = {};
    int ordinal = 0;
  } mine;
  gethostname(mine.host.data(), mine.host.size() - 1);
  const CudaContext &context = *device.getContext();
  context.getUuid().copy(mine.uuid.data(), mine.uuid.size() - 1);
  mine.ordinal = context.getOrdinal();

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
      throw Error(ErrorCode::Unavailable,
                  "ranks " + std::to_string(first) + " and " + std::to_string(other) +
                      " have the same GPU, cuda:" + std::to_string(one.ordinal) +
                      " and cuda:" + std::to_string(two.ordinal) + " of " + one.host.data() +
                      "; give each its own with CUDA_VISIBLE_DEVICES, or put all ranks on one with "
                      "--transport loopback");
    }
}

Placement gridloom::rt::placeRank(const PlacementOptions &options, int rank, int localRank,
                                  int localSize, Transport *host) {
  Placement placement;
  if (!options.onGpu) {
    unsigned share = std::max(1u, getNumUsableCores() / unsigned(std::max(1, localSize)));
    placement.device = createCpuDevice(options.threads ? options.threads : share);
    return placement;
  }
  auto device = std::make_unique<CudaDevice>(options.gpu >= 0 ? options.gpu : localRank);
  if (host && (host->getSize() > 1 || options.connectsOne)) {
    if (options.hub) {
      placement.deviceTransport =
          createLoopbackTransport(*device, options.hub, rank, options.limits);
    } else {
      if (!options.shareGpu)
        requireOwnGpus(*device, *host);
      NcclOptions nccl = makeNcclOptions(*host, options.limits);
      nccl.copyEngines = options.copyEngines;
      placement.deviceTransport =
          createNcclTransport(*device, host->getRank(), host->getSize(), std::move(nccl));
    }
  }
  placement.device = std::move(device);
  return placement;
}
