//===- Compilation.h - one run of the phases --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_COMPILATION_H
#define GRIDLOOM_COMPILER_DRIVER_COMPILATION_H

#include "compiler/driver/Options.h"
#include "compiler/driver/Phases.h"
#include "compiler/driver/Simulation.h"
#include "compiler/emit/PlanWriter.h"
#include "compiler/onnx/AnnotationWriter.h"
#include "compiler/onnx/Import.h"
#include "compiler/onnx/ModelIdentity.h"
#include "compiler/planner/Strategy.h"
#include "compiler/simulator/Simulator.h"
#include "compiler/target/Target.h"
#include "dialects/dist/MoveCost.h"
#include "passes/shard/SearchBound.h"
#include "passes/shard/StrategyFile.h"
#include "passes/train/SurveyData.h"
#include "runtime/core/PlanQueries.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/JSON.h"

#include <chrono>
#include <map>

namespace gridloom {

/// Runs the phases of one compilation and keeps what the summary and the report tell.
class Compilation {
public:
  /// Writes to `out` and `messages` as runCompile does.
  Compilation(CompileOptions options, std::ostream &out, std::ostream &messages);
  /// Returns the exit code.
  int run();
  /// Decides how the program is split, and simulates it so; with `measured`, which may be null, in
  /// place of estimates. Nothing is emitted, and weights need not be there. Returns the exit code.
  int plan(const sim::MeasuredCosts *measured, PlanOutcome &outcome);
  /// Imports the model, and says what --train would train of it; the losses may be missing. Returns
  /// the exit code.
  int survey(TrainSurvey &found);

private:
  mlir::LogicalResult checkOptions();
  mlir::LogicalResult checkOutput();
  mlir::LogicalResult checkTarget();
  mlir::LogicalResult checkCluster();
  mlir::LogicalResult checkPrecision();
  mlir::LogicalResult checkGradients();
  mlir::LogicalResult checkTraining();

  // StrategyFiles.cpp
  mlir::LogicalResult checkSaving();
  mlir::LogicalResult checkSeeds();
  /// Reads the strategy file that the options name, and checks them against it.
  mlir::LogicalResult checkStrategy();
  /// Compares the strategy file's model with this one and gives it this one's names.
  void identifyModel();
  /// Keeps what the shard phase decided; later phases drop it.
  void recordStrategy();
  mlir::LogicalResult saveStrategy();

  /// The precision the program was compiled with, which a dump knows better than the options.
  std::string getPrecision() const;
  mlir::LogicalResult load();
  StrategyRequest makeRequest() const;
  mlir::LogicalResult choose();
  void checkDevices();
  std::string getClusterFlag() const; ///< "--devices 4"; empty where there is none
  mlir::LogicalResult checkChoice();
  /// Sets what the import needs to know of dimensions and states. Returns the error, or "".
  std::string fillImportOptions(ImportOptions &import, const std::vector<std::string> &dims) const;
  PhaseContext makePhaseContext(const ShardOptions &shard) const;

  // PlanStop.cpp
  /// When the planner takes the best candidate it knows.
  PlanLimits makeLimits() const;
  bool isPlanTimeOver() const;
  bool isInterrupted() const;
  /// Keeps what has stopped it, if anything has.
  void recordStop();
  /// "by Ctrl-C, which left 12 of 56 candidates that may be faster"; empty where nothing stopped
  /// it.
  std::string describeStop() const;
  llvm::json::Object describePlanning() const;
  /// Writes over the line of a terminal that standard error is.
  void showStatus(const std::string &text) const;
  /// Where messages go, with that line out of their way.
  std::ostream &say() const;
  void showProgress(const PlanProgress &progress) const;

  // MeasureBest.cpp
  struct Contender;
  mlir::LogicalResult checkMeasuring();
  /// Runs the candidates that are the fastest in the simulator on this machine, and chooses the
  /// fastest of them.
  mlir::LogicalResult measureBest();
  /// Compiles the contender, a copy of the simplified program, into a plan. The error, or "".
  std::string writePlanOf(Contender &contender);
  /// Adds what was measured to a file beside that of the cluster, if it is of a file.
  void recordMeasured(llvm::ArrayRef<Contender> contenders);

  // MemoryFit.cpp
  struct Change;
  /// Runs the phases from shard to `last` on a copy of the simplified program. Null when it cannot
  /// be compiled; `error` then says why. Several threads call it, each with a context of its own.
  mlir::OwningOpRef<mlir::ModuleOp> compileCopy(mlir::ModuleOp simplified,
                                                const ShardOptions &shard, mlir::StringRef last,
                                                std::string &error) const;
  /// Compiles a copy of the simplified program up to allocation and simulates it. None when it
  /// cannot be compiled; `error` then says why.
  std::optional<TrialPlan> tryPlan(mlir::ModuleOp simplified, const ShardOptions &shard,
                                   std::string &error) const;
  /// After allocation: fails if a device keeps more than the limit.
  mlir::LogicalResult checkMemory(mlir::ModuleOp allocated);
  uint64_t getMemoryLimit() const; ///< bytes; 0: none
  std::vector<Change> listChanges(const ShardOptions &shard, const rt::MemoryNeeds &needs,
                                  int64_t times) const;
  std::optional<uint64_t> tryChange(const Change &change, int64_t limit);
  /// "; the smallest change that fits is ...", found by compiling with it; else what takes most.
  std::string suggestFit(const ShardOptions &shard, const rt::MemoryNeeds &needs, int64_t limit);

  // Plan.cpp
  mlir::LogicalResult simulateCopy(const sim::MeasuredCosts *measured, PlanOutcome &outcome);
  void describeChoice(PlanOutcome &outcome) const;

  mlir::LogicalResult runPhase(size_t index);
  mlir::LogicalResult emit();
  mlir::LogicalResult readPlan();
  mlir::LogicalResult finishEarly();
  /// The model file the program comes from.
  std::string getModelPath() const;
  mlir::LogicalResult collectAnnotations();
  mlir::LogicalResult emitAnnotated();
  void handle(mlir::Diagnostic &diagnostic);
  void fail(const llvm::Twine &message);
  std::string describeResumption(size_t phase) const;
  std::string print(size_t phase);
  /// Keeps the shardings for the report; later phases drop them.
  void recordValues();
  std::string makeReport() const;
  /// What no plan goes below, where there was something to choose.
  std::optional<llvm::json::Object> describeBound() const;
  /// With the times that they took in the simulator.
  llvm::json::Array describeCollectives() const;
  llvm::json::Object describeMemory() const;
  /// What a collective of the plan takes of a rank, once.
  dist::MoveCost costPlanned(const rt::PlannedCollective &collective) const;
  llvm::json::Object describe(const rt::PlannedCollective &collective, size_t id) const;
  void printCollectives(llvm::raw_ostream &os, const sim::ProgramRun &run) const;
  /// The name of the devices that the program is split for.
  std::string getMachineName() const;
  void printEstimates(llvm::raw_ostream &os) const;
  void printChoice(llvm::raw_ostream &os) const;
  void printSummary() const;

  CompileOptions options;
  std::ostream &out, &messages;
  std::unique_ptr<Target> target;
  std::optional<cluster::Cluster> cluster; ///< of --cluster or --devices
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  size_t first = 0, last = 0;             ///< phases to run
  bool mayLackWeights = false;            ///< their files may be absent
  bool mayLackLosses = false;             ///< the survey finds them
  std::shared_ptr<StrategyFile> strategy; ///< of --strategy; null where that is no file
  ModelIdentity identity;
  std::string strategyText; ///< for plan.strategy; empty where the shard phase did not run
  std::chrono::steady_clock::time_point planBegin;
  std::string statusOfPhase; ///< "[3/10] shard"
  std::string stoppedBy;     ///< what ended planning before it was finished: "--plan-time 2"
  Choice choice;
  ModelShardings shardings; ///< for --emit-onnx
  /// Before the shard phase, for suggestions; kept where there is a memory limit.
  mlir::OwningOpRef<mlir::ModuleOp> simplified;
  StageMemory memory;                             ///< as allocated, of the stage that takes most
  std::vector<StageMemory> estimatedMemory;       ///< of all stages, before partitioning
  std::optional<SearchBound> searchBound;         ///< of the plan, where its splits were searched
  std::vector<StageMemory> stageMemory;           ///< as allocated, of all stages
  std::vector<rt::PlannedCollective> collectives; ///< of the plan, numbered as `inspect` does
  std::vector<sim::ProgramRun> runs;              ///< of the plan, simulated
  EmitSummary emitted;
  PlanFiles files;
  std::map<std::string, std::string> dumps; ///< file name to text
  std::string values;                       ///< JSON: shardings and origins
  std::vector<std::string> warnings, remarks;
  std::vector<std::pair<std::string, double>> times; ///< milliseconds per phase
  bool hadError = false;
};

/// Options of a training step as on the command line, each with a space before it: what the import
/// does, and what a dump of it needs once more.
std::string getTieFlags(const TrainOptions &options);
std::string getTrainFlags(const TrainOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_COMPILATION_H
