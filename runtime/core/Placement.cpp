//===- Placement.cpp - what a rank runs on --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Placement.h"

#include "runtime/core/Error.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <algorithm>
#include <ranges>

using namespace gridloom::rt;

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

void PlacementOptions::prepare(const std::string &deviceKind, int ranks, bool inProcess,
                               const std::string &subject) {
  onGpu = deviceKind != "cpu";
  auto isForDevice = [&](const TransportKind &candidate) {
    return candidate.getDeviceKind() == deviceKind;
  };
  if (transport.empty())
    for (const TransportKind *candidate : getTransportKinds() | std::views::reverse)
      if (isForDevice(*candidate))
        transport = candidate->getName();
  kind = &findTransportKind(transport);
  if (!isForDevice(*kind) && (ranks > 1 || !onGpu))
    throw refuse("--transport " + transport + " joins " +
                 (kind->getDeviceKind() == "cpu" ? "CPU ranks" : "GPUs") + ", but " + subject +
                 " is for " + (onGpu ? "GPUs" : "CPU ranks") + "; use --transport " +
                 listTransports(isForDevice));
  if (!onGpu && gpu >= 0)
    throw refuse("--device names a GPU, but " + subject + " is for " + deviceKind);
  auto sharesDevice = [&](const TransportKind &candidate) { return candidate.sharesDevice(); };
  if (gpu >= 0 && ranks > 1 && kind->needsOwnDevices())
    throw refuse("--transport " + transport +
                 " has one GPU for each rank, so --device cannot be one for all " +
                 std::to_string(ranks) +
                 "; use CUDA_VISIBLE_DEVICES to choose GPUs, or --transport " +
                 listTransports(sharesDevice) + " for one GPU");
  if (copyEngines && !kind->hasCopyEngines())
    throw refuse("--copy-engines is for --transport " +
                 listTransports([](const TransportKind &one) { return one.hasCopyEngines(); }) +
                 ", not " + transport);
  if (!kind->sharesDevice())
    return;
  if (!inProcess && ranks > 1)
    throw refuse("the ranks of --transport " + transport +
                 " are threads of one process, but a launcher started several processes; start "
                 "one, or use --transport " +
                 listTransports([&](const TransportKind &one) {
                   return isForDevice(one) && !one.sharesDevice();
                 }));
  gpu = std::max(gpu, 0);
  shared = kind->prepare(ranks);
}

Placement gridloom::rt::placeRank(const PlacementOptions &options, int rank, int localRank,
                                  int localSize, Transport *host) {
  Placement placement;
  if (options.onGpu) {
    // A launcher may show each process its own GPU only; NCCL's kind finds ranks that share one.
    int gpu = options.gpu >= 0 ? options.gpu : localRank % std::max(1, countCudaDevices());
    placement.device = std::make_unique<CudaDevice>(gpu);
  } else {
    unsigned share = std::max(1u, getNumUsableCores() / unsigned(std::max(1, localSize)));
    placement.device = createCpuDevice(options.threads ? options.threads : share);
  }
  if (host && options.kind && (host->getSize() > 1 || options.connectsOne))
    placement.deviceTransport =
        options.kind->connect({*placement.device, *host, rank, options.shared, options.limits,
                               options.copyEngines, options.shareGpu});
  return placement;
}
