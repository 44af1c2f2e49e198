//===- Check.h - split equals unsplit ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_CHECK_H
#define GRIDLOOM_COMPILER_INTERPRETER_CHECK_H

#include "compiler/interpreter/CheckInputs.h"
#include "compiler/interpreter/CheckOptions.h"
#include "compiler/interpreter/CheckSteps.h"
#include "compiler/interpreter/CheckTensors.h"
#include "compiler/interpreter/Compare.h"

#include "dialects/loom/Training.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallString.h"

#include <set>

namespace gridloom {

/// One phase's program.
struct PhaseProgram {
  std::string name; // the dump's file name without .mlir
  mlir::OwningOpRef<mlir::ModuleOp> module;
  llvm::SmallVector<Specialisation> specialisations;
  bool isPartitioned() const { return specialisations.front().partitioned; }
};

/// The work of `gridloom check`: interprets programs, runs the plan, asks the oracle, and compares.
class Check {
public:
  explicit Check(const CheckOptions &options);
  ~Check();
  int run();

private:
  llvm::LogicalResult load();
  llvm::LogicalResult loadDump(llvm::StringRef path, bool required);
  llvm::LogicalResult openWeights();
  std::vector<const PhaseProgram *> choosePrograms() const;
  const PhaseProgram &getExactBase() const;
  bool isCheckedExactly(const PhaseProgram &program) const {
    return options.exact && &program != &getExactBase() &&
           (planFolder.empty() || program.isPartitioned());
  }

  /// The plan that is checked, and who must have signed it.
  PlanPlace getPlan() const { return {planFolder, options.requireSignature}; }

  llvm::LogicalResult checkSpecialisation(const Specialisation &specialisation);
  llvm::LogicalResult checkProgram(const PhaseProgram &base, const PhaseProgram &program,
                                   const Specialisation &specialisation, bool exact);
  llvm::LogicalResult checkPlan(const Specialisation &specialisation);
  llvm::LogicalResult checkCalls();
  llvm::LogicalResult compareSession();
  llvm::LogicalResult listCalls(llvm::ArrayRef<Specialisation> specialisations);
  llvm::LogicalResult checkCallsOf(const PhaseProgram &program, const PhaseProgram &base,
                                   bool exact, const std::vector<NamedTensors> &expected);
  llvm::LogicalResult checkCallsExactly(llvm::ArrayRef<const PhaseProgram *> chosen);
  llvm::FailureOr<std::vector<NamedTensors>> interpretCalls(const PhaseProgram &program,
                                                            bool exact);
  llvm::FailureOr<std::vector<NamedTensors>> runCalls(const PlanPlace &plan);
  llvm::FailureOr<std::vector<NamedTensors>> askOracleForCalls(std::string &name);
  llvm::FailureOr<NamedTensors> interpretFrom(llvm::ArrayRef<NamedTensors> earlier);
  llvm::LogicalResult compareCalls(llvm::StringRef what, const std::vector<NamedTensors> &expected,
                                   const std::vector<NamedTensors> &actual, bool exact);
  /// The plan's outputs by --oracle; `name` is set to the oracle's name for messages.
  llvm::FailureOr<NamedTensors> askOracle(const Specialisation &specialisation,
                                          const std::map<std::string, PlanTensor> &given,
                                          const std::map<std::string, int64_t> &dims,
                                          std::string &name);
  llvm::FailureOr<NamedTensors> interpret(const Specialisation &specialisation, std::string &name);
  llvm::FailureOr<std::string> compileUnsplit();
  const PhaseProgram *findSimplified() const;
  bool isRead(const Specialisation &specialisation, llvm::StringRef input) const;
  void explainPlan(const Specialisation &specialisation);
  /// Says that only the compiled plan differs.
  void explainBelow() const;
  /// Says why --bisect names no node for calls that differ.
  void explainCalls() const;
  std::string getModelPath(std::string &error) const;
  /// Interprets and keeps the outputs.
  const NamedTensors *evaluate(const PhaseProgram &program, const Specialisation &specialisation,
                               bool exact);
  const PhaseProgram &getReference() const;
  bool drawsWeights() const;
  /// Whether this run of a program is the reference for training steps.
  bool isRight(const PhaseProgram &program, bool exact) const {
    return !exact && &program == &getReference() && (*program.module)->hasAttr(loom::kTraining);
  }
  double getGradientShare() const;
  const PhaseProgram &getBase(const Specialisation &specialisation) const;
  const Specialisation *find(const PhaseProgram &program, const Specialisation &like);
  llvm::FailureOr<NamedTensors> makeInputs(const Specialisation &specialisation, uint64_t seed);
  llvm::LogicalResult checkGiven();
  /// `steps` gives the differences allowed for weights after `calls` calls. Returns the number of
  /// elements that needed them.
  int64_t compareOutputs(llvm::StringRef what, const NamedTensors &expected,
                         const NamedTensors &actual, const StepRecord *steps = nullptr,
                         size_t calls = 1);
  /// Prints the last line. Returns the exit code.
  int report() const;
  void handle(mlir::Diagnostic &diagnostic);
  Tolerance getTolerance(const loom::HostTensor &tensor) const;

  const CheckOptions &options;
  mlir::MLIRContext context;
  std::string planFolder;
  llvm::SmallString<128> unsplitFolder; // with the plan of --oracle 1rank
  std::vector<PhaseProgram> programs;
  std::unique_ptr<WeightProvider> weights;
  NamedTensors inputs; // of the specialisation being checked
  std::map<std::pair<const PhaseProgram *, bool>, NamedTensors> evaluated;
  std::optional<StepRecord> step, steps; // of the specialisation being checked, and of the calls
  /// Runs of one session, by the specialisation of the first program.
  std::vector<std::pair<const Specialisation *, NamedTensors>> calls;
  int64_t compared = 0, different = 0;
  std::set<std::string> reported;
  double precisionError =
      0;               // allowed for the outputs being compared, relative to the largest element
  double furthest = 0; // the largest difference of an element that differs
  bool mayBeRounding = true;   // all elements that differ are near to what is right
  bool programsDiffer = false; // an interpreted program differed
  bool callsDiffer = false;    // one differed in calls of one session
  bool broken = false;         // something could not be compared
};

/// The allowed difference of outputs from f32, relative to the largest element. Roundings to p
/// digits of sums over many layers add up as a random walk does; these bounds are about four times
/// the errors measured for networks of two to twelve layers (docs/design/0013-precision.md).
double getPrecisionError(const PhaseProgram &program);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_CHECK_H
