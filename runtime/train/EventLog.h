//===- EventLog.h - what TensorBoard shows of a run -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A folder of event files, `events.out.tfevents.SECONDS.HOST.PID`, one for each time that a run was
// started. A file is records, each of them
//
//   length u64 | masked CRC-32C of these 8 bytes u32 | Event (events.proto) | masked CRC-32C of it
//
// little endian, masked: the checksum's halves of 15 and 17 bits exchanged, plus 0xA282EAD8, as
// TensorFlow's record files have it. The first event has the version "brain.Event:2".
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

/// Where a run that is started again goes on in its folder.
struct EventPlace {
  int64_t step = 0; // what is there of later steps is made again
  /// The evaluation after `step` is made again, too: tags that begin with "eval_".
  bool evaluatesAgain = false;
};

class EventLog {
public:
  /// Throws InvalidArgument where the folder cannot be one of events, or has some and `place` is
  /// not given.
  static void check(const std::filesystem::path &folder, const std::optional<EventPlace> &place);

  /// Moves the event files of a folder into a new one in it, "earlier.1" or the next number, which
  /// TensorBoard shows as another run. Returns it, or "" where there are none. Throws
  /// InvalidArgument with the system's reason.
  static std::filesystem::path moveEarlier(const std::filesystem::path &folder);

  /// Begins a file in the folder, which is made where it is not there. With `place`, what this
  /// program's files there have of later steps is cut off, and readers that have it already are
  /// told. Throws as `check` does, and with the system's reason.
  EventLog(const std::filesystem::path &folder, const std::optional<EventPlace> &place);
  ~EventLog();
  EventLog(const EventLog &) = delete;
  EventLog &operator=(const EventLog &) = delete;

  const std::filesystem::path &getFile() const { return path; }

  /// Numbers by their tags. What is added is in the file after some seconds, or `flush`. Throws
  /// InvalidArgument with the path and the system's reason.
  void add(int64_t step, const std::map<std::string, double> &scalars);
  void add(int64_t step, const std::string &tag, const Histogram &histogram);
  void flush();
  /// Waits until the disk has what is flushed. Any thread may call it beside the others.
  void sync() const;

private:
  struct Closer {
    void operator()(FILE *file) const { fclose(file); }
  };

  void create(const std::filesystem::path &folder, int64_t after);
  void write(events::Event &event);

  std::filesystem::path path;
  std::unique_ptr<FILE, Closer> file;
  double flushed = 0; // seconds since 1970
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRAIN_EVENTLOG_H
