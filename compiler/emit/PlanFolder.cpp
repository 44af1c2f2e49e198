//===- PlanFolder.cpp - a plan's files on disk ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// After a signal, a kill or a power failure, either the old plan or the new one is there, whole.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/PlanWriter.h"
#include "support/FileSwap.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <set>

using namespace gridloom;
namespace fs = std::filesystem;

static volatile sig_atomic_t pendingSignal = 0;

namespace {
/// Delays signals that end a program until the object is destroyed. They are caught, not blocked: a
/// mask holds for one thread, and the process has others that would take them.
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

/// Whether a manifest is a plan's: other programs' files have this name, too.
static bool isPlanManifest(const fs::path &path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.find("\"producer\": \"gridloom") != std::string::npos;
}

/// The first entry of a folder, by name, that does not belong to a plan; empty if there is none.
static std::string findForeign(const fs::path &folder) {
  static const std::set<std::string> own = {
      "autotune",      "ir",          "kernels",        "manifest.json",
      "plan.strategy", "report.json", "signature.json", "timeline.json"};
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
  if (std::string obstacle = findPlanObstacle(folder, force); !obstacle.empty())
    return obstacle;
  return replaceFolder(folder, files, durable, check);
}
