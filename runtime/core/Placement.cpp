//===- Placement.cpp - device and transport of a rank ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Placement.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <ranges>

using namespace gridloom::rt;

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

void PlacementOptions::prepare(const std::string &deviceKind, int ranks, bool inProcess,
                               const std::string &subject) {
  device = findDeviceKind(deviceKind);
  if (!device)
    throw refuse("unknown kind of device '" + deviceKind + "'; this runtime knows " +
                 listDeviceKinds());
  auto isForDevice = [&](const TransportKind &candidate) {
    return candidate.getDeviceKind() == deviceKind;
  };
  if (transport.empty())
    for (const TransportKind *candidate : getTransportKinds() | std::views::reverse)
      if (isForDevice(*candidate))
        transport = candidate->getName();
  kind = &findTransportKind(transport);
  if (!isForDevice(*kind) && (ranks > 1 || !device->isNumbered()))
    throw refuse("--transport " + transport + " joins " +
                 findDeviceKind(kind->getDeviceKind())->getPlural() + ", but " + subject +
                 " is for " + device->getPlural() + "; use --transport " +
                 listTransports(isForDevice));
  if (!device->isNumbered() && gpu >= 0)
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
  placement.device = options.device->create({options.gpu, localRank, localSize, options.threads});
  if (host && options.kind && (host->getSize() > 1 || options.connectsOne))
    placement.deviceTransport =
        options.kind->connect({*placement.device, *host, rank, options.shared, options.limits,
                               options.copyEngines, options.shareGpu});
  return placement;
}
