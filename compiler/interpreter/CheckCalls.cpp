//===- CheckCalls.cpp - several calls of one session ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Check.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace gridloom;

/// The calls' outputs, states included, by a program that keeps its own states.
FailureOr<std::vector<NamedTensors>> Check::interpretCalls(const PhaseProgram &program,
                                                           bool exact) {
  StateStore states;
  std::vector<NamedTensors> results;
  bool isWatched = isRight(program, exact);
  if (isWatched)
    steps.emplace(*weights);
  for (const auto &[specialisation, given] : calls) {
    const Specialisation *own = find(program, *specialisation);
    if (!own)
      return failure();
    InterpreterOptions interpreterOptions;
    interpreterOptions.exact = exact;
    interpreterOptions.states = &states;
    if (isWatched)
      steps->watch(interpreterOptions);
    Interpreter interpreter(*program.module, *weights, std::move(interpreterOptions));
    FailureOr<NamedTensors> outputs = interpreter.run(*own, given);
    if (failed(outputs))
      return failure();
    results.push_back(*std::move(outputs));
    widenStates(*own, results.back());
    if (isWatched && failed(steps->addCall(*own, results.back())))
      return failure();
  }
  return results;
}

/// The calls' outputs by one session of a compiled plan.
FailureOr<std::vector<NamedTensors>> Check::runCalls(const PlanPlace &plan) {
  std::vector<PlanCall> plain;
  for (const auto &[specialisation, given] : calls) {
    plain.push_back(makeCall(*specialisation, given));
    readStates(*specialisation, plain.back());
  }
  std::vector<NamedTensors> results;
  for (const PlanRunResult &result : runPlanCalls(plan, plain)) {
    if (!result.error.empty())
      return emitError(UnknownLoc::get(&context)) << "the plan does not run: " << result.error;
    FailureOr<NamedTensors> outputs = toTensors(result.outputs, &context);
    if (failed(outputs))
      return failure();
    widenStates(*calls[results.size()].first, *outputs);
    results.push_back(*std::move(outputs));
  }
  return results;
}

/// The calls' outputs by --oracle, and its name for messages.
FailureOr<std::vector<NamedTensors>> Check::askOracleForCalls(std::string &name) {
  if (options.oracle == "interpreter") {
    name = getReference().name;
    return interpretCalls(getReference(), /*exact=*/false);
  }
  if (options.oracle == "1rank") {
    name = "1 rank";
    FailureOr<std::string> plan = compileUnsplit();
    // The gradients of steps come from the interpreter.
    bool trains = (*getReference().module)->hasAttr(loom::kTraining);
    if (failed(plan) || (trains && failed(interpretCalls(getReference(), /*exact=*/false))))
      return failure();
    return runCalls({*plan});
  }
  name = "ONNX Runtime";
  std::vector<NamedTensors> results;
  std::map<std::string, PlanTensor> states;
  for (const auto &[specialisation, given] : calls) {
    PlanCall call = makeCall(*specialisation, given);
    call.inputs.insert(states.begin(), states.end());
    addStates(*specialisation, call.inputs);
    PlanRunResult result;
    std::string model = getModelPath(result.error);
    if (result.error.empty())
      result = runOnnxRuntime(model, call.inputs);
    if (!result.error.empty())
      return emitError(UnknownLoc::get(&context)) << "oracle ort: " << result.error;
    passStates(*specialisation, result, states);
    FailureOr<NamedTensors> outputs = toTensors(result.outputs, &context);
    if (failed(outputs))
      return failure();
    results.push_back(*std::move(outputs));
  }
  return results;
}

/// The outputs of a call by the reference, which starts from the states that the earlier calls of
/// another program left.
FailureOr<NamedTensors> Check::interpretFrom(ArrayRef<NamedTensors> earlier) {
  const PhaseProgram &program = getReference();
  StateStore states;
  for (auto [call, outputs] : llvm::zip(calls, earlier)) {
    func::FuncOp function = find(program, *call.first)->stages.front();
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState))
        if (auto found =
                outputs.find(function.getResultAttrOfType<StringAttr>(i, loom::kName).getValue());
            found != outputs.end())
          states[{0, state.str()}] = found->second;
  }
  const auto &[specialisation, given] = calls[earlier.size()];
  InterpreterOptions interpreterOptions;
  interpreterOptions.states = &states;
  Interpreter interpreter(*program.module, *weights, std::move(interpreterOptions));
  FailureOr<NamedTensors> outputs = interpreter.run(*find(program, *specialisation), given);
  if (succeeded(outputs))
    widenStates(*specialisation, *outputs);
  return outputs;
}

LogicalResult Check::compareCalls(StringRef what, const std::vector<NamedTensors> &expected,
                                  const std::vector<NamedTensors> &actual, bool exact) {
  const StepRecord *record = exact || !steps ? nullptr : &*steps;
  bool isExcused = false;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::string name = "call " + std::to_string(i + 1) + ": " + what.str();
    const NamedTensors *right = &expected[i];
    FailureOr<NamedTensors> fromSame = failure();
    // Outputs follow weights, which may differ by more than outputs may.
    if (isExcused && calls[i].first->entry != loom::kTrainStep) {
      fromSame = interpretFrom(ArrayRef(actual).take_front(i));
      if (failed(fromSame))
        return failure();
      right = &*fromSame;
      name += ", from the same weights";
    }
    isExcused |= compareOutputs(name, *right, actual[i], record, i + 1) > 0;
  }
  return success();
}

/// Lists the calls: each specialisation in turn, and the first once more. A training step also runs
/// twice in a row: the second run is the first that starts from computed states.
LogicalResult Check::listCalls(ArrayRef<Specialisation> specialisations) {
  std::vector<const Specialisation *> order;
  if (specialisations.front().entry == loom::kTrainStep)
    order.push_back(&specialisations.front());
  for (const Specialisation &specialisation : specialisations)
    order.push_back(&specialisation);
  order.push_back(&specialisations.front());
  calls.clear();
  for (const Specialisation *specialisation : order) {
    FailureOr<NamedTensors> made = makeInputs(*specialisation, options.seed + 1 + calls.size());
    if (failed(made))
      return failure();
    calls.emplace_back(specialisation, *std::move(made));
  }
  return success();
}

/// Interprets the calls by a program, and compares.
LogicalResult Check::checkCallsOf(const PhaseProgram &program, const PhaseProgram &base, bool exact,
                                  const std::vector<NamedTensors> &expected) {
  FailureOr<std::vector<NamedTensors>> actual = interpretCalls(program, exact);
  if (failed(actual))
    return failure();
  precisionError = exact ? 0 : getPrecisionError(program);
  int64_t before = different;
  LogicalResult result =
      compareCalls(program.name + (exact ? " (exact) against " : " against ") + base.name, expected,
                   *actual, exact);
  callsDiffer |= different > before;
  return result;
}

void Check::explainCalls() const {
  if (callsDiffer && !programsDiffer)
    llvm::outs() << "  there is no node to name: --bisect looks at single runs, whose programs "
                    "agree; calls after others differ, by the states that they keep\n";
  else if (options.oracle != "interpreter")
    llvm::outs() << "  there is no node to name: --bisect looks at single runs; --oracle "
                    "interpreter compares these calls' programs\n";
  else if (!programsDiffer)
    explainBelow();
}

/// The same in exact mode.
LogicalResult Check::checkCallsExactly(ArrayRef<const PhaseProgram *> chosen) {
  bool ok = true;
  std::optional<FailureOr<std::vector<NamedTensors>>> expected;
  for (const PhaseProgram *program : chosen) {
    if (!isCheckedExactly(*program))
      continue;
    if (!expected)
      expected = interpretCalls(getExactBase(), /*exact=*/true);
    ok &= succeeded(*expected) &&
          succeeded(checkCallsOf(*program, getExactBase(), /*exact=*/true, **expected));
  }
  return success(ok);
}

LogicalResult Check::checkCalls() {
  int64_t before = different;
  LogicalResult result = compareSession();
  if (options.bisect && different > before)
    explainCalls();
  return result;
}

/// Runs specialisations with states in one session, one after another, and the first one again:
/// only this shows a wrong state, and one that is not stored where the next call reads it.
LogicalResult Check::compareSession() {
  const PhaseProgram &base = getReference();
  if (!haveStates(base.specialisations))
    return success();
  if (options.oracle == "ort" && (*base.module)->hasAttr(loom::kTraining)) {
    llvm::outs() << "ONNX Runtime does not train: the model's weights are compared as they begin\n";
    return success();
  }
  if (failed(listCalls(base.specialisations)))
    return failure();
  llvm::outs() << calls.size() << " calls of one session, which share states\n";
  precisionError = getPrecisionError(programs.back());
  if ((*base.module)->hasAttr(loom::kTraining) && getGradientShare() > 0)
    llvm::outs() << "  an error of " << llvm::format("%.0e", getGradientShare())
                 << " of a step's largest gradient is allowed in each gradient\n";
  std::string oracle;
  FailureOr<std::vector<NamedTensors>> expected = askOracleForCalls(oracle);
  if (failed(expected))
    return failure();
  std::vector<const PhaseProgram *> chosen;
  if (options.oracle == "interpreter")
    chosen = choosePrograms();
  bool ok = true;
  for (const PhaseProgram *program : chosen)
    if (program > &base)
      ok &= succeeded(checkCallsOf(*program, base, /*exact=*/false, *expected));
  ok &= succeeded(checkCallsExactly(chosen));
  if (planFolder.empty() || options.noRun)
    return success(ok);
  FailureOr<std::vector<NamedTensors>> actual = runCalls(getPlan());
  if (failed(actual))
    return failure();
  precisionError = getPrecisionError(programs.back());
  ok &= succeeded(compareCalls("compiled against " + oracle, *expected, *actual, /*exact=*/false));
  return success(ok);
}
