//===- Check.cpp - split equals unsplit -----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Check.h"
#include "compiler/interpreter/Bisect.h"

#include "dialects/loom/DrawAttr.h"
#include "dialects/loom/Signature.h"
#include "support/Sha256.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registry.insert<func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
  return registry;
}

Check::Check(const CheckOptions &options)
    : options(options), context(makeRegistry(), MLIRContext::Threading::DISABLED) {
  context.loadAllAvailableDialects();
  context.getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
    handle(diagnostic);
    return success();
  });
}

Check::~Check() {
  if (unsplitFolder.empty())
    return;
  if (std::error_code code = llvm::sys::fs::remove_directories(unsplitFolder))
    llvm::errs() << "warning: cannot remove " << unsplitFolder << ": " << code.message() << "\n";
}

void Check::handle(Diagnostic &diagnostic) {
  if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
    return;
  broken = true;
  std::string text = loom::describeWithNode(diagnostic);
  // A bisection meets the same errors again.
  if (reported.insert(text).second)
    llvm::errs() << "error: " << text << "\n";
}

/// Parses a dump; where that fails, `error` is the first error, with its line.
static OwningOpRef<ModuleOp> parseDump(StringRef path, MLIRContext &context, std::string &error) {
  ScopedDiagnosticHandler handler(&context, [&error](Diagnostic &diagnostic) {
    if (!error.empty() || diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return success();
    if (auto place = dyn_cast<FileLineColRange>(diagnostic.getLocation()))
      error = "line " + std::to_string(place.getStartLine()) + ": ";
    error += loom::describeWithNode(diagnostic);
    return success();
  });
  return parseSourceFile<ModuleOp>(path, &context);
}

LogicalResult Check::loadDump(StringRef path, bool required) {
  auto fail = [&](const Twine &message) { return emitError(UnknownLoc::get(&context)) << message; };
  if (!llvm::sys::fs::exists(path))
    return fail(path + ": is not a plan folder or a dump of a phase; nothing has this name");
  std::string error;
  OwningOpRef<ModuleOp> module = parseDump(path, context, error);
  if (!module && !path.ends_with(".mlir"))
    return fail(path + ": is not a plan folder or a dump of a phase (.mlir); make a plan with "
                       "gridloom compile");
  if (!module)
    return fail("cannot read '" + path + "': " + error +
                (required ? "" : "; compile the plan again"));
  auto specialisations = getSpecialisations(*module);
  if (specialisations.empty()) {
    if (required)
      return fail("'" + path + "' holds no function of an entry");
    if (module->getOps<plan::ProgramOp>().empty())
      return fail("'" + path + "' holds no program; compile the plan again");
    // From the schedule phase on, programs work on buffers; running the plan checks them.
    return success();
  }
  programs.push_back(
      {llvm::sys::path::stem(path).str(), std::move(module), std::move(specialisations)});
  return success();
}

LogicalResult Check::load() {
  auto fail = [&](const Twine &message) { return emitError(UnknownLoc::get(&context)) << message; };
  if (!llvm::sys::fs::is_directory(options.paths.front())) {
    if (!options.requireSignature.empty())
      return fail("--require-signature is for a plan, and '" + options.paths.front() +
                  "' is not a plan's folder");
    for (const std::string &path : options.paths)
      if (failed(loadDump(path, /*required=*/true)))
        return failure();
    return success();
  }
  planFolder = options.paths.front();
  if (options.paths.size() > 1)
    return fail("give one plan, or dumps to compare");
  if (std::string fault; !options.requireSignature.empty()) {
    findModel(getPlan(), fault);
    if (!fault.empty())
      return fail(fault);
  }
  SmallString<256> folder(planFolder);
  llvm::sys::path::append(folder, "ir");
  std::vector<std::string> dumps;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator file(folder, error), end; file != end && !error;
       file.increment(error))
    if (StringRef(file->path()).ends_with(".mlir"))
      dumps.push_back(file->path());
  llvm::sort(dumps);
  for (const std::string &dump : dumps)
    if (failed(loadDump(dump, /*required=*/false)))
      return failure();
  SmallString<256> manifest(planFolder);
  llvm::sys::path::append(manifest, "manifest.json");
  if (programs.empty() && !llvm::sys::fs::exists(manifest))
    return fail(planFolder + ": is not a plan folder: it has no manifest.json");
  if (programs.empty())
    return fail("'" + folder + "' holds no program to interpret; compile the plan again");
  // A plan that was compiled from a later dump lacks it, too.
  if (const PhaseProgram &first = programs.front();
      !first.isPartitioned() && !StringRef(first.name).ends_with("import"))
    llvm::errs() << "warning: '" << folder << "' has no dump of the import phase: what is right is "
                 << first.name << ", so faults of earlier phases do not show; compile the model "
                 << "again\n";
  return success();
}

std::string Check::getModelPath(std::string &error) const {
  return options.model.empty() && !planFolder.empty() ? findModel(getPlan(), error) : options.model;
}

/// Why the weights of `module` are not in the file; empty if they are, and where a dump by hand
/// says nothing of its model. Files that cannot be read are reported with the weight that is read.
static std::string refuseModel(ModuleOp module, const std::string &path) {
  auto model = module->getAttrOfType<DictionaryAttr>(loom::kModel);
  auto digest = model ? model.getAs<StringAttr>("sha256") : StringAttr();
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!digest || !file)
    return "";
  std::string actual = sha256(std::string_view((*file)->getBuffer()));
  return actual == digest.getValue()
             ? ""
             : "'" + path + "' has SHA-256 " + actual + ", the model of the program has " +
                   digest.str() + "; compile again, or give that model with --model";
}

LogicalResult Check::openWeights() {
  std::string error, model = getModelPath(error);
  if (!error.empty())
    return emitError(UnknownLoc::get(&context)) << error;
  ModuleOp module = *programs.front().module;
  if (model.empty())
    if (auto attr = module->getAttrOfType<DictionaryAttr>(loom::kModel))
      if (auto path = attr.getAs<StringAttr>("path"))
        model = path.str();
  if (!model.empty()) {
    if (std::string reason = refuseModel(module, model); !reason.empty())
      return emitError(UnknownLoc::get(&context)) << reason;
    weights = std::make_unique<FileWeights>(model);
    return success();
  }
  if (!module.getOps<loom::WeightOp>().empty())
    llvm::outs() << "no model is named: weights are random\n";
  weights = std::make_unique<GeneratedWeights>();
  return success();
}

std::vector<const PhaseProgram *> Check::choosePrograms() const {
  std::vector<const PhaseProgram *> chosen;
  for (size_t i = 1; i < programs.size(); ++i)
    if (planFolder.empty() || options.allPhases || i + 1 == programs.size())
      chosen.push_back(&programs[i]);
  return chosen;
}

/// Simplification may change arithmetic; later phases may not. So a plan's programs are compared
/// bit by bit with the last unsplit one.
const PhaseProgram &Check::getExactBase() const {
  const PhaseProgram *base = &programs.front();
  if (!planFolder.empty())
    for (const PhaseProgram &program : programs)
      if (!program.isPartitioned())
        base = &program;
  return *base;
}

static const Specialisation *lookup(const PhaseProgram &program, const Specialisation &like) {
  for (const Specialisation &candidate : program.specialisations)
    if (candidate.entry == like.entry && candidate.dims == like.dims)
      return &candidate;
  return nullptr;
}

/// The first program with all entries: the simplify phase adds training steps and evaluations.
const PhaseProgram &Check::getReference() const {
  const PhaseProgram *simplified = findSimplified();
  return simplified && (*simplified->module)->hasAttr(loom::kTraining) ? *simplified
                                                                       : programs.front();
}

/// Whether weights begin with drawn values rather than the model's.
bool Check::drawsWeights() const {
  for (auto function : (*getReference().module).getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (function.getArgAttr(i, loom::kDraw))
        return true;
  return false;
}

/// The first program that has the specialisation. An imported training step does not count: it is
/// only the model, possibly for a part of the batch.
const PhaseProgram &Check::getBase(const Specialisation &specialisation) const {
  bool isModel = specialisation.entry != loom::kTrainStep && !drawsWeights();
  return isModel && lookup(programs.front(), specialisation) ? programs.front() : getReference();
}

const Specialisation *Check::find(const PhaseProgram &program, const Specialisation &like) {
  if (const Specialisation *found = lookup(program, like))
    return found;
  (void)(emitError(UnknownLoc::get(&context))
         << "'" << program.name << "' lacks entry '" << like.entry << "' with dims " << like.dims);
  return nullptr;
}

const NamedTensors *Check::evaluate(const PhaseProgram &program,
                                    const Specialisation &specialisation, bool exact) {
  auto found = evaluated.find({&program, exact});
  if (found != evaluated.end())
    return &found->second;
  const Specialisation *own = find(program, specialisation);
  if (!own)
    return nullptr;
  InterpreterOptions interpreterOptions;
  interpreterOptions.exact = exact;
  bool isWatched = isRight(program, exact);
  if (isWatched)
    step.emplace(*weights).watch(interpreterOptions);
  Interpreter interpreter(*program.module, *weights, std::move(interpreterOptions));
  FailureOr<NamedTensors> outputs = interpreter.run(*own, inputs);
  if (failed(outputs))
    return nullptr;
  widenStates(*own, *outputs);
  if (isWatched && failed(step->addCall(*own, *outputs)))
    return nullptr;
  return &(evaluated[{&program, exact}] = *std::move(outputs));
}

double gridloom::getPrecisionError(const PhaseProgram &program) {
  ModuleOp module = *program.module;
  auto precision = module->getAttrOfType<StringAttr>(loom::kPrecision);
  return llvm::StringSwitch<double>(precision ? precision.getValue() : "f32")
      .Case("tf32", 2e-3)
      .Case("f16", 4e-3)
      .Case("bf16", 3e-2)
      .Default(0);
}

Tolerance Check::getTolerance(const HostTensor &tensor) const {
  Tolerance rounding = getRounding(tensor.getKind());
  double largest = precisionError > 0 ? getLargest(tensor) : 0;
  return {options.rtol + rounding.relative,
          options.atol + rounding.absolute + precisionError * largest};
}

/// The error allowed for gradients, relative to a step's largest gradient: a hundredth of the
/// results' tolerance, for rounding in sums, plus the error of the precision.
double Check::getGradientShare() const { return options.rtol / 100 + precisionError; }

/// What sums in another order may change in an element of f32, relative to the output's largest
/// element: 64 roundings of that.
static constexpr double kRounding = 0x1p-18;

/// At least the number, in two digits.
static double roundUp(double number) {
  double unit = std::pow(10, std::floor(std::log10(number)) - 1);
  return std::ceil(number / unit) * unit;
}

int64_t Check::compareOutputs(StringRef what, const NamedTensors &expected,
                              const NamedTensors &actual, const StepRecord *steps, size_t calls) {
  std::map<std::string, const HostTensor *> sorted;
  for (const auto &entry : expected)
    sorted[entry.first().str()] = &entry.second;
  int64_t excused = 0;
  for (const auto &[name, right] : sorted) {
    ++compared;
    llvm::outs() << "  " << what << ": output '" << name << "' " << describeType(*right) << ": ";
    auto found = actual.find(name);
    if (found == actual.end()) {
      ++different;
      mayBeRounding = false;
      llvm::outs() << "missing\n";
      continue;
    }
    std::vector<double> allowance;
    if (steps)
      allowance = steps->getAllowance(calls, name, getGradientShare());
    Difference difference = compare(*right, found->second, getTolerance(*right), allowance);
    different += !difference.equal;
    mayBeRounding &= difference.maxWrong <= kRounding * getLargest(*right);
    furthest = std::max(furthest, difference.maxWrong);
    excused += difference.excused;
    llvm::outs() << describe(difference, *right, found->second)
                 << (difference.equal ? "" : " <-- DIFFERS") << "\n";
  }
  return excused;
}

LogicalResult Check::checkProgram(const PhaseProgram &base, const PhaseProgram &program,
                                  const Specialisation &specialisation, bool exact) {
  const NamedTensors *expected = evaluate(base, specialisation, exact);
  if (!expected)
    return failure();
  int64_t before = different;
  const NamedTensors *actual = evaluate(program, specialisation, exact);
  precisionError = exact ? 0 : getPrecisionError(program);
  if (actual)
    compareOutputs(program.name + (exact ? " (exact) against " : " against ") + base.name,
                   *expected, *actual, isRight(base, exact) ? &*step : nullptr);
  programsDiffer |= different > before;
  if (options.bisect && (!actual || different > before)) {
    InterpreterOptions interpreterOptions;
    interpreterOptions.exact = exact;
    const Specialisation *left = find(base, specialisation), *right = find(program, specialisation);
    if (left && right) {
      FailureOr<std::string> verdict = bisect(
          {*base.module, left}, {*program.module, right}, *weights, inputs, interpreterOptions,
          {options.rtol + precisionError, options.atol + precisionError});
      if (succeeded(verdict))
        llvm::outs() << "  " << program.name << ": " << *verdict << "\n";
    }
  }
  return success(actual);
}

/// Whether the last program uses an input.
bool Check::isRead(const Specialisation &specialisation, StringRef input) const {
  const Specialisation *last = lookup(programs.back(), specialisation);
  return last && llvm::any_of(last->stages, [&](func::FuncOp stage) {
           BlockArgument argument = loom::findArgument(stage, input);
           return argument && !argument.use_empty();
         });
}

LogicalResult Check::checkPlan(const Specialisation &specialisation) {
  auto [entry, dims, given, states] = makeCall(specialisation, inputs);
  PlanRunResult result = runPlan(getPlan(), specialisation.entry, dims, given);
  if (!result.error.empty())
    return emitError(UnknownLoc::get(&context)) << "the plan does not run: " << result.error;
  FailureOr<NamedTensors> actual = toTensors(result.outputs, &context);
  std::string name;
  FailureOr<NamedTensors> expected = askOracle(specialisation, given, dims, name);
  if (failed(actual) || failed(expected))
    return failure();
  dropStates(specialisation, *expected);
  int64_t before = different;
  for (const std::string &input : result.unread) {
    if (isRead(specialisation, input))
      return emitError(UnknownLoc::get(&context))
             << "the plan has no input '" << input << "', which " << programs.back().name
             << " reads; compile it again";
    llvm::outs() << "  input '" << input << "' is not in the plan: nothing reads it\n";
  }
  precisionError = getPrecisionError(programs.back());
  compareOutputs("compiled, " + std::to_string(result.ranks) +
                     (result.ranks == 1 ? " rank" : " ranks") + ", against " + name,
                 *expected, *actual);
  if (options.bisect && different > before)
    explainPlan(specialisation);
  return success();
}

/// The outputs of the imported program; gradients are outputs that the simplify phase adds.
FailureOr<NamedTensors> Check::interpret(const Specialisation &specialisation, std::string &name) {
  const PhaseProgram &base = getBase(specialisation);
  name = base.name;
  const NamedTensors *first = evaluate(base, specialisation, /*exact=*/false);
  if (!first)
    return failure();
  NamedTensors expected = *first;
  if (&base == &getReference() && &base != &programs.front())
    return expected;
  const PhaseProgram *simplified = findSimplified();
  const Specialisation *own = simplified ? find(*simplified, specialisation) : nullptr;
  auto countOutputs = [](const Specialisation &each) {
    return func::FuncOp(each.stages.front()).getNumResults();
  };
  if (!own || countOutputs(*own) == countOutputs(specialisation))
    return expected;
  const NamedTensors *more = evaluate(*simplified, specialisation, /*exact=*/false);
  if (!more)
    return failure();
  name += " and " + simplified->name;
  for (const auto &entry : *more)
    expected.try_emplace(entry.first(), entry.second);
  return expected;
}

const PhaseProgram *Check::findSimplified() const {
  auto found = llvm::find_if(programs, [](const PhaseProgram &program) {
    return StringRef(program.name).ends_with("simplify");
  });
  return found == programs.end() ? nullptr : &*found;
}

FailureOr<NamedTensors> Check::askOracle(const Specialisation &specialisation,
                                         const std::map<std::string, PlanTensor> &given,
                                         const std::map<std::string, int64_t> &dims,
                                         std::string &name) {
  if (options.oracle == "interpreter") {
    return interpret(specialisation, name);
  }
  PlanRunResult result;
  if (options.oracle == "1rank") {
    name = "1 rank";
    FailureOr<std::string> plan = compileUnsplit();
    if (failed(plan))
      return failure();
    result = runPlan({*plan}, specialisation.entry, dims, given);
  } else {
    name = "ONNX Runtime";
    std::string model = getModelPath(result.error);
    std::map<std::string, PlanTensor> feeds = given;
    addStates(specialisation, feeds);
    if (result.error.empty())
      result = runOnnxRuntime(model, feeds);
  }
  if (!result.error.empty())
    return emitError(UnknownLoc::get(&context))
           << "oracle " << options.oracle << ": " << result.error;
  return toTensors(result.outputs, &context);
}

/// Compiles the last unsplit program for one device, once. Returns the plan's folder.
FailureOr<std::string> Check::compileUnsplit() {
  auto inFolder = [&](StringRef name) {
    SmallString<128> path(unsplitFolder);
    llvm::sys::path::append(path, name);
    return path.str().str();
  };
  if (!unsplitFolder.empty())
    return inFolder("unsplit.plan");
  auto fail = [&](const Twine &message) { return emitError(UnknownLoc::get(&context)) << message; };
  const PhaseProgram *simplified = findSimplified();
  if (!simplified || !options.compileUnsplit)
    return fail("oracle 1rank: the plan holds no program of the simplify phase");
  if (std::error_code error = llvm::sys::fs::createUniqueDirectory("gridloom-check", unsplitFolder))
    return fail("cannot make a temporary folder: " + error.message());
  std::string error, text;
  // The plan is in another folder, so relative paths of its model would not resolve there.
  OwningOpRef<ModuleOp> module = simplified->module.get().clone();
  ModuleOp program = *module;
  if (auto model = program->getAttrOfType<DictionaryAttr>(loom::kModel)) {
    NamedAttrList list(model);
    SmallString<128> path(getModelPath(error));
    if (std::error_code code = llvm::sys::fs::make_absolute(path))
      return fail("cannot find the current folder: " + code.message());
    list.set("path", StringAttr::get(&context, path));
    program->setAttr(loom::kModel, list.getDictionary(&context));
  }
  program->removeAttr("loom.annotations");
  OpPrintingFlags flags;
  flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  llvm::raw_string_ostream stream(text);
  program.print(stream, flags);
  std::string dump = inFolder("simplify.mlir"), plan = inFolder("unsplit.plan");
  std::error_code code;
  llvm::raw_fd_ostream(dump, code) << text;
  if (code || !options.compileUnsplit(dump, plan))
    return fail("oracle 1rank: the unsplit program cannot be compiled");
  return plan;
}

/// Looks for the difference in the programs; if they agree, a later phase or the runtime causes it.
void Check::explainPlan(const Specialisation &specialisation) {
  int64_t before = different;
  if (options.oracle != "interpreter")
    (void)checkProgram(getBase(specialisation), programs.back(), specialisation, /*exact=*/false);
  if (different == before && !programsDiffer)
    explainBelow();
}

void Check::explainBelow() const {
  llvm::outs() << "  there is no node to name: every program up to " << programs.back().name
               << " agrees; the compiled plan differs, by its schedule, a kernel or the runtime\n";
}

/// Fails unless each --input names an input of some entry.
LogicalResult Check::checkGiven() {
  for (StringRef text : options.inputs) {
    StringRef name = text.split('=').first;
    auto has = [&](const Specialisation &specialisation) {
      return bool(loom::findArgument(specialisation.stages.front(), name));
    };
    if (llvm::none_of(programs.front().specialisations, has) &&
        llvm::none_of(getReference().specialisations, has))
      return emitError(UnknownLoc::get(&context)) << "the program has no input '" << name << "'";
  }
  return success();
}

/// Inputs of one entry; --input of other entries is left out.
FailureOr<NamedTensors> Check::makeInputs(const Specialisation &specialisation, uint64_t seed) {
  func::FuncOp function = specialisation.stages.front();
  std::vector<std::string> given;
  for (const std::string &text : options.inputs)
    if (loom::findArgument(function, StringRef(text).split('=').first))
      given.push_back(text);
  return gridloom::makeInputs(function, given, seed);
}

LogicalResult Check::checkSpecialisation(const Specialisation &specialisation) {
  llvm::outs() << "entry '" << specialisation.entry << "'";
  if (specialisation.dims && !specialisation.dims.empty()) {
    llvm::outs() << " with ";
    llvm::interleaveComma(specialisation.dims, llvm::outs(), [](NamedAttribute dim) {
      llvm::outs() << dim.getName().str() << "=" << cast<IntegerAttr>(dim.getValue()).getInt();
    });
  }
  llvm::outs() << "\n";
  FailureOr<NamedTensors> made = makeInputs(specialisation, options.seed);
  if (failed(made))
    return failure();
  inputs = *std::move(made);
  evaluated.clear();
  bool ok = true;
  std::vector<const PhaseProgram *> chosen;
  if (options.oracle == "interpreter")
    chosen = choosePrograms();
  for (const PhaseProgram *program : chosen) {
    const PhaseProgram &base = getBase(specialisation);
    if (program > &base)
      ok &= succeeded(checkProgram(base, *program, specialisation, /*exact=*/false));
    if (isCheckedExactly(*program))
      ok &= succeeded(checkProgram(getExactBase(), *program, specialisation, /*exact=*/true));
  }
  if (!planFolder.empty() && !options.noRun)
    ok &= succeeded(checkPlan(specialisation));
  return success(ok);
}

int Check::report() const {
  if (!broken && different == 0 && compared > 0) {
    llvm::outs() << "PASS: " << compared << (compared == 1 ? " output agrees" : " outputs agree")
                 << "\n";
    return 0;
  }
  if (different > 0 && mayBeRounding)
    llvm::outs() << "  rounding in sums may cause all of this: no element that differs is off by "
                    "more than "
                 << llvm::format("%.0e of its output's largest; --atol %.2g accepts them",
                                 kRounding, roundUp(furthest))
                 << "\n";
  if (compared == 0)
    llvm::outs() << "FAIL: nothing could be checked"
                 << (broken ? "" : ": there is nothing to compare the first program with") << "\n";
  else
    llvm::outs() << "FAIL: " << different << " of " << compared << " outputs differ"
                 << (broken ? ", and not everything could be checked" : "") << "\n";
  return 1;
}

int Check::run() {
  if (failed(load()) || failed(openWeights()))
    return 1;
  if (programs.front().isPartitioned()) {
    llvm::errs() << "error: '" << programs.front().name
                 << "' is already split, and the first dump must not be: it is what is right; give "
                    "one of the phase import, simplify or shard\n";
    return 1;
  }
  if (planFolder.empty() && programs.size() == 1) {
    llvm::errs() << "error: there is nothing to compare '" << options.paths.front()
                 << "' with; give a second dump, or a plan's folder\n";
    return 1;
  }
  if (failed(checkGiven()))
    return 1;
  bool asksOrt = options.oracle == "ort"; // which knows only the model
  if (asksOrt && drawsWeights()) {
    llvm::errs() << "error: --oracle ort computes with the model's weights, and the plan draws its "
                    "own (--init); take --oracle 1rank or interpreter\n";
    return 1;
  }
  for (const Specialisation &specialisation : getReference().specialisations)
    if (const PhaseProgram &base = getBase(specialisation); &base == &programs.front())
      broken |= failed(checkSpecialisation(*lookup(base, specialisation)));
    else if (!asksOrt)
      broken |= failed(checkSpecialisation(specialisation));
  broken |= failed(checkCalls());
  return report();
}

/// Which option does not go with --oracle; empty if all do.
static std::string findMisuse(const CheckOptions &options) {
  if (options.oracle == "interpreter")
    return "";
  const std::string &path = options.paths.front();
  if (llvm::sys::fs::exists(path) && !llvm::sys::fs::is_directory(path))
    return "'" + path + "' is a file; give a plan's folder";
  if (options.noRun)
    return "--no-run does not run it; leave it out";
  if (options.exact || options.allPhases)
    return std::string(options.exact ? "--exact" : "--all-phases") +
           " compares programs that are interpreted; leave it out, or take --oracle interpreter";
  if (options.oracle == "1rank" && !options.requireSignature.empty())
    return "compiles the other one from '" + path +
           "/ir', which no signature covers; take --oracle interpreter, or leave "
           "--require-signature out";
  return "";
}

int gridloom::runCheck(const CheckOptions &options) {
  if (std::string misuse = findMisuse(options); !misuse.empty()) {
    llvm::errs() << "error: --oracle " << options.oracle
                 << " compares what a compiled plan computes, and " << misuse << "\n";
    return 1;
  }
  int code = Check(options).run();
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    return code;
  llvm::errs() << "error: standard output cannot be written: " << llvm::outs().error().message()
               << "\n";
  llvm::outs().clear_error();
  return 1;
}
