//===- Strategy.h - ways to use a mesh, and the choice among them -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_STRATEGY_H
#define GRIDLOOM_COMPILER_PLANNER_STRATEGY_H

#include "cluster/Machine.h"
#include "compiler/planner/AllocatedMemory.h"
#include "compiler/planner/Bound.h"
#include "compiler/planner/CostModel.h"
#include "compiler/planner/MemoryEstimate.h"
#include "compiler/simulator/Runs.h"
#include "passes/shard/Shard.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <limits>

namespace gridloom {

/// The result of compiling a candidate up to allocation.
struct TrialPlan {
  std::vector<StageMemory> memory;   ///< as allocated
  std::vector<sim::ProgramRun> runs; ///< of all specialisations in the simulator

  rt::MemoryNeeds getNeeds() const { return findLargest(memory).needs; }
  /// Of a step in the simulator, all specialisations together.
  double getSeconds() const;
  /// Of it, with messages alone under way.
  double getExposedSeconds() const;
};

/// Plans whose simulated times differ by less than this factor are as fast: no prediction is more
/// exact.
inline constexpr double kAsFast = 1.002;

/// When planning stops and takes the best candidate so far. It goes on in any case until one fits.
struct PlanLimits {
  /// Whether time is over. Stays true once it is; called from several threads. May be null.
  std::function<bool()> isOver;
  /// The most steps: a step is a candidate weighed or simulated, or a round of a search's solver.
  /// The result is the same on any number of threads. A search alone runs at most this many rounds.
  uint64_t mostSteps = std::numeric_limits<uint64_t>::max();
  /// Weighs the quickest candidates first, in case time runs out.
  bool isQuickFirst = false;
};

/// How far planning has come.
struct PlanProgress {
  size_t candidates = 0, weighed = 0, simulated = 0;
  double bestSeconds = 0; ///< step time of the fastest that was simulated and fits; 0: none yet
};

/// The user's choice of devices and strategy.
struct StrategyRequest {
  std::string mesh; ///< "data=2,model=2"; empty: the whole cluster, or one device without one
  std::optional<cluster::Cluster> cluster; ///< the user's; without one, hosts of `kind` as needed
  std::string clusterFlag;                 ///< as the user gave it: "--devices 8xH100-80GB"
  std::string kind = "cpu";                ///< kind of device if there is no cluster
  std::string strategy = "auto";
  std::shared_ptr<const StrategyFile> file; ///< replaces `strategy`, and has the mesh
  std::string stageAxis;                    ///< name of the pipeline axis; empty: pipe or stage
  std::vector<std::string> shard;
  int64_t zero = 0;          ///< of dist-split-states
  int64_t microbatches = 0;  ///< 0: twice the number of stages, or several in a search
  int64_t memoryLimit = 0;   ///< bytes per device; 0: the machine's
  size_t leastSimulated = 0; ///< simulates at least so many that fit, however slow
  MemoryOptions memory;      ///< of the target, to estimate memory
  /// Splits a copy of the program by the options, compiles it up to allocation and simulates it.
  /// `fused`: the program with these options as the fuse phase leaves it, or null if that is to do.
  /// On failure returns nullopt and sets `error`. Not null if there are several candidates. Called
  /// from several threads, each with its own programs.
  std::function<std::optional<TrialPlan>(mlir::ModuleOp program, const ShardOptions &,
                                         mlir::OwningOpRef<mlir::ModuleOp> fused,
                                         std::string &error)>
      tryPlan;
  bool weighsAll = false; ///< weighs the whole program with all candidates; same choice
  bool certifies = false; ///< bounds plans as closely as it can; same choice
  int64_t jobs = 0; ///< threads that weigh candidates; 0: as many as the machine has, at most 4
  PlanLimits limits;
  /// Called on progress, by one thread at a time. May be null.
  std::function<void(const PlanProgress &)> onProgress;
  /// The smallest change of the request with which a plan fits, as text: "; the smallest change
  /// that fits is ...". May be null.
  std::function<std::string(const ShardOptions &, const rt::MemoryNeeds &, int64_t limit)> suggest;
};

/// The outcome of one way to use the devices.
enum class Verdict { Open, Chosen, Slower, Refused, Left };

/// One way to use the devices.
struct Candidate {
  std::string name; ///< "data=2,model=2: dp over data, tp over model"
  ShardOptions options;
  // Filled by choose:
  /// Sum of what a device computes and sends in a step, all specialisations together.
  double sumSeconds = 0;
  double simulatedSeconds = 0;              ///< the same in the simulator; 0 if not simulated
  double measuredSeconds = 0;               ///< the same as run on this machine; 0 if not run
  int64_t leastBytes = 0;                   ///< lower bound of a device's memory
  int64_t memoryBytes = 0;                  ///< a device's memory as allocated; 0 if not tried
  std::vector<StageMemory> estimatedMemory; ///< by stage; empty if there is one candidate
  std::shared_ptr<const TrialPlan> trial;   ///< null if not tried
  /// The sum is extrapolated from a program with few layers, with stages as if they were even,
  /// which bounds it from below; memory is unknown. Only of candidates too slow to be weighed
  /// whole.
  bool isExtrapolated = false;
  Verdict verdict = Verdict::Open;
  std::string refusal; ///< the reason, if refused

  /// Estimate of a device's memory; 0 if there is one candidate.
  int64_t getEstimatedBytes() const {
    return static_cast<int64_t>(findLargest(estimatedMemory).needs.getAllocated());
  }
  void refuse(std::string why) {
    verdict = Verdict::Refused;
    refusal = std::move(why);
  }
  /// "chosen", "slower", "slower, extrapolated", kLeftVerdict, or the reason for a refusal; empty
  /// while open.
  std::string describe() const;
};

struct Choice {
  ShardOptions options;
  cluster::Machine machine; ///< the devices of the mesh
  std::string name;
  std::vector<Candidate> candidates;
  int64_t memoryLimit = 0;        ///< of the request or of its devices; 0: none
  uint64_t numLooks = 0;          ///< candidates weighed or simulated, each time counted
  std::optional<PlanBound> bound; ///< if there was something to choose

  /// Candidates that might have been faster, but the limits left no time for.
  size_t countLeft() const;
  /// Whether the limits ended a search.
  bool hasCutSearch() const;
  /// The steps of PlanLimits that planning took.
  uint64_t countSteps() const;
  /// "fastest of 12 candidates, 3 simulated", with "2 measured" if some were run, and "4 left" if
  /// the limits left no time for some; empty if there was nothing to choose.
  std::string describe() const;
  /// The chosen candidate; null if there was nothing to choose.
  const Candidate *getChosen() const;
  /// The sum of the chosen candidate; 0 if there was nothing to choose.
  double getSumSeconds() const;
  /// Makes one of `candidates` the chosen one.
  void choose(Candidate &candidate);
};

/// Chooses how to use the devices. Places the mesh on the first devices of the cluster and writes
/// that machine on the module for all phases to read. A single candidate is taken as it is, unless
/// it is a search that memory may constrain. Otherwise the shard, partition and communicate phases
/// run on a copy of the program for each candidate to sum what a device computes and sends. If the
/// program has many equal layers, a few of them tell first which candidates are worth that. Those
/// with the least sums are compiled up to allocation and simulated; the fastest that fits into the
/// memory limit is taken. Estimates of memory only rule out candidates that cannot fit or are
/// estimated at more than twice the limit. A search whose plan does not fit is run again with less
/// memory.
///
/// Axes called data (or batch), model (or tensor) and pipe (or stage) have that use; others may
/// have any. With a strategy file there is one candidate, which the rest of the request must not
/// contradict. Errors are emitted on the module and name the remedy.
mlir::FailureOr<Choice> chooseStrategy(mlir::ModuleOp module, const StrategyRequest &given);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_STRATEGY_H
