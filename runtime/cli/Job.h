//===- Job.h - a plan, its ranks and its inputs -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Shared by `run` and `bench`: checks everything that can be checked before a rank starts, once, in
// the launching process; ranks inherit the plan and the inputs.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_JOB_H
#define GRIDLOOM_RUNTIME_CLI_JOB_H

#include "runtime/core/Placement.h"
#include "runtime/core/Session.h"
#include "runtime/launch/Launcher.h"

#include <chrono>
#include <stdexcept>

namespace CLI {
class App;
} // namespace CLI

namespace gridloom::rt {

struct JobSettings {
  std::string plan;
  int ranks = 0; // 0: the plan's
  bool inProcess = false;
  std::vector<std::string> inputs; // NAME=VALUE, see Generator.h
  uint64_t seed = 0;
  std::string entry = "main";
  std::vector<std::string> dims; // NAME=SIZE
  std::string weights;
  bool verifyModel = false;
  std::vector<std::string> requireSignature; // files of public keys
  /// --transport, --device, --threads, --copy-engines.
  PlacementOptions placement;
  double timeout = 300; // seconds
  bool noGraphs = false;
  bool autotune = false;
  bool checkIndices = false;
  bool verbose = false;
  bool ranksHandleSignals = false; // see LaunchOptions
};

/// The error of a rank that failed before it joined a launcher's job. Catch it to report it and
/// then notify the other ranks, which would wait until their deadline: they may take long to join.
class JoinFailure : public std::runtime_error {
public:
  JoinFailure(World world, const std::string &reason, std::chrono::milliseconds patience)
      : std::runtime_error(reason), world(std::move(world)), patience(patience) {}
  /// Notifies the other ranks; waits for them for at most 10 s, or --timeout if that is shorter.
  void notifyOthers() const { abortJob(world, what(), patience); }

private:
  World world;
  std::chrono::milliseconds patience;
};

/// Calls `work`, which precedes runRanks. Rethrows its errors, as JoinFailure if other ranks wait
/// for this one.
void beforeJoining(const JobSettings &settings, const std::function<void()> &work);

/// Adds the options of how ranks run: -n, --in-process, --timeout, --transport, --device.
void addRankOptions(CLI::App &verb, JobSettings &settings);
/// Adds the options of what they run: --input, --dim, --weights, ...
void addPlanOptions(CLI::App &verb, JobSettings &settings);

/// Runs `main` on `ranks` ranks, depending on settings and environment: forked, as threads, or as
/// the one rank that this process is under another launcher. Returns the exit code.
int runRanks(const JobSettings &settings, int ranks, const RankMain &main);
/// Prepares `settings.placement` for `ranks` ranks on devices of `kind`; loopback makes ranks
/// threads. Throws InvalidArgument if options contradict each other.
void preparePlacement(JobSettings &settings, const std::string &kind, int ranks,
                      const std::string &subject);
/// "loopback: 4 logical ranks on one GPU"; "" for other transports.
std::string describeLoopback(const JobSettings &settings, int ranks);
/// The number of ranks from -n or a launcher; 0 if there is neither. Throws InvalidArgument if they
/// contradict each other.
int getGivenRanks(const JobSettings &settings);

/// Loads the settings' plan and prepares the placement for it. Throws InvalidArgument if -n or a
/// launcher gives another number of ranks.
std::shared_ptr<const Plan> loadPlan(JobSettings &settings);

/// Everything one rank needs to run a plan, in reverse order of destruction.
struct JobRank {
  Placement placement;
  std::unique_ptr<Session> session;
};
/// Collective. Loads the plan on this rank. `cache` is shared by the ranks of one process.
JobRank startRank(const JobSettings &settings, const std::shared_ptr<const Plan> &plan,
                  const std::shared_ptr<WeightCache> &cache, const World &world,
                  Transport &transport, SessionOptions options);

/// Parses "NAME=SIZE" of --dim. Throws InvalidArgument if one is malformed.
std::map<std::string, int64_t> readDims(const std::vector<std::string> &dims);
/// Parses "NAME=VALUE" of --input. Throws InvalidArgument if malformed or a name is repeated.
std::map<std::string, std::string> readInputs(const std::vector<std::string> &inputs);

class Job {
public:
  /// Loads the plan and the inputs. With `fillInputs`, generates inputs that are not given.
  Job(JobSettings settings, bool fillInputs);

  const Plan &getPlan() const { return *plan; }
  const EntrySpecialisation &getSpecialisation() const { return *specialisation; }
  const JobSettings &getSettings() const { return settings; }

  /// Collective. Loads the plan on this rank and binds the inputs.
  JobRank start(const World &world, Transport &transport, SessionOptions options) const;
  /// Throws Unavailable if a file of an input was written to since it was opened.
  RunStats run(Session &session) const;
  /// Runs `main` on every rank; returns the exit code.
  int launch(const RankMain &main) const;

private:
  void requireKnown(const Entry &entry) const;
  std::string findMisfit(const Entry &entry) const;
  void chooseSpecialisation(const Entry &entry);
  void makeInputs(bool fillInputs);

  JobSettings settings;
  std::shared_ptr<const Plan> plan;
  const EntrySpecialisation *specialisation = nullptr;
  std::map<std::string, int64_t> dims;
  std::map<std::string, std::string> specs;
  std::map<std::string, HostArray> inputs;
  std::vector<std::shared_ptr<const MappedFile>> files; // that inputs are mapped from
  std::shared_ptr<WeightCache> cache = std::make_shared<WeightCache>();
};

/// "data=2,model=2", or "one device".
std::string formatMesh(const Mesh &mesh);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_JOB_H
