//===- Descriptor.h - owns a file descriptor --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_DESCRIPTOR_H
#define GRIDLOOM_SUPPORT_DESCRIPTOR_H

#include <unistd.h>

namespace gridloom {

/// Closes a descriptor; a negative one is none.
struct Descriptor {
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }

  const int number;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_DESCRIPTOR_H
