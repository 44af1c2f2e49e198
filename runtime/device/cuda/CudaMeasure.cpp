//===- CudaMeasure.cpp - time work on a GPU -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/cuda/CudaMeasure.h"

#include <algorithm>

namespace gridloom::rt {

ScratchMemory::ScratchMemory(CudaStream &stream, std::shared_ptr<const CudaContext> owner,
                             size_t bytes)
    : context(std::move(owner)) {
  constexpr size_t least = 256, most = 1 << 20;
  constexpr unsigned exponent = 0x3c; // high byte of 16-bit floats; low bytes vary
  bytes = std::max(bytes, least);
  const cuda::Driver &driver = context->use();
  driver.check(driver.memAlloc(&pointer, bytes), "cuMemAlloc", "measuring algorithms on",
               context->getName());
  std::vector<std::byte> numbers(std::min(bytes, most));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::byte>(i % 2 ? exponent : i * 2654435761u >> 24);
  for (size_t begin = 0; begin < bytes; begin += numbers.size())
    stream.copyIn(static_cast<std::byte *>(get()) + begin, numbers.data(),
                  std::min(numbers.size(), bytes - begin));
}

ScratchMemory::~ScratchMemory() { context->useQuietly().memFree(pointer); }

double measureMicroseconds(CudaStream &stream, const std::shared_ptr<const CudaContext> &context,
                           const std::string &what, const std::function<void()> &submit) {
  constexpr int warmups = 2, rounds = 3, repeats = 5;
  const cuda::Driver &driver = context->use();
  CudaEvent begin(context, /*timed=*/true), end(context, /*timed=*/true);
  for (int i = 0; i < warmups; ++i)
    submit();
  double least = 0;
  for (int round = 0; round < rounds; ++round) {
    stream.record(begin);
    for (int i = 0; i < repeats; ++i)
      submit();
    stream.record(end);
    stream.synchronize();
    float milliseconds = 0;
    driver.check(driver.eventElapsedTime(&milliseconds, begin.getHandle(), end.getHandle()),
                 "cuEventElapsedTime", "measuring", what);
    double each = 1e3 * static_cast<double>(milliseconds) / repeats;
    least = round == 0 ? each : std::min(least, each);
  }
  return least;
}

} // namespace gridloom::rt
