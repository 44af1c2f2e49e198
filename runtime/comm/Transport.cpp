//===- Transport.cpp - common parts of transports -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Transport.h"

#include "runtime/device/Device.h"

#include <numeric>

using namespace gridloom::rt;

void Communicator::allGatherMany(Stream &stream, std::span<const GatheredValue> values,
                                 OpContext op) {
  for (const GatheredValue &value : values)
    allGather(stream, value.in, value.out, value.bytes, DataType::U8, op);
}

void Communicator::sendRecv(Stream &stream, const void *in, int to, void *out, int from,
                            size_t count, DataType type, bool receiveFirst, OpContext op) {
  if (receiveFirst)
    recv(stream, out, count, type, from, op);
  send(stream, in, count, type, to, op);
  if (!receiveFirst)
    recv(stream, out, count, type, from, op);
}

std::unique_ptr<Communicator> Transport::split(std::span<const int> ranks,
                                               const std::string &name) {
  return ranks.empty() ? nullptr : createCommunicator(ranks, name);
}

std::unique_ptr<Memory> Transport::allocate(Device &device, size_t bytes) {
  return device.allocate(bytes);
}

void Transport::share(std::span<std::byte> bytes, std::span<const int> ranks,
                      const std::string &name) {
  std::unique_ptr<Communicator> communicator = createCommunicator(ranks, "bootstrap." + name);
  std::unique_ptr<Device> host = createCpuDevice(1);
  std::unique_ptr<Stream> stream = host->createStream(StreamKind::Communication, "bootstrap");
  communicator->broadcast(*stream, bytes.data(), bytes.data(), bytes.size(), DataType::U8, 0,
                          {"share", 0, name});
  stream->synchronize();
}

void Transport::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  std::vector<int> ranks(static_cast<size_t>(getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<Communicator> communicator = createCommunicator(ranks, "bootstrap");
  std::unique_ptr<Device> host = createCpuDevice(1);
  std::unique_ptr<Stream> stream = host->createStream(StreamKind::Communication, "bootstrap");
  communicator->allGather(*stream, mine.data(), all.data(), mine.size(), DataType::U8,
                          {"gather", 0, ""});
  stream->synchronize();
}
