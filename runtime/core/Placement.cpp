//===- Placement.cpp - what a rank runs on --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Placement.h"

#include "runtime/comm/nccl/NcclTransport.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <algorithm>

using namespace gridloom::rt;

Placement gridloom::rt::placeRank(const Plan &plan, int localRank, int localSize, unsigned threads,
                                  Transport *host, const TransportOptions &options) {
  Placement placement;
  if (plan.getTargetKind() == "cpu") {
    unsigned share = std::max(1u, getNumUsableCores() / unsigned(std::max(1, localSize)));
    placement.device = createCpuDevice(threads ? threads : share);
    return placement;
  }
  auto device = std::make_unique<CudaDevice>(localRank);
  if (host && host->getSize() > 1)
    placement.deviceTransport = createNcclTransport(*device, host->getRank(), host->getSize(),
                                                    makeNcclOptions(*host, options));
  placement.device = std::move(device);
  return placement;
}
