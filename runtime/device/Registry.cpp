//===- Registry.cpp - the kinds of devices by name ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/Registry.h"

#include "support/Text.h"

namespace gridloom::rt {

#define DEVICE(NAME) const DeviceKind &NAME##Devices();
#include "runtime/device/Devices.def"
#undef DEVICE

std::span<const DeviceKind *const> getDeviceKinds() {
  static const DeviceKind *const kinds[] = {
#define DEVICE(NAME) &NAME##Devices(),
#include "runtime/device/Devices.def"
#undef DEVICE
  };
  return kinds;
}

const DeviceKind *findDeviceKind(const std::string &name) {
  for (const DeviceKind *kind : getDeviceKinds())
    if (kind->getName() == name)
      return kind;
  return nullptr;
}

std::string listDeviceKinds() {
  std::vector<std::string> names;
  for (const DeviceKind *kind : getDeviceKinds())
    names.push_back(kind->getName());
  return joinWithOr(names);
}

} // namespace gridloom::rt
