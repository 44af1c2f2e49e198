//===- TrainingLog.cpp - CSV log of steps ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/TrainingLog.h"

#include "runtime/core/Error.h"
#include "runtime/train/CheckpointLock.h"
#include "support/Descriptor.h"
#include "support/FileSwap.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <utility>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static Error refuse(const fs::path &path, const std::string &what) {
  return {ErrorCode::InvalidArgument, "--log " + path.string() + " " + what};
}

/// The metrics of an entry, in the plan's order; a step's loss scale comes first.
static std::vector<std::string> findMetrics(const TrainedEntry &entry) {
  std::vector<std::string> metrics;
  if (std::ranges::count(entry.values, kLossScale))
    metrics.emplace_back(kLossScale);
  for (const std::string &name : entry.values)
    if (isMetric(name))
      metrics.push_back(name);
  return metrics;
}

static std::vector<std::string> findEvalValues(const TrainingSetup &setup) {
  std::vector<std::string> values = {"loss"};
  if (!setup.eval)
    return {};
  for (const std::string &name : findMetrics(*setup.eval))
    values.push_back(name);
  return values;
}

/// Quotes a name for CSV if necessary.
static std::string quote(const std::string &name) {
  if (name.find_first_of(",\"\r\n") == std::string::npos)
    return name;
  std::string quoted = "\"";
  for (char c : makePrintable(name))
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

static std::string makeHeader(const TrainingSetup &setup) {
  std::string header = "step,epoch,first_sample,loss,count,learning_rate,gradient_norm,committed,";
  for (const std::string &name : findMetrics(setup.step))
    header += quote(name) + ",";
  header += "ms";
  for (const std::string &name : findEvalValues(setup))
    header += "," + quote("eval_" + name);
  return header + "\n";
}

/// The last row's text without its evaluation columns, and its offset in `log`; empty if there is
/// none.
static std::pair<std::string, size_t> findLast(const std::string &log, size_t evalValues) {
  size_t begin = log.rfind('\n', log.size() - 2) + 1, end = log.size() - 1;
  for (size_t i = 0; i < evalValues && end != std::string::npos && end > begin; ++i)
    end = log.rfind(',', end - 1);
  bool isThere = begin != 0 && end != std::string::npos && end > begin; // 0: it is the header
  return {isThere ? log.substr(begin, end - begin) : "", begin};
}

/// The rows of an earlier log before the sample `begin.cursor`, with the header; empty if the run
/// ended before it wrote the header.
static std::string readEarlier(const fs::path &path, const TrainingSetup &setup) {
  std::ifstream stream(path, std::ios::binary);
  std::string kept = makeHeader(setup), line;
  if (!stream)
    throw refuse(path, std::string("cannot be read: ") + strerror(errno));
  std::getline(stream, line);
  if (stream.eof() && kept.starts_with(line))
    return "";
  if (line + "\n" != kept)
    throw refuse(path, "is no log of this run: it begins with other columns; name another file");
  while (std::getline(stream, line) && !stream.eof()) { // skips an incomplete line
    size_t at = line.find(',', line.find(',') + 1);
    int64_t first = 0;
    const char *end = line.data() + line.size();
    const char *digits = at == std::string::npos ? end : line.data() + at + 1;
    if (std::from_chars(digits, end, first).ec != std::errc())
      throw refuse(path, "is no log of this run: it has the row '" + line + "'; name another file");
    if (first >= setup.begin.cursor)
      break; // and so are all later rows
    kept += line + "\n";
  }
  return kept;
}

/// Whether the log is an existing regular file; it may also be a terminal or a pipe.
static bool isThere(const fs::path &path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

void TrainingLog::check(const fs::path &path, const TrainingSetup &setup) {
  setup.plan->requireOutside("--log", path);
  std::error_code error;
  if (fs::is_directory(path, error))
    throw refuse(path, "is a folder; name a file");
  if (fs::path folder = fs::absolute(path).parent_path(); !fs::is_directory(folder, error))
    throw refuse(path, "cannot be written: there is no folder " + folder.string());
  if (!isThere(path))
    return;
  if (!setup.settings.resume)
    throw refuse(path, "exists; remove it, or name another file");
  readEarlier(path, setup);
}

/// Opens or creates the file, and locks it.
void TrainingLog::open() {
  for (;;) {
    Descriptor opened{::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)};
    struct stat mine{}, there{};
    if (opened.number < 0 || fstat(opened.number, &mine) != 0)
      throw refuse(path, std::string("cannot be written: ") + strerror(errno));
    if (S_ISREG(mine.st_mode)) {
      if (!takeLock(opened.number))
        throw refuse(path,
                     "is another run's that has not ended; wait for it, or name another file");
      if (stat(path.c_str(), &there) != 0 || there.st_ino != mine.st_ino ||
          there.st_dev != mine.st_dev)
        continue; // the run that held the lock renamed it
    }
    FILE *stream = fdopen(opened.number, "a");
    if (!stream)
      throw refuse(path, std::string("cannot be written: ") + strerror(errno));
    opened.number = -1;
    file.reset(stream);
    isFile = S_ISREG(mine.st_mode);
    return;
  }
}

/// Renames a log with rows if there is no checkpoint: they may be of a run that this one was meant
/// to continue but whose checkpoints are elsewhere.
void TrainingLog::keepEarlier(const TrainingSetup &setup) {
  std::error_code error;
  if (setup.checkpoint || fs::file_size(path, error) <= makeHeader(setup).size() || error)
    return;
  int number = 1;
  do
    keptPath = path.string() + "." + std::to_string(number++);
  while (fs::exists(fs::symlink_status(keptPath, error)));
  fs::rename(path, keptPath, error);
  if (error)
    throw refuse(path, "cannot be renamed to " + keptPath.string() + ": " + error.message());
  open();
}

/// Cuts off rows that the resumed run writes again, and returns the rest.
std::string TrainingLog::readKept(const TrainingSetup &setup) {
  keepEarlier(setup);
  std::string contents = readEarlier(path, setup);
  std::error_code error;
  if (ftruncate(fileno(file.get()), off_t(contents.size())) != 0)
    throw refuse(path, std::string("cannot be written: ") + strerror(errno));
  if (std::string reason = syncPath(fs::absolute(path, error).parent_path()); !reason.empty())
    throw refuse(path, "cannot be written: " + reason);
  return contents;
}

TrainingLog::TrainingLog(fs::path given, const TrainingSetup &setup)
    : path(std::move(given)), values(findMetrics(setup.step)), evalValues(findEvalValues(setup)) {
  open();
  std::string contents = isFile ? readKept(setup) : "";
  if (contents.empty())
    write(contents = makeHeader(setup));
  if (setup.isEvaluatedFirst())
    std::tie(lastRow, lastBegin) = findLast(contents, evalValues.size());
  // Of another step if this one was not logged.
  if (!lastRow.starts_with(std::to_string(setup.getStepsDone(setup.begin.cursor)) + ","))
    lastRow.clear();
}

TrainingLog::~TrainingLog() {
  // After an error, write the rest if possible.
  if (!row.empty())
    row += evaluated + "\n";
  fwrite(row.data(), 1, row.size(), file.get());
}

/// 9 significant digits: an f32 reads back exactly, a double approximately.
static std::string format(double value) {
  char text[64];
  snprintf(text, sizeof text, "%.9g", value);
  return text;
}

static std::string format(const TrainingValues &values, const std::string &name) {
  auto found = values.find(name);
  return found == values.end() ? "" : format(found->second);
}

void TrainingLog::add(const StepRecord &record) {
  flush();
  lastRow.clear();
  row = std::to_string(record.step) + "," + std::to_string(record.epoch) + "," +
        std::to_string(record.cursor) + "," + format(record.values, "loss") + "," +
        format(record.values, "count") + "," + format(record.learningRate) + "," +
        format(record.values, "gradient_norm") + "," + (record.committed ? "1," : "0,");
  for (const std::string &name : values)
    row += format(record.values, name) + ",";
  char text[32];
  snprintf(text, sizeof text, "%.3f", record.milliseconds);
  row += text;
  evaluated = std::string(evalValues.size(), ',');
}

void TrainingLog::add(const EvaluationRecord &record) {
  bool isAgain =
      row.empty() && !lastRow.empty() && ftruncate(fileno(file.get()), off_t(lastBegin)) == 0;
  if (isAgain)
    row = std::exchange(lastRow, "");
  evaluated.clear();
  for (const std::string &name : evalValues)
    evaluated += "," + format(record.values, name);
  if (isAgain) // the row was cut off the file
    flush();
}

void TrainingLog::flush() {
  if (row.empty())
    return;
  row += evaluated + "\n";
  std::string whole = std::exchange(row, "");
  evaluated.clear();
  write(whole);
}

void TrainingLog::flushBeforeEvaluation() {
  if (!isFile || row.empty())
    return;
  struct stat status{};
  if (!evalValues.empty() && fstat(fileno(file.get()), &status) == 0) {
    lastRow = row;
    lastBegin = size_t(status.st_size);
  }
  flush();
}

void TrainingLog::write(std::string_view text) {
  if (fwrite(text.data(), 1, text.size(), file.get()) != text.size() || fflush(file.get()) != 0)
    throw refuse(path, std::string("cannot be written: ") + strerror(errno));
}

void TrainingLog::sync() const {
  // Terminals and pipes cannot be synced.
  if (fsync(fileno(file.get())) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS)
    throw refuse(path, std::string("cannot be written: ") + strerror(errno));
}
