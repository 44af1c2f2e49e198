//===- AutotuneCache.h - measured choices among algorithms ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Libraries have several algorithms for one problem and guess which is fastest. `run --autotune`
// measures them and keeps the best in PLAN/autotune/DEVICE-DRIVER.json. What is measured counts
// from the next load on: ranks whose measurements differ would compute replicas that differ in
// their last bits, so all use what one of them wrote. The file is no part of the plan: checksums do
// not cover it, and a plan without it runs.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_AUTOTUNECACHE_H
#define GRIDLOOM_RUNTIME_DEVICE_AUTOTUNECACHE_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gridloom::rt {

class AutotuneCache {
public:
  /// A library's identification of an algorithm, as bytes, and its time.
  struct Choice {
    std::string algorithm;
    double microseconds = 0, guessMicroseconds = 0; ///< of it, and of the library's first guess
  };

  /// Reads `folder`/`device`.json. A file that is damaged or of another device is as if there were
  /// none, see getComplaint. With `measures`, libraries are to measure what the file lacks.
  AutotuneCache(std::filesystem::path folder, std::string device, bool measures);

  /// Why the file was ignored, one line; empty when it was not.
  const std::string &getComplaint() const { return complaint; }
  /// The choice that was read for a problem. `problem` names the library, its version and all that
  /// the choice depends on.
  std::optional<Choice> find(const std::string &problem) const;
  /// Has the problem measured again: the library does not take the choice that was read.
  void reject(const std::string &problem);
  /// Whether a problem is to be measured: asked to, and neither read nor measured yet.
  bool shouldMeasure(const std::string &problem) const;
  void add(const std::string &problem, Choice choice);

  /// Equal for caches that read equal choices.
  std::string getDigest() const;
  /// Forgets what was read.
  void clear();

  size_t getNumMeasured() const;
  /// The measurements as text, for another rank to merge.
  std::string getMeasured() const;
  /// Adds what another rank measured, but for what is known already.
  void merge(const std::string &measured);
  /// Writes what was read and measured, whole or not at all. Returns why it cannot, or nothing.
  std::string save() const;

private:
  std::filesystem::path getPath() const { return folder / (device + ".json"); }
  void read();

  std::filesystem::path folder;
  std::string device, complaint;
  bool measures;
  mutable std::mutex mutex; // in-process ranks may share a device's libraries
  std::map<std::string, Choice> choices, measured;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_AUTOTUNECACHE_H
