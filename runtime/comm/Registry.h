//===- Registry.h - the transports by name ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A transport is a folder, which defines its kind, and one line of Transports.def. Nothing else
// names the transport.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_REGISTRY_H
#define GRIDLOOM_RUNTIME_COMM_REGISTRY_H

#include "runtime/comm/Transport.h"

namespace gridloom::rt {

/// The arguments of TransportKind::connect.
struct ConnectContext {
  Device &device;
  /// Connects all ranks on host memory; outlives the new transport.
  Transport &host;
  int rank;
  /// The result of TransportKind::prepare, shared by the ranks of this process.
  std::shared_ptr<void> shared;
  TransportOptions limits;
  bool copyEngines = false;
  bool shareDevice = false;
};

/// A way to connect ranks, chosen by `--transport NAME`.
class TransportKind {
public:
  virtual ~TransportKind() = default;
  virtual std::string getName() const = 0;
  /// The kind of devices that it connects: a name of runtime/device/Devices.def.
  virtual std::string getDeviceKind() const = 0;
  /// A few words for --help.
  virtual std::string getSummary() const = 0;

  /// The version of the library that it loads at run time, or "missing"; empty if it loads none.
  virtual std::string findLibrary() const { return ""; }

  /// The ranks are threads of one process that all use one device.
  virtual bool sharesDevice() const { return false; }
  /// Each rank needs its own device.
  virtual bool needsOwnDevices() const { return false; }
  /// It can gather with a GPU's copy engines.
  virtual bool hasCopyEngines() const { return false; }
  /// It can connect a single rank, which shows whether it works on a machine.
  virtual bool connectsOne() const { return false; }

  /// Creates what the ranks of one process share; null if nothing.
  virtual std::shared_ptr<void> prepare(int ranks) const { return nullptr; }
  /// Connects one rank's device; collective over the ranks. Null if `context.host` also serves the
  /// device.
  virtual std::unique_ptr<Transport> connect(const ConnectContext &context) const {
    return nullptr;
  }
};

/// All kinds, in the order of Transports.def: the first for a kind of device is its default.
std::span<const TransportKind *const> getTransportKinds();

/// Throws InvalidArgument with the known names.
const TransportKind &findTransportKind(const std::string &name);

/// The names of the kinds that `accepts` is true for: "nccl or loopback".
std::string listTransports(const std::function<bool(const TransportKind &)> &accepts);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_REGISTRY_H
