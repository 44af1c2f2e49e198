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

/// Runs the phases of one compilation and keeps the results for the summary and the report.
class Compilation {
public:
  /// Writes to `out` and `messages` as runCompile does.
  Compilation(CompileOptions options, std::ostream &out, std::ostream &messages);
  /// Returns the exit code.
  int run();
  /// Checks the options alone, before the model is read. Returns the exit code.
  int check() { return failed(checkOptions()); }
  /// Decides how the program is split and simulates the result. `measured` times replace estimates;
  /// may be null. Emits nothing, and needs no weight files. Returns the exit code.
  int plan(const sim::MeasuredCosts *measured, PlanOutcome &outcome);
  /// Imports the model and finds what --train would train of it; losses may be missing. Returns the
  /// exit code.
  int survey(TrainSurvey &found);

private:
  mlir::LogicalResult checkOptions();
  mlir::LogicalResult checkOutput();
  mlir::LogicalResult checkMesh();
  mlir::LogicalResult checkTarget();
  mlir::LogicalResult checkCluster();
  mlir::LogicalResult checkPrecision();
  mlir::LogicalResult checkGradients();
  mlir::LogicalResult checkTraining();

  // StrategyFiles.cpp
  mlir::LogicalResult checkSaving();
  mlir::LogicalResult checkSeeds();
  mlir::LogicalResult checkPlanning();
  /// Reads the strategy file of the options, and checks them against it.
  mlir::LogicalResult checkStrategy();
  /// Gives the strategy file this model's names; warns if it is for another graph.
  void identifyModel();
  /// Records what the shard phase decided, before later phases drop it.
  void recordStrategy();
  mlir::LogicalResult saveStrategy();

  /// The program's precision; a dump may have another one than the options say.
  std::string getPrecision() const;
  mlir::LogicalResult load();
  StrategyRequest makeRequest() const;
  mlir::LogicalResult choose();
  void checkDevices();
  std::string getClusterFlag() const; ///< "--devices 4"; empty if neither is given
  std::string suggestCandidates() const;
  mlir::LogicalResult checkChoice();
  /// Sets the options of the import. Returns the error, or "".
  std::string fillImportOptions(ImportOptions &import, const std::vector<std::string> &dims) const;
  PhaseContext makePhaseContext(const ShardOptions &shard) const;

  // PlanStop.cpp
  /// When the planner stops and takes the best candidate so far.
  PlanLimits makeLimits() const;
  bool isPlanTimeOver() const;
  bool isInterrupted() const;
  /// Records what stopped planning, if anything did.
  void recordStop();
  /// "by Ctrl-C, which left 12 of 56 candidates that may be faster"; empty if nothing stopped it.
  std::string describeStop() const;
  llvm::json::Object describePlanning() const;
  /// Overwrites the status line, if standard error is a terminal.
  void showStatus(const std::string &text) const;
  /// Where messages go; clears the status line first.
  std::ostream &say() const;
  void showProgress(const PlanProgress &progress) const;

  // MeasureBest.cpp
  struct Contender;
  mlir::LogicalResult checkMeasuring();
  /// Runs the candidates that are the fastest in the simulator on this machine, and chooses the
  /// fastest of them.
  mlir::LogicalResult measureBest();
  /// Compiles a copy of the simplified program into the contender's plan. Returns the error, or "".
  std::string writePlanOf(Contender &contender);
  /// Adds the measurements to a file beside the cluster's, if that is a file.
  void recordMeasured(llvm::ArrayRef<Contender> contenders);

  // MemoryFit.cpp
  struct Change;
  /// Runs the phases from number `first` to `last` on `program`, which it changes. On failure sets
  /// `error`. Called from several threads, each with its own context.
  mlir::LogicalResult compileFrom(size_t first, mlir::StringRef last, mlir::ModuleOp program,
                                  const ShardOptions &shard, std::string &error) const;
  /// StrategyRequest::tryPlan.
  std::optional<TrialPlan> tryPlan(mlir::ModuleOp simplified, const ShardOptions &shard,
                                   mlir::OwningOpRef<mlir::ModuleOp> fused,
                                   std::string &error) const;
  /// After allocation: fails if a device needs more than the limit.
  mlir::LogicalResult checkMemory(llvm::ArrayRef<StageMemory> allocated);
  uint64_t getMemoryLimit() const; ///< bytes; 0: none
  std::vector<Change> listChanges(const ShardOptions &shard, const rt::MemoryNeeds &needs,
                                  int64_t times) const;
  std::optional<uint64_t> tryChange(const Change &change, int64_t limit);
  /// "; the smallest change that fits is ...", found by compiling with it; else what takes most
  /// memory.
  std::string suggestFit(const ShardOptions &shard, const rt::MemoryNeeds &needs, int64_t limit);

  // Plan.cpp
  /// Simulates what was chosen, from the sharded module if that has not been done.
  mlir::FailureOr<TrialPlan> simulateChosen(const sim::MeasuredCosts *measured);
  void describeChoice(PlanOutcome &outcome) const;

  mlir::LogicalResult runPhase(size_t index);
  mlir::LogicalResult emit();
  mlir::LogicalResult readPlan();
  mlir::LogicalResult finishEarly();
  /// The model file that the program comes from.
  std::string getModelPath() const;
  mlir::LogicalResult collectAnnotations();
  mlir::LogicalResult emitAnnotated();
  void handle(mlir::Diagnostic &diagnostic);
  void fail(const llvm::Twine &message);
  std::string describeResumption(size_t phase) const;
  std::string print(size_t phase);
  /// Records the shardings for the report, before later phases drop them.
  void recordValues();
  std::string makeReport() const;
  /// The lower bound of all plans; nullopt if there was nothing to choose.
  std::optional<llvm::json::Object> describeBound() const;
  /// Collectives, with their times in the simulator.
  llvm::json::Array describeCollectives() const;
  llvm::json::Object describeMemory() const;
  /// The cost of one run of a collective for a rank.
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
  bool mayLackWeights = false;            ///< weight files may be missing
  bool mayLackLosses = false;             ///< --loss may be missing: the survey finds losses
  std::shared_ptr<StrategyFile> strategy; ///< of --strategy; null unless that is a file
  ModelIdentity identity;
  std::string strategyText; ///< for plan.strategy; empty if the shard phase did not run
  std::chrono::steady_clock::time_point planBegin;
  std::string statusOfPhase; ///< "[3/10] shard"
  std::string stoppedBy;     ///< what ended planning early: "--plan-time 2"
  Choice choice;
  ModelShardings shardings; ///< for --emit-onnx
  /// The program before the shard phase, for suggestions; kept if memory may be limited.
  mlir::OwningOpRef<mlir::ModuleOp> simplified;
  StageMemory memory;                             ///< as allocated, of the stage that needs most
  std::vector<StageMemory> estimatedMemory;       ///< of all stages, before partitioning
  std::optional<SearchBound> searchBound;         ///< of the plan, if its splits were searched
  std::vector<StageMemory> stageMemory;           ///< as allocated, of all stages
  std::vector<rt::PlannedCollective> collectives; ///< of the plan, numbered as `inspect` does
  std::vector<sim::ProgramRun> runs;              ///< of the plan, simulated
  EmitSummary emitted;
  PlanFiles files;
  bool keepsDumps = true;                   ///< false for `plan`, which writes none
  std::map<std::string, std::string> dumps; ///< file name to text
  std::string values;                       ///< JSON: shardings and origins
  std::vector<std::string> warnings, remarks;
  std::vector<std::pair<std::string, double>> times; ///< milliseconds per phase
  bool hadError = false;
};

/// Options of a training step as on the command line, each with a space before it: those of the
/// import, and those that a dump of the import needs again.
std::string getTieFlags(const TrainOptions &options);
std::string getTrainFlags(const TrainOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_COMPILATION_H
