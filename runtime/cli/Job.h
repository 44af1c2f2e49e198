//===- Job.h - a plan, its ranks and its inputs -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What `run` and `bench` share: everything that can be known and refused before a rank starts is
// done here, once, in the launching process; ranks inherit the plan and the inputs.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_JOB_H
#define GRIDLOOM_RUNTIME_CLI_JOB_H

#include "runtime/core/Placement.h"
#include "runtime/core/Session.h"
#include "runtime/launch/Launcher.h"

namespace CLI {
class App;
} // namespace CLI

namespace gridloom::rt {

struct JobSettings {
  std::string plan;
  int ranks = 0; // 0: the plan's
  bool inProcess = false;
  std::vector<std::string> inputs; // NAME=FILE.npy or NAME=GENERATOR
  uint64_t seed = 0;
  std::string entry = "main";
  std::vector<std::string> dims; // NAME=SIZE
  std::string weights;
  bool verifyModel = false;
  /// --transport, --device, --threads, --copy-engines.
  PlacementOptions placement;
  double timeout = 300; // seconds
  bool noGraphs = false;
  bool autotune = false;
  bool verbose = false;
};

/// Adds the options that say how ranks run: -n, --in-process, --timeout, --transport, --device.
void addRankOptions(CLI::App &verb, JobSettings &settings);
/// Adds the options that say what they run: --input, --dim, --weights, ...
void addPlanOptions(CLI::App &verb, JobSettings &settings);

/// Runs `main` on `ranks` ranks as the settings and the environment say: forked, as threads, or as
/// the one rank that this process is under another launcher. Returns the exit code.
int runRanks(const JobSettings &settings, int ranks, const RankMain &main);
/// Makes `settings.placement` fit for `ranks` ranks on devices of `kind`; loopback's ranks are
/// threads. Throws InvalidArgument when options contradict each other.
void preparePlacement(JobSettings &settings, const std::string &kind, int ranks,
                      const std::string &subject);
/// "loopback: 4 logical ranks on one GPU", or nothing for other transports.
std::string describeLoopback(const JobSettings &settings, int ranks);
/// The number of ranks that -n or a launcher gives; 0 when neither does. Throws InvalidArgument
/// when they contradict each other.
int getGivenRanks(const JobSettings &settings);

class Job {
public:
  /// Loads the plan and the inputs. With `fillInputs`, inputs that are not given are made up.
  Job(JobSettings settings, bool fillInputs);

  const Plan &getPlan() const { return *plan; }
  const EntrySpecialisation &getSpecialisation() const { return *specialisation; }
  const JobSettings &getSettings() const { return settings; }

  /// What one rank needs to run the plan, in the order of its destruction reversed.
  struct Rank {
    Placement placement;
    std::unique_ptr<Session> session;
  };
  /// Collective. Loads the plan on this rank and binds the inputs.
  Rank start(const World &world, Transport &transport, SessionOptions options) const;
  RunStats run(Session &session) const;
  /// Runs `main` on every rank; returns the exit code.
  int launch(const RankMain &main) const;

private:
  void chooseSpecialisation(const Entry &entry);
  void makeInputs(bool fillInputs);

  JobSettings settings;
  std::shared_ptr<const Plan> plan;
  const EntrySpecialisation *specialisation = nullptr;
  std::map<std::string, int64_t> dims;
  std::map<std::string, std::string> specs;
  std::map<std::string, HostArray> inputs;
  std::shared_ptr<WeightCache> cache = std::make_shared<WeightCache>();
};

/// "data=2,model=2", or "one device".
std::string formatMesh(const Mesh &mesh);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_JOB_H
