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
#include "passes/shard/Shard.h"

#include <functional>
#include <limits>

namespace gridloom {

/// What compiling a candidate up to allocation found.
struct TrialPlan {
  rt::MemoryNeeds needs; ///< of a device of the stage that takes most
  double seconds = 0;    ///< of a step in the simulator, all specialisations together
};

/// When planning takes the best candidate it knows. It always goes on until there is one that fits.
struct PlanLimits {
  /// There is no more time. Stays true; several threads ask. May be null.
  std::function<bool()> isOver;
  /// A step is a candidate weighed or simulated, or a round of a search's solver. So many have one
  /// result, on any number of threads. A search alone runs no more rounds than that.
  uint64_t mostSteps = std::numeric_limits<uint64_t>::max();
  /// Weighs what takes least time first: there may be none for the rest.
  bool isQuickFirst = false;
};

/// How far planning has come.
struct PlanProgress {
  size_t candidates = 0, weighed = 0, simulated = 0;
  double bestSeconds = 0; ///< of a step of the fastest that was simulated and fits; 0: none yet
};

/// The user's choice of devices and strategy.
struct StrategyRequest {
  std::string mesh; ///< "data=2,model=2"; empty for all of the cluster, or one device without one
  std::optional<cluster::Cluster> cluster; ///< of the user; without it hosts of `kind` as needed
  std::string clusterFlag;                 ///< how the user gave it: "--devices 8xH100-80GB"
  std::string kind = "cpu";                ///< of devices where there is no cluster
  std::string strategy = "auto";
  std::shared_ptr<const StrategyFile> file; ///< in place of `strategy`, with the mesh in it
  std::string stageAxis;                    ///< of pipelines, whatever it is called; empty: by name
  std::vector<std::string> shard;
  int64_t zero = 0;          ///< of dist-split-states
  int64_t microbatches = 0;  ///< 0: twice the number of stages
  int64_t memoryLimit = 0;   ///< bytes per device; 0: the machine's
  size_t leastSimulated = 0; ///< simulates so many that fit, however far behind
  MemoryOptions memory;      ///< the target's, for estimates of memory
  /// Splits a copy of the program by the options, compiles it up to allocation and simulates it.
  /// nullopt if that fails, then `error` says why. Not null where there are several candidates.
  /// Several threads call it, each with programs of its own.
  std::function<std::optional<TrialPlan>(mlir::ModuleOp, const ShardOptions &, std::string &error)>
      tryPlan;
  bool weighsAll = false; ///< all candidates on the whole program; the choice is the same
  bool certifies = false; ///< bounds plans as closely as it can; the choice is the same
  int64_t jobs = 0; ///< threads that weigh candidates; 0: as many as the machine has, at most 4
  PlanLimits limits;
  /// Called as planning goes on, by one thread at a time. May be null.
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
  /// Of a step, all specialisations together: all that it computes and sends, one after another.
  double sumSeconds = 0;
  double simulatedSeconds = 0; ///< the same, in the simulator; 0 where that was not run
  double measuredSeconds = 0;  ///< the same, run on this machine; 0 where it was not
  int64_t leastBytes = 0;      ///< a device keeps at least so much
  int64_t estimatedBytes = 0;  ///< a device keeps about so much; 0 where there is one candidate
  int64_t memoryBytes = 0;     ///< a device keeps so much, as allocated; 0 where that was not tried
  /// The sum is that of a program with few of the layers, extrapolated, and of stages at least what
  /// even ones take; memory is not known. Only of candidates that are too slow to be looked at.
  bool isExtrapolated = false;
  Verdict verdict = Verdict::Open;
  std::string refusal; ///< why, of a refused one

  void refuse(std::string why) {
    verdict = Verdict::Refused;
    refusal = std::move(why);
  }
  /// "chosen", "slower" or "slower, extrapolated", that it was left, or why it was refused.
  std::string describe() const;
};

struct Choice {
  ShardOptions options;
  cluster::Machine machine; ///< the devices of the mesh
  std::string name;
  std::vector<Candidate> candidates;
  int64_t memoryLimit = 0;        ///< of the request, or of the devices it names; 0: none
  uint64_t numLooks = 0;          ///< candidates weighed or simulated; one may be so several times
  std::optional<PlanBound> bound; ///< where there was something to choose

  /// Candidates that the limits left no time for: that might have been faster.
  size_t countLeft() const;
  /// Whether the limits ended a search.
  bool hasCutSearch() const;
  /// The steps of PlanLimits that planning took.
  uint64_t countSteps() const;
  /// "fastest of 12 candidates, 3 simulated", and "2 measured" where some were run, "4 left" where
  /// there was no time for some; empty where there was nothing to choose.
  std::string describe() const;
  /// The sum of the chosen one; 0 where there was nothing to choose.
  double getSumSeconds() const;
  /// Takes one of `candidates` in place of the chosen one.
  void choose(Candidate &candidate);
};

/// Places the mesh on the first devices of the cluster, which it writes on the module for all
/// phases to read. Chooses by running the shard, partition and communicate phases on a copy of the
/// program for each candidate and summing what the result takes; one candidate is taken as it is,
/// unless it is a search that memory may bind.
/// Of programs with many equal layers, few of them say first which candidates are worth that. Those
/// of the least sums are compiled up to allocation and simulated, and the fastest
/// of these that fits into the memory limit is taken; estimates of memory only rule out what cannot
/// fit or is estimated at more than twice the limit. A search whose plan does not fit is run again
/// with less memory. Axes called data (or batch), model (or
/// tensor) and pipe (or stage) say what they are for; the others may serve any purpose. With a
/// strategy file there is one candidate; what the request says beside it has to agree. Errors are
/// emitted on the module and name the candidate's remedy.
mlir::FailureOr<Choice> chooseStrategy(mlir::ModuleOp module, const StrategyRequest &given);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_STRATEGY_H
