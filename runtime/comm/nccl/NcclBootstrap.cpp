//===- NcclBootstrap.cpp - NCCL's ids through another transport -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/comm/nccl/NcclTransport.h"

#include "runtime/core/Environment.h"

namespace gridloom::rt {

NcclOptions makeNcclOptions(Transport &bootstrap, const TransportOptions &transport) {
  NcclOptions options;
  options.transport = transport;
  options.exchange = [&bootstrap](std::span<std::byte> bytes, std::span<const int> ranks,
                                  const std::string &name) { bootstrap.share(bytes, ranks, name); };
  options.abortPeers = [&bootstrap](const std::string &reason) { bootstrap.abort(reason); };
  options.checkPeers = [&bootstrap] { bootstrap.check(); };
  options.checkAwaited = [&bootstrap](std::span<const int> ranks) {
    bootstrap.checkAwaited(ranks);
  };
  options.progress = bootstrap.getProgressBoard();
  options.registerBuffers = getEnvironment("GRIDLOOM_NCCL_REGISTER", "1") != "0";
  return options;
}

} // namespace gridloom::rt
