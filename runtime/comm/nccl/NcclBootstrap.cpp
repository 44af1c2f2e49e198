//===- NcclBootstrap.cpp - NCCL's ids through another transport -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclTransport.h"

namespace gridloom::rt {

NcclOptions makeNcclOptions(Transport &bootstrap, const TransportOptions &transport) {
  NcclOptions options;
  options.transport = transport;
  std::shared_ptr<Device> host = createCpuDevice(1);
  options.exchange = [&bootstrap, host](std::span<std::byte> bytes, std::span<const int> ranks,
                                        const std::string &name) {
    auto communicator = bootstrap.createCommunicator(ranks, "bootstrap." + name);
    auto stream = host->createStream(StreamKind::Communication, "bootstrap");
    communicator->broadcast(*stream, bytes.data(), bytes.data(), bytes.size(), DataType::U8, 0,
                            {"nccl_id", 0, name});
    stream->synchronize();
  };
  options.abortPeers = [&bootstrap](const std::string &reason) { bootstrap.abort(reason); };
  return options;
}

} // namespace gridloom::rt
