//===- DeviceKind.h - what devices of a kind can do -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_CLUSTER_DEVICEKIND_H
#define GRIDLOOM_CLUSTER_DEVICEKIND_H

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gridloom::cluster {

/// The class of work: matrix multiplications and convolutions, or all else.
enum class WorkClass : uint8_t { Contraction, Other };
/// The number type of the work.
enum class NumberType : uint8_t { F64, F32, Tf32, Bf16, F16 };

/// Names in files and in IR, in order of the enumerators.
inline constexpr std::array<const char *, 2> kClassNames = {"contraction", "other"};
inline constexpr std::array<const char *, 5> kTypeNames = {"f64", "f32", "tf32", "bf16", "f16"};

/// The share of a peak rate that work of a size reaches: points in order of size, interpolated
/// linearly over the logarithm of the size and constant beyond the ends; 1 without points.
struct EfficiencyCurve {
  std::vector<std::pair<double, double>> points; ///< size, share in (0, 1]

  double at(double size) const;
  /// Whether sizes are finite, above 0 and in order, and shares above 0 and at most 1.
  bool isSound() const;
  bool operator==(const EfficiencyCurve &) const = default;
};

struct DeviceKind {
  std::string name;             ///< H100-80GB
  std::string target;           ///< the --target whose plans it runs: cuda:sm_90; empty: unknown
  int64_t memoryBytes = 0;      ///< 0: unknown
  double bytesPerSecond = 0;    ///< of memory
  double launchSeconds = 0;     ///< per kernel or library call
  double collectiveSeconds = 0; ///< to start a collective or transfer, before its first step
  /// CPU cores that the rates are for; 0: unknown, or no CPU. In a Machine, the cores that one
  /// device has: below 1 if devices take turns.
  double cores = 0;
  /// The share, 0 to 1, of the shorter of arithmetic and memory traffic that the longer does not
  /// hide, by class.
  double unhiddenOfContraction = 0, unhiddenOfOther = 0;
  /// FLOP/s by class and type; 0: not given.
  std::array<std::array<double, kTypeNames.size()>, kClassNames.size()> flopsPerSecond = {};
  std::array<EfficiencyCurve, kClassNames.size()> efficiency; ///< over FLOPs, by class
  EfficiencyCurve memoryEfficiency;                           ///< over bytes

  /// The given rate. A type without one has that of the nearest type: 16 bits for 16 bits, else
  /// f32. Work of class Other without any rate runs at the contractions' rate.
  double getRate(WorkClass work, NumberType type) const;
  double getUnhidden(WorkClass work) const {
    return work == WorkClass::Contraction ? unhiddenOfContraction : unhiddenOfOther;
  }
  bool operator==(const DeviceKind &) const = default;
};

/// A numeric field by its name in files and in IR; the unit is part of the name.
struct NumberField {
  const char *name;
  double DeviceKind::*member;
  bool mayBeZero;
  bool mayBeAbsent;     ///< then it is 0
  bool isShare = false; ///< at most 1
};
std::span<const NumberField> getNumberFields();

/// The kind with `cores` cores, above 0, if the cores of its rates are known: scales rates and
/// bandwidth in proportion. Cores work on equal parts, whose sizes determine the efficiency;
/// devices that take turns at a core also wait for it at each launch.
DeviceKind withCores(const DeviceKind &kind, double cores);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_DEVICEKIND_H
