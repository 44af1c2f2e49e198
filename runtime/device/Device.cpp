//===- Device.cpp - what devices share ------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"

#include <chrono>

using namespace gridloom::rt;

int64_t gridloom::rt::getMonotonicTime() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Stream::recordTime(int64_t *nanoseconds) {
  enqueueHost([nanoseconds] { *nanoseconds = getMonotonicTime(); });
}
