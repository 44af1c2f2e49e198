//===- Registry.cpp - the transports by name ------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Registry.h"

#include "runtime/core/Error.h"
#include "support/Text.h"

#include <algorithm>

namespace gridloom::rt {

#define TRANSPORT(NAME) const TransportKind &NAME##Kind();
#include "runtime/comm/Transports.def"
#undef TRANSPORT

std::span<const TransportKind *const> getTransportKinds() {
  static const TransportKind *const kinds[] = {
#define TRANSPORT(NAME) &NAME##Kind(),
#include "runtime/comm/Transports.def"
#undef TRANSPORT
  };
  return kinds;
}

std::string listTransports(const std::function<bool(const TransportKind &)> &accepts) {
  std::vector<std::string> names;
  for (const TransportKind *kind : getTransportKinds())
    if (accepts(*kind))
      names.push_back(kind->getName());
  return joinWithOr(names);
}

const TransportKind &findTransportKind(const std::string &name) {
  auto kinds = getTransportKinds();
  auto found = std::ranges::find_if(
      kinds, [&](const TransportKind *kind) { return kind->getName() == name; });
  if (found == kinds.end())
    throw Error(ErrorCode::InvalidArgument,
                "unknown transport '" + name + "'; use " +
                    listTransports([](const TransportKind &) { return true; }));
  return **found;
}

} // namespace gridloom::rt
