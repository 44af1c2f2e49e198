//===- Presets.h - clusters that are known by name --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_PRESETS_H
#define GRIDLOOM_CLUSTER_PRESETS_H

#include "cluster/Cluster.h"

namespace gridloom::cluster {

/// A kind of host: devices of one kind on one switch, and its network.
struct Preset {
  const char *name;
  const char *kind;
  uint32_t devices;         ///< of a host
  double switchSeconds;     ///< latency between two devices of a host
  double switchBytes;       ///< per second, device and direction, within a host
  double networkSeconds;    ///< latency between two hosts
  double networkBytes;      ///< per second and direction of a network adapter
  bool hasAdapterPerDevice; ///< else one per host
};

std::vector<std::string> listPresets();
std::vector<std::string> listKinds();

/// "a, b"
std::string joinNames(const std::vector<std::string> &names);

/// By name, ignoring case; null if it is unknown.
const DeviceKind *findKind(const std::string &name);
const Preset *findPreset(const std::string &name);
/// The hosts that devices of the kind are usually part of; the kind must exist.
const Preset &getUsualPreset(const std::string &kind);

/// The first `numDevices` devices of as many hosts as needed.
Cluster makeHosts(const Preset &preset, int64_t numDevices);

/// A number of hosts of a preset.
struct PresetHosts {
  const Preset *preset;
  int64_t hosts; ///< at most kMaxDevices + 1
};
/// Reads PRESET or PRESETxN; none for other text.
std::optional<PresetHosts> parsePreset(const std::string &text);

/// The cluster that --cluster names: PRESET, PRESETxN or a file. None, with `error` set, if there
/// is none.
std::optional<Cluster> findCluster(const std::string &text, std::string &error);

/// The cluster that --devices names: COUNT or COUNTxKIND; `usual` is the kind where none is named.
std::optional<Cluster> findDevices(const std::string &text, const std::string &usual,
                                   std::string &error);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_PRESETS_H
