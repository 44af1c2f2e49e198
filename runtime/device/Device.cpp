//===- Device.cpp - common parts of devices -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <chrono>
#include <vector>

using namespace gridloom::rt;

int64_t gridloom::rt::getMonotonicTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Stream::recordTime(int64_t *nanoseconds) {
  enqueueHost([nanoseconds] { *nanoseconds = getMonotonicTime(); });
}

[[noreturn]] static void failCall(const Device &device, const char *what) {
  throw Error(ErrorCode::Unavailable, "the plan has " + std::string(what) + ", for which " +
                                          device.getName() +
                                          " has no library; compile the model for this device");
}

std::unique_ptr<LibraryPlan> Device::createConvolution(const ConvolutionProblem &) {
  failCall(*this, "a library convolution");
}

std::unique_ptr<LibraryPlan> Device::createAttention(const AttentionProblem &) {
  failCall(*this, "a library attention");
}

void Device::call(Stream &, LibraryPlan &, std::span<const void *const>, void *) {
  failCall(*this, "a library call");
}

void Device::zero(Stream &stream, void *to, size_t bytes) {
  const std::vector<std::byte> zeros(std::min<size_t>(bytes, size_t(1) << 20));
  for (size_t done = 0; done < bytes; done += zeros.size())
    copyIn(stream, static_cast<std::byte *>(to) + done, zeros.data(),
           std::min(bytes - done, zeros.size()));
  stream.synchronize(); // the copies may read `zeros` until then
}

void Device::beginCapture(std::span<Stream *const>) {
  throw Error(ErrorCode::Internal, whyNotCapturable());
}

std::unique_ptr<WorkGraph> Device::endCapture() {
  throw Error(ErrorCode::Internal, whyNotCapturable());
}

void Device::replay(Stream &, WorkGraph &) { throw Error(ErrorCode::Internal, whyNotCapturable()); }
