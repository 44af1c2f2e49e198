//===- DeviceKind.cpp - what devices of a kind can do -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "cluster/DeviceKind.h"

#include <algorithm>
#include <cmath>

using namespace gridloom::cluster;

double EfficiencyCurve::at(double size) const {
  if (points.empty())
    return 1;
  auto next = std::find_if(points.begin(), points.end(),
                           [&](const auto &point) { return point.first >= size; });
  if (next == points.begin())
    return next->second;
  if (next == points.end())
    return points.back().second;
  auto [fromSize, fromShare] = next[-1];
  auto [toSize, toShare] = next[0];
  double way = std::log(size / fromSize) / std::log(toSize / fromSize);
  return fromShare + way * (toShare - fromShare);
}

bool EfficiencyCurve::isSound() const {
  double before = 0;
  for (auto [size, share] : points) {
    if (!(size > before && std::isfinite(size) && share > 0 && share <= 1))
      return false;
    before = size;
  }
  return true;
}

double DeviceKind::getRate(WorkClass work, NumberType type) const {
  auto given = [&](WorkClass of, NumberType in) {
    return flopsPerSecond[static_cast<size_t>(of)][static_cast<size_t>(in)];
  };
  NumberType twin = type == NumberType::F16    ? NumberType::Bf16
                    : type == NumberType::Bf16 ? NumberType::F16
                                               : type;
  for (NumberType candidate : {type, twin, NumberType::F32})
    if (double rate = given(work, candidate))
      return rate;
  return given(WorkClass::Contraction, NumberType::F32);
}

std::span<const NumberField> gridloom::cluster::getNumberFields() {
  static constexpr NumberField fields[] = {
      {"memory_bytes_per_second", &DeviceKind::bytesPerSecond, false, false},
      {"launch_seconds", &DeviceKind::launchSeconds, true, false},
      {"collective_launch_seconds", &DeviceKind::collectiveSeconds, true, false},
      {"cores", &DeviceKind::cores, false, true},
      {"contraction_unhidden", &DeviceKind::unhiddenOfContraction, true, true, true},
      {"other_unhidden", &DeviceKind::unhiddenOfOther, true, true, true}};
  return fields;
}

DeviceKind gridloom::cluster::withCores(const DeviceKind &kind, double cores) {
  DeviceKind scaled = kind;
  if (kind.cores == 0 || kind.cores == cores)
    return scaled;
  double parts = std::max(cores, 1.0) / std::max(kind.cores, 1.0);
  double turns = std::max(1 / cores, 1.0) / std::max(1 / kind.cores, 1.0);
  scaled.cores = cores;
  scaled.bytesPerSecond *= cores / kind.cores;
  scaled.launchSeconds *= turns;
  for (auto &rates : scaled.flopsPerSecond)
    for (double &rate : rates)
      rate *= cores / kind.cores;
  for (EfficiencyCurve *curve :
       {&scaled.efficiency[0], &scaled.efficiency[1], &scaled.memoryEfficiency})
    for (auto &[size, share] : curve->points)
      size *= parts;
  return scaled;
}
