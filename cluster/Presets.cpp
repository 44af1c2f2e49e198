//===- Presets.cpp - clusters that are known by name ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/Presets.h"

#include "cluster/ClusterFile.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>

using namespace gridloom::cluster;

//===----------------------------------------------------------------------===//
// The tables
//===----------------------------------------------------------------------===//

/// Programs reach about this share of the rates in data sheets, for arithmetic, memory and links
/// alike. Curves over sizes come from measurements.
static constexpr double kReached = 0.8;

static constexpr int64_t kGiB = int64_t(1) << 30;

namespace {
struct KindRow {
  const char *name, *target;
  int64_t memoryGiB;
  double f32, tf32, half, memory; ///< FLOP/s of data sheets, dense; bytes/s
};
} // namespace

/// NVIDIA's data sheets of V100 SXM2, A100 SXM, H100 SXM, H200 SXM, HGX B200 and GB200 NVL72.
/// NCCL's own tuning assumes 7 us to start a collective within a host; a kernel starts in 3 to 4
/// us.
static constexpr KindRow kGpus[] = {
    {"V100-16GB", "", 16, 15.7e12, 0, 125e12, 0.9e12},
    {"A100-80GB", "cuda:sm_80", 80, 19.5e12, 156e12, 312e12, 2.039e12},
    {"H100-80GB", "cuda:sm_90", 80, 67e12, 494e12, 989e12, 3.35e12},
    {"H200-141GB", "cuda:sm_90", 141, 67e12, 494e12, 989e12, 4.8e12},
    {"B200-180GB", "cuda:sm_100", 180, 75e12, 1125e12, 2250e12, 8e12},
    {"GB200-186GB", "cuda:sm_100", 186, 80e12, 1250e12, 2500e12, 8e12},
};

/// NVLink 2 to 5: 150, 300, 450 and 900 GB/s a direction. Networks: 200 Gb/s a GPU (DGX A100), 400
/// (from H100 on), 25 for all of a p3.16xlarge. A process on a CPU talks to its neighbours through
/// shared memory and to other hosts at 10 Gb/s.
static constexpr Preset kPresets[] = {
    {"cpu", "cpu", 64, 40e-6, 2e9, 80e-6, 1.25e9, false},
    {"p3.16xlarge", "V100-16GB", 8, 3e-6, kReached * 150e9, 20e-6, kReached * 3.125e9, false},
    {"DGX-A100", "A100-80GB", 8, 2e-6, kReached * 300e9, 14e-6, kReached * 25e9, true},
    {"HGX-H100", "H100-80GB", 8, 2e-6, kReached * 450e9, 14e-6, kReached * 50e9, true},
    {"HGX-H200", "H200-141GB", 8, 2e-6, kReached * 450e9, 14e-6, kReached * 50e9, true},
    {"HGX-B200", "B200-180GB", 8, 2e-6, kReached * 900e9, 14e-6, kReached * 50e9, true},
    {"GB200-NVL72", "GB200-186GB", 72, 2e-6, kReached * 900e9, 14e-6, kReached * 50e9, true},
};

/// Two cores of a CPU as a rank has them: rates that oneDNN and generated kernels reach.
static DeviceKind makeCpu() {
  DeviceKind kind;
  kind.name = kind.target = "cpu";
  kind.bytesPerSecond = 8e9;
  kind.launchSeconds = 2e-6;
  kind.collectiveSeconds = 40e-6;
  for (auto &rates : kind.flopsPerSecond)
    rates[static_cast<size_t>(NumberType::F32)] = 35e9;
  return kind;
}

static DeviceKind makeGpu(const KindRow &row) {
  DeviceKind kind;
  kind.name = row.name;
  kind.target = row.target;
  kind.memoryBytes = row.memoryGiB * kGiB;
  kind.bytesPerSecond = row.memory;
  kind.launchSeconds = 3e-6;
  kind.collectiveSeconds = 7e-6;
  auto &[contraction, other] = kind.flopsPerSecond;
  contraction[static_cast<size_t>(NumberType::F32)] = row.f32;
  contraction[static_cast<size_t>(NumberType::Tf32)] = row.tf32;
  contraction[static_cast<size_t>(NumberType::F16)] = row.half; // bf16 alike
  other[static_cast<size_t>(NumberType::F32)] = row.f32;
  for (EfficiencyCurve *curve : {&kind.efficiency[0], &kind.efficiency[1], &kind.memoryEfficiency})
    curve->points = {{1, kReached}};
  return kind;
}

static std::span<const DeviceKind> getKinds() {
  static const std::vector<DeviceKind> kinds = [] {
    std::vector<DeviceKind> list = {makeCpu()};
    for (const KindRow &row : kGpus)
      list.push_back(makeGpu(row));
    return list;
  }();
  return kinds;
}

//===----------------------------------------------------------------------===//
// Look-up
//===----------------------------------------------------------------------===//

static bool isSameName(const std::string &a, const std::string &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::vector<std::string> gridloom::cluster::listPresets() {
  std::vector<std::string> names;
  for (const Preset &preset : kPresets)
    names.emplace_back(preset.name);
  return names;
}

std::vector<std::string> gridloom::cluster::listKinds() {
  std::vector<std::string> names;
  for (const DeviceKind &kind : getKinds())
    names.push_back(kind.name);
  return names;
}

std::string gridloom::cluster::joinNames(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

const DeviceKind *gridloom::cluster::findKind(const std::string &name) {
  for (const DeviceKind &kind : getKinds())
    if (isSameName(kind.name, name))
      return &kind;
  return nullptr;
}

const Preset *gridloom::cluster::findPreset(const std::string &name) {
  for (const Preset &preset : kPresets)
    if (isSameName(preset.name, name))
      return &preset;
  return nullptr;
}

const Preset &gridloom::cluster::getUsualPreset(const std::string &kind) {
  for (const Preset &preset : kPresets)
    if (isSameName(preset.kind, kind))
      return preset;
  return kPresets[0];
}

Cluster gridloom::cluster::makeHosts(const Preset &preset, int64_t numDevices) {
  auto count = static_cast<uint32_t>(numDevices);
  uint32_t hosts = (count + preset.devices - 1) / preset.devices, network = count + hosts;
  Cluster cluster;
  cluster.name = preset.name + (hosts > 1 ? "x" + std::to_string(hosts) : "");
  cluster.kinds = {*findKind(preset.kind)};
  cluster.devices.assign(count, 0);
  cluster.numSwitches = hosts + (hosts > 1 ? 1 : 0);
  auto add = [&](uint32_t from, uint32_t to, double seconds, double bytes) {
    cluster.links.push_back({from, to, seconds / 2, {bytes, bytes}});
  };
  for (uint32_t device = 0; device < count; ++device) {
    add(device, count + device / preset.devices, preset.switchSeconds, preset.switchBytes);
    if (hosts > 1 && preset.hasAdapterPerDevice)
      add(device, network, preset.networkSeconds, preset.networkBytes);
  }
  if (hosts > 1 && !preset.hasAdapterPerDevice)
    for (uint32_t host = 0; host < hosts; ++host)
      add(count + host, network, preset.networkSeconds, preset.networkBytes);
  return cluster;
}

/// The text as a whole number of at least 1, capped at kMaxDevices + 1; 0 if it is none.
static int64_t parseCount(std::string_view text) {
  int64_t count = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (end != text.data() + text.size() || text.empty() || count < 0)
    return 0;
  return code == std::errc() ? std::min(count, kMaxDevices + 1) : kMaxDevices + 1;
}

std::optional<PresetHosts> gridloom::cluster::parsePreset(const std::string &text) {
  // A preset's own name may have an x.
  if (const Preset *preset = findPreset(text))
    return PresetHosts{preset, 1};
  size_t at = text.rfind('x');
  if (at == std::string::npos)
    return std::nullopt;
  const Preset *preset = findPreset(text.substr(0, at));
  int64_t hosts = parseCount(std::string_view(text).substr(at + 1));
  return preset && hosts ? std::optional(PresetHosts{preset, hosts}) : std::nullopt;
}

std::optional<Cluster> gridloom::cluster::findCluster(const std::string &text, std::string &error) {
  std::error_code code;
  if (text.ends_with(".json") || text.find('/') != std::string::npos ||
      (!findPreset(text) && std::filesystem::exists(text, code)))
    return readCluster(text, error);
  std::optional<PresetHosts> found = parsePreset(text);
  if (!found) {
    size_t at = text.rfind('x');
    bool hasHosts =
        at != std::string::npos && parseCount(std::string_view(text).substr(at + 1)) > 0;
    error = "unknown --cluster '" + makePrintable(text) + "'" +
            suggest(hasHosts ? text.substr(0, at) : text, listPresets()) +
            "; write a file, or one of " + joinNames(listPresets()) +
            ", with xN behind it for N hosts";
    return std::nullopt;
  }
  auto [preset, hosts] = *found;
  if (hosts > kMaxDevices / preset->devices) {
    error = "--cluster " + makePrintable(text) + " has more than " + std::to_string(kMaxDevices) +
            " devices";
    return std::nullopt;
  }
  Cluster cluster = makeHosts(*preset, hosts * preset->devices);
  cluster.name = text;
  return cluster;
}

std::optional<Cluster> gridloom::cluster::findDevices(const std::string &text,
                                                      const std::string &usual,
                                                      std::string &error) {
  size_t at = text.find('x');
  std::string kind = at == std::string::npos ? usual : text.substr(at + 1);
  int64_t count = parseCount(std::string_view(text).substr(0, at));
  if (count < 1) {
    error = "cannot read --devices '" + makePrintable(text) +
            "'; write COUNT or COUNTxNAME, e.g. 4 or 8xH100-80GB";
  } else if (!findKind(kind)) {
    error = "--devices names '" + makePrintable(kind) + "'" + suggest(kind, listKinds()) +
            "; known are " + joinNames(listKinds());
  } else if (count > kMaxDevices) {
    error = "--devices " + makePrintable(text) + " are too many; the most are " +
            std::to_string(kMaxDevices);
  } else {
    Cluster cluster = makeHosts(getUsualPreset(kind), count);
    cluster.name = text;
    return cluster;
  }
  return std::nullopt;
}
