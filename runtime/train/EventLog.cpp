//===- EventLog.cpp - event files for TensorBoard -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/EventLog.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/train/CheckpointLock.h"
#include "runtime/train/events.pb.h"
#include "support/Crc32c.h"
#include "support/Descriptor.h"
#include "support/FileSwap.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "records are little endian");

static const char *const kPrefix = "events.out.tfevents.";
static const char *const kVersion = "brain.Event:2";
static const char *const kWriter = "gridloom";
static const char *const kEvaluation = "eval_";
/// Seconds between flushes, so that people can watch a run.
static constexpr double kPause = 2;

static Error refuse(const fs::path &path, const std::string &what) {
  return {ErrorCode::InvalidArgument, "--log-dir: " + path.string() + " " + what};
}

static Error refuseWriting(const fs::path &path) {
  return refuse(path, std::string("cannot be written: ") + strerror(errno));
}

static double getTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

//===----------------------------------------------------------------------===//
// Records
//===----------------------------------------------------------------------===//

static uint32_t getMasked(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8;
}

template <typename T> static std::string_view view(const T &number) {
  return {reinterpret_cast<const char *>(&number), sizeof number};
}

static std::string makeRecord(const std::string &data) {
  uint64_t length = data.size();
  uint32_t ofLength = getMasked(view(length)), ofData = getMasked(data);
  return std::string(view(length)).append(view(ofLength)).append(data).append(view(ofData));
}

/// Removes the first event from `rest`. Nothing if it is damaged or truncated.
static std::optional<events::Event> takeEvent(std::string_view &rest) {
  uint64_t length = 0;
  uint32_t ofLength = 0, ofData = 0;
  constexpr size_t head = sizeof length + sizeof ofLength;
  if (rest.size() < head + sizeof ofData)
    return std::nullopt;
  std::memcpy(&length, rest.data(), sizeof length);
  std::memcpy(&ofLength, rest.data() + sizeof length, sizeof ofLength);
  if (getMasked(view(length)) != ofLength || length > rest.size() - head - sizeof ofData)
    return std::nullopt;
  std::string_view data = rest.substr(head, length);
  std::memcpy(&ofData, rest.data() + head + length, sizeof ofData);
  events::Event event;
  if (getMasked(data) != ofData || !event.ParseFromArray(data.data(), int(data.size())))
    return std::nullopt;
  rest.remove_prefix(head + length + sizeof ofData);
  return event;
}

//===----------------------------------------------------------------------===//
// Existing files
//===----------------------------------------------------------------------===//

/// The event files of a folder, in the order in which TensorBoard reads them.
static std::vector<fs::path> listFiles(const fs::path &folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().filename().string().starts_with(kPrefix))
      files.push_back(entry->path());
  std::ranges::sort(files);
  return files;
}

/// Throws if a run that writes one of the files has not ended: that run would lose its events.
static void requireEnded(const std::vector<fs::path> &files) {
  for (const fs::path &path : files) {
    int flags = O_NONBLOCK | O_CLOEXEC;
    Descriptor file{open(path.c_str(), O_RDWR | flags)}; // NFS locks only what is open for writing
    if (file.number < 0)
      file.number = open(path.c_str(), O_RDONLY | flags);
    if (!takeLock(file.number))
      throw refuse(path,
                   "is another run's that has not ended; wait for it, or name another folder");
  }
}

/// Counts the evaluations that stay in `place`.
static bool isMadeAgain(const events::Event &event, EventPlace &place) {
  if (event.step() != place.step || !place.evaluatesAgain)
    return event.step() > place.step;
  bool isEvaluation =
      std::ranges::any_of(event.summary().value(), [](const events::Summary::Value &value) {
        return value.tag().starts_with(kEvaluation);
      });
  return isEvaluation && place.numKept-- <= 0;
}

/// Cuts off events that the resumed run writes again, and an incomplete last event. Steps ascend in
/// a file, and a step's evaluations come last. Files of other programs are left alone.
static void cut(const fs::path &path, EventPlace &place) {
  std::shared_ptr<const MappedFile> file = MappedFile::open(path);
  std::span<const std::byte> bytes = file->getBytes();
  std::string_view all(reinterpret_cast<const char *>(bytes.data()), bytes.size()), rest = all;
  std::optional<events::Event> event = takeEvent(rest);
  if (!event || event->source_metadata().writer() != kWriter)
    return;
  size_t kept = all.size() - rest.size();
  while ((event = takeEvent(rest))) {
    // The start of a run has the number of its first step; evaluations of the step before may
    // follow.
    if (event->has_session_log() && event->step() == place.step + 1)
      continue;
    if (isMadeAgain(*event, place))
      break;
    kept = all.size() - rest.size();
  }
  if (kept < all.size() && truncate(path.c_str(), off_t(kept)) != 0)
    throw refuseWriting(path);
}

void EventLog::check(const fs::path &folder, const std::optional<EventPlace> &place) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    throw refuse(folder, "is a file; name a folder");
  if (std::vector<fs::path> files = listFiles(folder); !place && !files.empty())
    throw refuse(folder, "has events of another run, " + files.back().filename().string() +
                             "; name a new folder, or continue that run with --resume");
}

fs::path EventLog::moveEarlier(const fs::path &folder) {
  std::vector<fs::path> files = listFiles(folder);
  if (files.empty())
    return "";
  requireEnded(files);
  int number = 1;
  std::error_code error;
  fs::path to;
  do
    to = folder / ("earlier." + std::to_string(number++));
  while (!fs::create_directory(to, error) && !error);
  for (const fs::path &file : files)
    if (!error)
      fs::rename(file, to / file.filename(), error);
  if (error)
    throw refuse(to, "cannot be written: " + error.message());
  return to;
}

//===----------------------------------------------------------------------===//
// A new file
//===----------------------------------------------------------------------===//

/// The time in a file's name, or 0.
static int64_t readTime(const fs::path &path) {
  std::string name = path.filename().string().substr(std::strlen(kPrefix));
  int64_t time = 0;
  std::from_chars(name.data(), name.data() + name.size(), time);
  return time;
}

/// Creates a file whose name sorts after existing ones: its time in seconds is later than `after`.
void EventLog::create(const fs::path &folder, int64_t after) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  for (int64_t time = std::max(int64_t(getTime()), after + 1);; ++time) {
    path = folder / (kPrefix + std::to_string(time) + "." + host + "." + std::to_string(getpid()));
    Descriptor made{open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666)};
    if (made.number < 0 && errno == EEXIST)
      continue; // a container with the same host name and process number has it
    if (made.number >= 0)
      file.reset(fdopen(made.number, "a"));
    if (!file)
      throw refuseWriting(path);
    made.number = -1;
    takeLock(fileno(file.get()));
    owner = getpid();
    return;
  }
}

EventLog::EventLog(const fs::path &folder, const std::optional<EventPlace> &place) {
  check(folder, place);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw refuse(folder, "cannot be made: " + error.message());
  int64_t latest = 0;
  std::vector<fs::path> files = listFiles(folder);
  requireEnded(files); // before anything is cut
  std::optional<EventPlace> left = place;
  for (const fs::path &earlier : files) {
    cut(earlier, *left);
    latest = std::max(latest, readTime(earlier));
  }
  create(folder, latest);
  events::Event first;
  first.set_file_version(kVersion);
  first.mutable_source_metadata()->set_writer(kWriter);
  write(first);
  if (place) {
    events::Event start;
    start.set_step(place->step + 1);
    start.mutable_session_log()->set_status(events::SessionLog::START);
    write(start);
  }
  flush();
  if (std::string reason = syncPath(fs::absolute(folder, error)); !reason.empty())
    throw refuse(folder, "cannot be written: " + reason);
}

EventLog::~EventLog() {
  // Closing it does not unlock it while a process forked meanwhile has it open.
  if (!file || getpid() != owner)
    return;
  fflush(file.get());
  flock(fileno(file.get()), LOCK_UN);
}

void EventLog::write(events::Event &event) {
  event.set_wall_time(getTime());
  std::string record = makeRecord(event.SerializeAsString());
  if (fwrite(record.data(), 1, record.size(), file.get()) != record.size())
    throw refuseWriting(path);
  if (event.wall_time() > flushed + kPause)
    flush();
}

void EventLog::add(int64_t step, const std::map<std::string, double> &scalars) {
  events::Event event;
  event.set_step(step);
  for (const auto &[tag, number] : scalars) {
    events::Summary::Value &value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    value.set_simple_value(float(number));
  }
  write(event);
}

void EventLog::add(int64_t step, const std::string &tag, const Histogram &histogram) {
  events::Event event;
  event.set_step(step);
  events::Summary::Value &value = *event.mutable_summary()->add_value();
  value.set_tag(tag);
  events::Histogram &written = *value.mutable_histogram();
  written.set_min(histogram.min);
  written.set_max(histogram.max);
  written.set_num(double(histogram.numFinite));
  written.set_sum(histogram.sum);
  written.set_sum_squares(histogram.sumOfSquares);
  written.mutable_bucket_limit()->Assign(histogram.limits.begin(), histogram.limits.end());
  written.mutable_bucket()->Assign(histogram.counts.begin(), histogram.counts.end());
  write(event);
}

void EventLog::flush() {
  flushed = getTime();
  if (fflush(file.get()) != 0)
    throw refuseWriting(path);
}

void EventLog::sync() const {
  if (fsync(fileno(file.get())) != 0 && errno != EINVAL && errno != EROFS)
    throw refuseWriting(path);
}
