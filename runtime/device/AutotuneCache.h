//===- AutotuneCache.h - measured choices among algorithms ------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Libraries have several algorithms for one problem and guess which is fastest. `run --autotune`
// measures them and saves the best in PLAN/autotune/DEVICE-DRIVER.json. Measurements are used from
// the next load on: ranks with different algorithms would compute replicas that differ in their
// last bits, so all ranks use one rank's file. The file is not part of the plan: checksums do not
// cover it, and a plan runs without it.
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
  /// An algorithm as the library's opaque bytes, and its time.
  struct Choice {
    std::string algorithm;
    double microseconds = 0, guessMicroseconds = 0; ///< of `algorithm`, of the first guess
  };

  /// Reads `folder`/`device`.json. Ignores a file that is damaged or of another device, see
  /// getComplaint. With `measures`, libraries measure problems that the file lacks.
  AutotuneCache(std::filesystem::path folder, std::string device, bool measures);

  /// Why the file was ignored, one line; empty if it was not.
  const std::string &getComplaint() const { return complaint; }
  /// The choice in the file for a problem. `problem` is a key of the library, its version and
  /// everything that the choice depends on.
  std::optional<Choice> find(const std::string &problem) const;
  /// Drops a choice that the library no longer accepts, so that the problem is measured again.
  void reject(const std::string &problem);
  /// Whether to measure a problem: `measures` is set and there is no choice for it.
  bool shouldMeasure(const std::string &problem) const;
  void add(const std::string &problem, Choice choice);

  /// A digest of the choices that were read.
  std::string getDigest() const;
  /// Drops the choices that were read.
  void clear();

  size_t getNumMeasured() const;
  /// The measurements as text, for `merge` on another rank.
  std::string getMeasured() const;
  /// Adds another rank's measurements of problems that this rank has not measured.
  void merge(const std::string &measured);
  /// Writes all choices to the file atomically. Returns the reason on failure, else "".
  std::string save() const;

private:
  std::filesystem::path getPath() const { return folder / (device + ".json"); }
  void read();

  std::filesystem::path folder;
  std::string device, complaint;
  bool measures;
  mutable std::mutex mutex; // ranks of one process may share a device's libraries
  std::map<std::string, Choice> choices, measured;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_AUTOTUNECACHE_H
