//===- LocalKind.cpp - registers the transport `local` --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Registry.h"

using namespace gridloom::rt;

namespace gridloom::rt {
const TransportKind &localKind();
} // namespace gridloom::rt

namespace {

/// CPU ranks use the host's transport.
class LocalKind final : public TransportKind {
public:
  std::string getName() const override { return "local"; }
  std::string getDeviceKind() const override { return "cpu"; }
  std::string getSummary() const override { return "shared memory"; }
};

} // namespace

const TransportKind &gridloom::rt::localKind() {
  static const LocalKind kind;
  return kind;
}
