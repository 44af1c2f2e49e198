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

/// What computes: matrix multiplications and convolutions, or all else.
enum class WorkClass : uint8_t { Contraction, Other };
/// What it computes in.
enum class NumberType : uint8_t { F64, F32, Tf32, Bf16, F16 };

/// Names in files and in IR, in order of the enumerators.
inline constexpr std::array<const char *, 2> kClassNames = {"contraction", "other"};
inline constexpr std::array<const char *, 5> kTypeNames = {"f64", "f32", "tf32", "bf16", "f16"};

/// The share of a peak rate that work of a size reaches: points in order of size, straight lines
/// over the logarithm of the size between them, level beyond them; 1 without points.
struct EfficiencyCurve {
  std::vector<std::pair<double, double>> points; ///< size, share in (0, 1]

  double at(double size) const;
  /// Whether sizes are finite, above 0 and in order, and shares above 0 and at most 1.
  bool isSound() const;
  bool operator==(const EfficiencyCurve &) const = default;
};

struct DeviceKind {
  std::string name;             ///< H100-80GB
  std::string target;           ///< the --target whose plans it runs: cuda:sm_90; empty: not known
  int64_t memoryBytes = 0;      ///< 0: no limit is known
  double bytesPerSecond = 0;    ///< of memory
  double launchSeconds = 0;     ///< per kernel or library call
  double collectiveSeconds = 0; ///< to start a collective or transfer, before its first step
  /// CPU cores that the rates are those of; 0: not known, or no CPU. In a Machine, the cores that a
  /// device has: below 1 where devices take turns.
  double cores = 0;
  /// Of arithmetic and memory traffic the longer hides the shorter but for this share of it, from 0
  /// to 1: by class.
  double unhiddenOfContraction = 0, unhiddenOfOther = 0;
  /// FLOP/s by class and type; 0: not given.
  std::array<std::array<double, kTypeNames.size()>, kClassNames.size()> flopsPerSecond = {};
  std::array<EfficiencyCurve, kClassNames.size()> efficiency; ///< over FLOPs, by class
  EfficiencyCurve memoryEfficiency;                           ///< over bytes

  /// The given rate; where the type has none, that of the nearest type that has one: 16 bits for
  /// 16 bits, else f32. Work of class Other without any rate is done at the contractions'.
  double getRate(WorkClass work, NumberType type) const;
  double getUnhidden(WorkClass work) const {
    return work == WorkClass::Contraction ? unhiddenOfContraction : unhiddenOfOther;
  }
  bool operator==(const DeviceKind &) const = default;
};

/// A number of a kind by its name in files and in IR; the unit is part of the name.
struct NumberField {
  const char *name;
  double DeviceKind::*member;
  bool mayBeZero;
  bool mayBeAbsent;     ///< where it is 0
  bool isShare = false; ///< at most 1
};
std::span<const NumberField> getNumberFields();

/// The kind as it is with so many cores, more than 0, where those of its rates are known: rates and
/// bandwidth are in proportion. Cores work on equal parts, whose sizes are what efficiency depends
/// on; devices that take turns at a core wait for it at each launch, too.
DeviceKind withCores(const DeviceKind &kind, double cores);

} // namespace gridloom::cluster

#endif // GRIDLOOM_CLUSTER_DEVICEKIND_H
