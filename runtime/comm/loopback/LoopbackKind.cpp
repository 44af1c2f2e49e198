//===- LoopbackKind.cpp - registers the transport `loopback` --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/Registry.h"
#include "runtime/comm/loopback/LoopbackTransport.h"

using namespace gridloom::rt;

namespace gridloom::rt {
const TransportKind &loopbackKind();
} // namespace gridloom::rt

namespace {

class LoopbackKind final : public TransportKind {
public:
  std::string getName() const override { return "loopback"; }
  std::string getDeviceKind() const override { return "cuda"; }
  std::string getSummary() const override { return "all ranks on one GPU, to check a split"; }
  bool sharesDevice() const override { return true; }
  std::shared_ptr<void> prepare(int ranks) const override {
    return std::make_shared<LoopbackHub>(ranks);
  }
  std::unique_ptr<Transport> connect(const ConnectContext &context) const override {
    return createLoopbackTransport(static_cast<CudaDevice &>(context.device),
                                   std::static_pointer_cast<LoopbackHub>(context.shared),
                                   context.rank, context.limits);
  }
};

} // namespace

const TransportKind &gridloom::rt::loopbackKind() {
  static const LoopbackKind kind;
  return kind;
}
