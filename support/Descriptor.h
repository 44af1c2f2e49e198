//===- Descriptor.h - owns a file descriptor --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_DESCRIPTOR_H
#define GRIDLOOM_SUPPORT_DESCRIPTOR_H

#include <unistd.h>

#include <utility>

namespace gridloom {

/// Closes a descriptor; a negative one is none.
struct Descriptor {
  explicit Descriptor(int number) : number(number) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }

  /// Closes it now. False, with errno set, where what was written may not have reached the file:
  /// some file systems notice a full disk or a quota only here.
  bool close() { return ::close(std::exchange(number, -1)) == 0; }

  int number;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_DESCRIPTOR_H
