//===- EventLog.h - event files for TensorBoard -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A folder of event files, `events.out.tfevents.SECONDS.HOST.PID`, one per start of a run. A file
// consists of records:
//
//   length u64 | masked CRC-32C of these 8 bytes u32 | Event (events.proto) | masked CRC-32C of it
//
// in little endian, as in TensorFlow's record files. Masked: the checksum rotated right by 15 bits,
// plus 0xA282EAD8. The first event has the version "brain.Event:2".
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRAIN_EVENTLOG_H
#define GRIDLOOM_RUNTIME_TRAIN_EVENTLOG_H

#include "runtime/train/Histogram.h"

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace gridloom::events {
class Event;
} // namespace gridloom::events

namespace gridloom::rt {

/// The point from which a resumed run continues in its folder.
struct EventPlace {
  int64_t step = 0; // the run writes events of later steps again
  /// The run also writes evaluations after `step` again: tags that begin with "eval_".
  bool evaluatesAgain = false;
  /// Of these, the first ones that it does not make again.
  int64_t numKept = 0;
};

class EventLog {
public:
  /// Throws InvalidArgument if the folder is a file, or has events and `place` is not given.
  static void check(const std::filesystem::path &folder, const std::optional<EventPlace> &place);

  /// Moves a folder's event files into a new folder in it, "earlier.1" or the next free number,
  /// which TensorBoard shows as another run. Returns that, or "" if there are none. Throws
  /// InvalidArgument with the system's reason, or if another run still writes one of them.
  static std::filesystem::path moveEarlier(const std::filesystem::path &folder);

  /// Creates a file in the folder, and the folder if necessary. With `place`, cuts off later events
  /// of this program's files there, and tells readers that have already read them. The file is
  /// locked until this object or the process ends. Throws as `check` and `moveEarlier` do.
  EventLog(const std::filesystem::path &folder, const std::optional<EventPlace> &place);
  ~EventLog();
  EventLog(const EventLog &) = delete;
  EventLog &operator=(const EventLog &) = delete;

  const std::filesystem::path &getFile() const { return path; }

  /// Adds numbers by tag. They are in the file after a few seconds, or after `flush`. Throws
  /// InvalidArgument with the path and the system's reason.
  void add(int64_t step, const std::map<std::string, double> &scalars);
  void add(int64_t step, const std::string &tag, const Histogram &histogram);
  void flush();
  /// Waits until flushed events are on disk. May run in another thread at the same time.
  void sync() const;

private:
  struct Closer {
    void operator()(FILE *file) const { fclose(file); }
  };

  void create(const std::filesystem::path &folder, int64_t after);
  void write(events::Event &event);

  std::filesystem::path path;
  std::unique_ptr<FILE, Closer> file;
  int owner = 0;      // the process that made the file
  double flushed = 0; // seconds since 1970
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_EVENTLOG_H
