//===- Registry.h - the kinds of devices by name ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A kind of device is a folder and one line of Devices.def. Besides that folder, transports that
// are made for its devices name it. Of CUDA, so does core/: plan and session have the version that
// the kernels need, the C API keeps the caller's context.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_REGISTRY_H
#define GRIDLOOM_RUNTIME_DEVICE_REGISTRY_H

#include "runtime/device/Device.h"

#include <utility>
#include <vector>

namespace gridloom::rt {

/// The device that a rank requests.
struct DeviceRequest {
  int number = -1; ///< of numbered devices; negative: by local rank
  int localRank = 0, localSize = 1;
  unsigned threads = 0; ///< intra-op threads; 0: cores divided by local ranks
};

/// The devices of one kind, for `gridloom devices`.
struct DeviceInventory {
  struct Row {
    std::string device, model, level; ///< cuda:0, NVIDIA H200, sm_90
    std::optional<unsigned> cores;
    uint64_t bytes = 0; ///< of memory
    std::optional<uint64_t> freeBytes;
  };
  std::vector<Row> devices;
  /// Drivers and libraries with their versions, or why there are no devices.
  std::vector<std::pair<std::string, std::string>> fields;
};

/// A kind of device, chosen by a plan's target.
class DeviceKind {
public:
  virtual ~DeviceKind() = default;
  /// As manifests spell `target.kind`: "cpu", "cuda".
  virtual std::string getName() const = 0;
  /// The name of ranks on such devices in messages: "CPU ranks", "GPUs".
  virtual std::string getPlural() const = 0;
  /// Further features that its plans may require, as manifests spell them: "cudnn".
  virtual std::vector<std::string> getFeatures() const { return {}; }
  /// Why this machine cannot run a plan for `arch`, e.g. "x86-64-v4", and the remedy, as a phrase
  /// whose subject is the plan; empty where it can, or where only an open device knows
  /// (Device::checkTarget).
  virtual std::string findObstacle(const std::string &arch) const { return ""; }

  /// A machine has several, which `--device` chooses among.
  virtual bool isNumbered() const { return false; }
  /// Ranks are given intra-op threads.
  virtual bool hasThreads() const { return false; }
  /// Steps can be captured and submitted at once; their times are then the device's own.
  virtual bool hasGraphs() const { return false; }

  /// Throws Unavailable where there is no such device.
  virtual std::unique_ptr<Device> create(const DeviceRequest &request) const = 0;
  virtual DeviceInventory takeInventory() const = 0;
};

/// All kinds, in the order of Devices.def.
std::span<const DeviceKind *const> getDeviceKinds();

/// Null where there is none of this name.
const DeviceKind *findDeviceKind(const std::string &name);

/// "cpu or cuda".
std::string listDeviceKinds();

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_REGISTRY_H
