//===- PlanFolder.cpp - a plan's files on disk ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// There is the old plan or the new one, whatever happens: a signal, a kill, a power failure.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/PlanWriter.h"
#include "runtime/core/Descriptor.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

using namespace gridloom;
using rt::Descriptor;
namespace fs = std::filesystem;

static volatile sig_atomic_t pendingSignal = 0;

namespace {
/// Signals that end a program wait until the object goes. They are caught, not blocked: a mask is a
/// thread's own, and the process has others that would take them.
class SignalPause {
public:
  SignalPause() {
    pendingSignal = 0;
    struct sigaction action = {};
    action.sa_handler = [](int signal) { pendingSignal = signal; };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < std::size(signals); ++i) {
      sigaction(signals[i], nullptr, &old[i]);
      if (old[i].sa_handler != SIG_IGN)
        sigaction(signals[i], &action, nullptr);
    }
  }
  SignalPause(const SignalPause &) = delete;
  SignalPause &operator=(const SignalPause &) = delete;
  ~SignalPause() {
    for (size_t i = 0; i < std::size(signals); ++i)
      sigaction(signals[i], &old[i], nullptr);
    if (int signal = pendingSignal)
      raise(signal);
  }

private:
  static constexpr int signals[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction old[std::size(signals)];
};

} // namespace

/// Writes a new file; the error's reason, or nothing.
static std::string writeFile(const fs::path &path, const std::string &contents) {
  Descriptor file{open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (file.number < 0)
    return strerror(errno);
  for (size_t done = 0; done < contents.size();) {
    ssize_t written = write(file.number, contents.data() + done, contents.size() - done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return strerror(errno);
    done += size_t(written);
  }
  return "";
}

/// Sees that a file or folder is on the disk; the error's reason, or nothing.
static std::string syncPath(const fs::path &path) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  // Some file systems have nothing to sync folders with.
  if (file.number < 0 || (fsync(file.number) != 0 && errno != EINVAL && errno != ENOTSUP))
    return strerror(errno);
  return "";
}

/// Writes all files below `folder`, which is new. One line, or nothing.
static std::string writeFiles(const PlanFiles &files, const fs::path &folder, bool durable) {
  std::set<fs::path> folders = {folder};
  for (const auto &[name, contents] : files) {
    fs::path path = folder / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      return "cannot make the folder '" + path.parent_path().string() + "': " + error.message();
    if (std::string reason = writeFile(path, contents); !reason.empty())
      return "cannot write '" + path.string() + "': " + reason;
    folders.insert(path.parent_path());
  }
  if (!durable)
    return "";
  for (const auto &[name, contents] : files)
    if (std::string reason = syncPath(folder / name); !reason.empty())
      return "cannot write '" + (folder / name).string() + "': " + reason;
  for (const fs::path &path : folders)
    if (std::string reason = syncPath(path); !reason.empty())
      return "cannot write '" + path.string() + "': " + reason;
  return "";
}

/// Puts `fresh` where `folder` is; what was there is then called `fresh` where that could be done
/// in one step, else `old`.
static std::string exchange(const fs::path &fresh, const fs::path &folder, const fs::path &old) {
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0)
    return "";
  std::error_code error;
  // There is nothing yet, or the file system cannot exchange.
  bool had = fs::exists(folder, error);
  if (had)
    fs::rename(folder, old, error);
  if (!error)
    fs::rename(fresh, folder, error);
  if (!error)
    return "";
  std::string message = error.message();
  if (had && !fs::exists(folder, error))
    fs::rename(old, folder, error);
  return message;
}

/// Whether a manifest is a plan's: other programs' files have this name too.
static bool isPlanManifest(const fs::path &path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.find("\"producer\": \"gridloom") != std::string::npos;
}

/// What a folder holds that no plan has: the first by name, or nothing.
static std::string findForeign(const fs::path &folder) {
  static const std::set<std::string> own = {"autotune", "ir", "kernels", "manifest.json",
                                            "report.json"};
  std::set<std::string> foreign;
  std::error_code error;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder, error))
    if (std::string name = entry.path().filename().string();
        !own.count(name) && !(name.starts_with("stage") && name.ends_with(".pb")))
      foreign.insert(name);
  return foreign.empty() ? "" : *foreign.begin();
}

std::string gridloom::findPlanObstacle(const fs::path &folder, bool force) {
  std::error_code error;
  if (force || !fs::exists(folder, error) ||
      (fs::is_directory(folder, error) && fs::is_empty(folder, error)))
    return "";
  const char *remedy = "; choose another --output, or --force to replace it";
  if (!isPlanManifest(folder / "manifest.json"))
    return "'" + folder.string() + "' exists and is not a plan" + remedy;
  if (std::string foreign = findForeign(folder); !foreign.empty())
    return "'" + folder.string() + "' holds '" + foreign + "' beside a plan" + remedy;
  return "";
}

std::string gridloom::writePlan(const PlanFiles &files, const fs::path &folder, bool force,
                                bool durable, const PlanCheck &check) {
  SignalPause pause;
  std::error_code error;
  if (std::string obstacle = findPlanObstacle(folder, force); !obstacle.empty())
    return obstacle;
  fs::path plain = folder.has_filename() ? folder : folder.parent_path(); // "m.plan/"
  fs::path fresh = plain.string() + ".tmp-" + std::to_string(::getpid());
  fs::path old = plain.string() + ".old-" + std::to_string(::getpid());
  fs::remove_all(fresh, error);
  std::string message = writeFiles(files, fresh, durable);
  if (message.empty() && check)
    message = check(fresh);
  if (message.empty())
    if (std::string reason = exchange(fresh, plain, old); !reason.empty())
      message = "cannot move the plan to '" + folder.string() + "': " + reason;
  fs::remove_all(fresh, error);
  if (message.empty()) {
    fs::remove_all(old, error);
    if (durable)
      syncPath(fs::absolute(plain, error).parent_path());
  }
  return message;
}
