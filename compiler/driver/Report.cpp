//===- Report.cpp - the summary and report.json -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"

#include "cluster/Passages.h"
#include "compiler/driver/OptionText.h"
#include "compiler/driver/SimulatedCosts.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/dist/Placement.h"
#include "dialects/dist/Sharding.h"
#include "dialects/dist/Splits.h"
#include "dialects/loom/Loom.h"
#include "dialects/plan/Plan.h"
#include "runtime/core/MemoryNeeds.h"
#include "support/Document.h"
#include "support/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

#include <iostream>

using namespace mlir;
using namespace gridloom;

static double toMs(double seconds) { return seconds * 1e3; }

static llvm::json::Array toJson(const std::vector<std::string> &list) {
  llvm::json::Array array;
  for (const std::string &text : list)
    array.push_back(text);
  return array;
}

dist::MoveCost Compilation::costPlanned(const rt::PlannedCollective &collective) const {
  std::optional<cluster::Collective> kind = cluster::findCollective(collective.kind);
  if (!kind)
    return {};
  ModuleOp program = *module;
  dist::Mesh mesh = dist::Mesh::get(program);
  SmallVector<StringAttr> along;
  if (*kind == cluster::Collective::Send || *kind == cluster::Collective::Recv)
    along = dist::getStageAxes(program); // their axes name the other stage
  else
    for (const std::string &axis : collective.axes)
      along.push_back(StringAttr::get(program.getContext(), axis));
  auto bytes = static_cast<double>(std::max(collective.bytes, collective.resultBytes));
  return {cluster::getSentBytes(*kind, bytes, mesh.getSize(along)),
          mesh.getSeconds(*kind, bytes, along)};
}

llvm::json::Object Compilation::describe(const rt::PlannedCollective &collective, size_t id) const {
  dist::MoveCost cost = costPlanned(collective);
  return llvm::json::Object{{"id", static_cast<int64_t>(id)},
                            {"kind", collective.kind},
                            {"axes", toJson(collective.axes)},
                            {"bytes", static_cast<int64_t>(collective.bytes)},
                            {"sent_bytes", std::llround(cost.sent)},
                            {"times", collective.times},
                            {"group", collective.group},
                            {"stage", collective.stage},
                            {"entry", collective.entry},
                            {"dims", collective.dims},
                            {"sequence", static_cast<int64_t>(collective.sequence)},
                            {"origin", collective.origin},
                            {"because", collective.because},
                            {"estimate_us", cost.seconds * 1e6}};
}

std::string Compilation::getMachineName() const { return dist::getMachine(*module)->getName(); }

/// "main", "main batch=8,sequence=32"
static std::string nameProgram(const std::string &entry, const std::string &dims) {
  return dims.empty() ? entry : entry + " " + dims;
}

/// The shardings of all values, read before later phases drop them.
static llvm::json::Array describeValues(ModuleOp module) {
  llvm::json::Array values;
  auto print = [](auto what) {
    std::string text;
    llvm::raw_string_ostream(text) << what;
    return text;
  };
  auto add = [&](StringRef name, StringRef op, Value value, Attribute sharding,
                 dist::OriginAttr origin) {
    llvm::json::Object entry{{"name", name.str()}, // a StringRef would not be copied
                             {"op", op.str()},
                             {"type", print(value.getType())},
                             {"sharding", print(sharding)},
                             {"origin", origin ? origin.describe() : ""}};
    if (dist::ShardingAttr storage = dist::getStorage(value))
      entry["storage"] = print(storage);
    values.push_back(std::move(entry));
  };
  for (auto func : module.getOps<func::FuncOp>())
    for (BlockArgument argument : func.getArguments())
      if (auto name = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kName))
        add(name, "input", argument, dist::getSharding(argument), dist::getOrigin(argument));
  module.walk([&](Operation *op) {
    auto shardings = op->getAttrOfType<ArrayAttr>(dist::kShardings);
    auto origins = op->getAttrOfType<ArrayAttr>(dist::kOrigins);
    if (!shardings || !origins)
      return;
    std::string name = loom::getNodeName(op->getLoc());
    if (auto weight = dyn_cast<loom::GetWeightOp>(op))
      name = weight.getName().str();
    for (auto [result, sharding, origin] : llvm::zip(op->getResults(), shardings, origins))
      add(name, op->getName().getStringRef(), result, sharding, dyn_cast<dist::OriginAttr>(origin));
  });
  return values;
}

void Compilation::recordValues() {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(describeValues(*module));
  values = std::move(text);
}

/// Memory of a device of the largest stage, as in `inspect memory`.
llvm::json::Object Compilation::describeMemory() const {
  llvm::json::Object object = describeNeeds(memory.stage, memory.needs);
  if (uint64_t limit = getMemoryLimit())
    object["limit_bytes"] = static_cast<int64_t>(limit);
  if (!estimatedMemory.empty()) {
    StageMemory estimated = findLargest(estimatedMemory);
    object["estimate"] = describeNeeds(estimated.stage, estimated.needs);
  }
  return object;
}

/// Levels of links, the fastest first. The last one joins all devices, whatever its block.
static llvm::json::Array describeLevels(const cluster::Machine &machine) {
  llvm::json::Array levels;
  for (const cluster::Level &level : machine.levels)
    levels.push_back(llvm::json::Object{{"block", level.block},
                                        {"latency_us", level.latencySeconds * 1e6},
                                        {"gigabytes_per_second", level.bytesPerSecond / 1e9}});
  return levels;
}

/// The mesh's axes, each with the numbers of the levels that its groups communicate over.
static llvm::json::Array describeAxes(ModuleOp module) {
  llvm::json::Array axes;
  dist::Mesh mesh = dist::Mesh::get(module);
  for (const dist::Mesh::Axis &axis : mesh.getAxes()) {
    if (dist::isMicroAxis(axis.name))
      continue;
    llvm::json::Array levels;
    for (size_t level :
         cluster::placeOnLevels(mesh.getMachine(), dist::placeAxes(mesh, axis.name)).levels)
      levels.push_back(static_cast<int64_t>(level));
    axes.push_back(llvm::json::Object{
        {"name", axis.name.str()}, {"size", axis.size}, {"levels", std::move(levels)}});
  }
  return axes;
}

static llvm::json::Array describeCandidates(const Choice &choice) {
  llvm::json::Array candidates;
  for (const Candidate &candidate : choice.candidates)
    candidates.push_back(
        llvm::json::Object{{"strategy", candidate.name},
                           {"simulated_ms", toMs(candidate.simulatedSeconds)},
                           {"measured_ms", toMs(candidate.measuredSeconds)},
                           {"sum_ms", toMs(candidate.sumSeconds)},
                           {"memory_bytes", candidate.memoryBytes},
                           {"estimated_memory_bytes", candidate.getEstimatedBytes()},
                           {"reason", candidate.describe()}});
  return candidates;
}

llvm::json::Array Compilation::describeCollectives() const {
  llvm::json::Array communication;
  CollectiveTimes simulated(runs);
  for (const rt::PlannedCollective &collective : collectives) {
    llvm::json::Object object = describe(collective, communication.size());
    simulated.addTo(object, collective);
    communication.push_back(std::move(object));
  }
  return communication;
}

static llvm::json::Array describeKernels(llvm::ArrayRef<CompiledKernel> compiled) {
  llvm::json::Array kernels;
  for (const CompiledKernel &kernel : compiled)
    kernels.push_back(llvm::json::Object{{"symbol", kernel.symbol},
                                         {"skeleton", kernel.skeleton},
                                         {"registers", kernel.registers},
                                         {"spill_bytes", kernel.spillBytes},
                                         {"shared_bytes", kernel.sharedBytes},
                                         {"lowering_ms", kernel.loweringMs},
                                         {"ptx_ms", kernel.ptxMs},
                                         {"cubin_ms", kernel.cubinMs}});
  return kernels;
}

static llvm::json::Array describePhases(llvm::ArrayRef<std::pair<std::string, double>> times) {
  llvm::json::Array phases;
  for (const auto &[name, ms] : times)
    phases.push_back(llvm::json::Object{{"name", name}, {"ms", ms}});
  return phases;
}

std::optional<llvm::json::Object> Compilation::describeBound() const {
  if (!choice.bound)
    return std::nullopt;
  return llvm::json::Object{{"bound_ms", toMs(choice.bound->seconds)},
                            {"sum_ms", toMs(choice.getSumSeconds())},
                            {"scope", choice.bound->scope}};
}

std::string Compilation::makeReport() const {
  llvm::json::Object report{{"model", options.input},
                            {"options", describeOptions(options)},
                            {"mesh", choice.options.mesh},
                            {"strategy", choice.name},
                            {"chosen_as", choice.describe()},
                            {"machine", getMachineName()},
                            {"cluster", cluster ? cluster->name : ""},
                            {"levels", describeLevels(*dist::getMachine(*module))},
                            {"axes", describeAxes(*module)},
                            {"target", target->getName()},
                            {"precision", getPrecision()},
                            {"candidates", describeCandidates(choice)},
                            {"planning", describePlanning()},
                            {"memory", describeMemory()},
                            {"collectives", describeCollectives()},
                            {"estimates", describePrograms(runs)},
                            {"stages", describeStages(runs, stageMemory)},
                            {"costs", describeSteps(runs)},
                            {"kernels", describeKernels(emitted.compiled)},
                            {"warnings", toJson(warnings)},
                            {"remarks", toJson(remarks)},
                            {"phases", describePhases(times)}};
  if (std::optional<llvm::json::Object> bound = describeBound())
    report["bound"] = std::move(*bound);
  if (searchBound)
    report["search"] =
        llvm::json::Object{{"cost_ms", searchBound->costMs}, {"bound_ms", searchBound->boundMs}};
  if (llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(values))
    report["values"] = std::move(*parsed);
  else
    llvm::consumeError(parsed.takeError());
  std::string text;
  llvm::raw_string_ostream(text) << llvm::formatv("{0:2}\n", llvm::json::Value(std::move(report)));
  return text;
}

/// "all_reduce over model: 13 calls, 4.9 MiB" per kind and axes, of one program and the stage that
/// sends most.
void Compilation::printCollectives(llvm::raw_ostream &os, const sim::ProgramRun &run) const {
  struct Sum {
    int64_t calls = 0, bytes = 0;
  };
  std::map<std::pair<std::string, std::string>, std::map<int, Sum>> kinds;
  CollectiveTimes simulated(std::span(&run, 1));
  for (const rt::PlannedCollective &collective : collectives) {
    if (collective.entry != run.entry || collective.dims != run.dims ||
        collective.kind == "recv") // its send is listed
      continue;
    std::string axes =
        collective.kind == "send" ? "between stages" : "over " + llvm::join(collective.axes, "+");
    Sum &sum = kinds[{collective.kind, axes}][collective.stage];
    int64_t times = simulated.countRuns(collective);
    sum.calls += times;
    sum.bytes += times * std::llround(costPlanned(collective).sent);
  }
  if (kinds.empty())
    os << "  communication   none\n";
  for (auto &[key, stages] : kinds) {
    Sum most;
    for (auto &[stage, sum] : stages)
      if (sum.bytes >= most.bytes)
        most = sum;
    os << "  communication   " << key.first << " " << key.second << ": "
       << formatCount(most.calls, "call") << ", " << formatBytes(static_cast<uint64_t>(most.bytes))
       << " sent per device\n";
  }
}

/// A line for each of the first programs; if there are several, also their sum, by which strategies
/// are compared.
void Compilation::printEstimates(llvm::raw_ostream &os) const {
  constexpr size_t most = 3;
  double all = 0;
  for (const sim::ProgramRun &run : runs)
    all += run.seconds;
  // A GPU's steps take fractions of a millisecond.
  int digits = all < 1e-3 * static_cast<double>(runs.size()) ? 3 : 1;
  std::string machine = getMachineName() == "cpu" ? "" : " on " + makePrintable(getMachineName());
  for (const sim::ProgramRun &run : llvm::ArrayRef(runs).take_front(most)) {
    std::string dims = runs.size() > 1 ? run.dims : "";
    os << "  estimate        " << makePrintable(nameProgram(run.entry, dims)) << machine
       << llvm::format(": %.*f ms (compute %.*f, comm %.*f, exposed %.*f, bubble %.0f%%)\n", digits,
                       toMs(run.seconds), digits, run.stats.compute, digits,
                       run.stats.communication, digits, run.stats.exposed, 100 * run.stats.bubble);
    if (&run != &runs.front())
      continue;
    printCollectives(os, run);
    std::vector<sim::StepSum> steps = sim::sumSteps(run);
    for (const sim::StepSum &step : llvm::ArrayRef(steps).take_front(3))
      os << llvm::format("  costly          %.3g ms  %s  %s\n", toMs(step.seconds),
                         makePrintable(step.name).c_str(), makePrintable(step.node).c_str());
  }
  if (runs.size() > 1)
    os << "  estimate        all " << runs.size() << " specialisations" << machine
       << llvm::format(": %.*f ms\n", digits, toMs(all));
}

/// The chosen candidate, and the times of the first others.
void Compilation::printChoice(llvm::raw_ostream &os) const {
  std::string outcome = choice.describe();
  if (!choice.name.empty())
    os << "  strategy        " << choice.name << (outcome.empty() ? "" : " (" + outcome + ")")
       << "\n";
  constexpr size_t most = 8;
  SmallVector<const Candidate *> others;
  for (const Candidate &candidate : choice.candidates)
    if (candidate.verdict != Verdict::Chosen)
      others.push_back(&candidate);
  // The nearest first: slower ones, best measured or simulated, then those left, then refused ones.
  if (others.size() > most)
    llvm::stable_sort(others, [](const Candidate *a, const Candidate *b) {
      auto rank = [](const Candidate *c) {
        int group = c->verdict == Verdict::Slower ? 0 : c->verdict == Verdict::Left ? 1 : 2;
        return std::tuple(group, c->measuredSeconds == 0, c->simulatedSeconds == 0, c->sumSeconds);
      };
      return rank(a) < rank(b);
    });
  for (const Candidate *candidate : ArrayRef(others).take_front(most)) {
    os << "    not           " << candidate->name << ": ";
    if (candidate->verdict == Verdict::Refused || candidate->sumSeconds == 0)
      os << candidate->describe();
    else if (candidate->measuredSeconds > 0)
      os << llvm::format("%.3g ms measured, %.3g ms simulated", toMs(candidate->measuredSeconds),
                         toMs(candidate->simulatedSeconds));
    else if (candidate->simulatedSeconds > 0)
      os << llvm::format("%.3g ms simulated", toMs(candidate->simulatedSeconds));
    else
      os << llvm::format("%.3g ms by its sum", toMs(candidate->sumSeconds));
    os << "\n";
  }
  if (choice.bound && choice.getSumSeconds() > 0)
    os << llvm::format("  bound           %.3g ms by its sum, no plan takes less than %.3g ms: ",
                       toMs(choice.getSumSeconds()), toMs(choice.bound->seconds))
       << choice.bound->scope << "\n";
  if (others.size() > most)
    os << "    and           " << others.size() - most << " more: gridloom explain "
       << quoteForShell(options.output) << "\n";
}

/// How many weights are trained, and which ones no loss depends on.
static void printTraining(llvm::raw_ostream &os, DictionaryAttr training) {
  auto count = [&](StringRef name) { return training.getAs<IntegerAttr>(name).getInt(); };
  os << "  trains          " << count("parameters")
     << (count("parameters") == 1 ? " weight, " : " weights, ") << countCell(count("elements")).text
     << " elements, by " << training.getAs<StringAttr>("optimizer").getValue() << "\n";
  auto unreached = training.getAs<ArrayAttr>("unreached");
  if (!unreached)
    return;
  constexpr size_t most = 4;
  auto names = llvm::map_to_vector(unreached.getAsRange<StringAttr>(), [](StringAttr name) {
    return "'" + makePrintable(name.getValue().str()) + "'";
  });
  os << "    not           " << llvm::join(ArrayRef(names).take_front(most), ", ");
  if (names.size() > most)
    os << " and " << names.size() - most << " more";
  os << ": no loss depends on " << (names.size() == 1 ? "it" : "them") << "\n";
}

void Compilation::printSummary() const {
  llvm::raw_ostream &os = llvm::outs();
  os << options.output << ": " << options.input << " for " << target->getName()
     << (getPrecision() == "f32" ? "" : " in " + getPrecision()) << "\n";
  printChoice(os);
  if (std::string stop = describeStop(); !stop.empty())
    os << "  stopped         " << stop << "\n";
  os << "  memory          " << formatBytes(memory.needs.getAllocated())
     << " per device: " << rt::describe(memory.needs);
  if (uint64_t limit = getMemoryLimit())
    os << "; limit " << formatBytes(limit);
  os << "\n";
  os << "  code            " << formatCount(emitted.kernels, "kernel") << ", "
     << formatBytes(uint64_t(emitted.kernelBytes)) << "; programs "
     << formatBytes(uint64_t(emitted.programBytes)) << "\n";
  if (auto training = (*module)->getAttrOfType<DictionaryAttr>(loom::kTraining))
    printTraining(os, training);
  printEstimates(os);
  if (!remarks.empty())
    os << "  remarks         " << remarks.size()
       << " (see report.json or --remarks); the first: " << remarks.front() << "\n";
  double total = 0;
  for (const auto &[name, ms] : times)
    total += ms;
  os << llvm::format("  compiled in     %.1f s; report: %s/report.json\n", total / 1e3,
                     options.output.c_str());
  if (options.train.isOn)
    os << "  train it        gridloom train " << quoteForShell(options.output)
       << " --data FOLDER --steps N\n";
  else
    os << "  run it          gridloom run " << quoteForShell(options.output) << "\n";
  os.flush();
  if (!llvm::outs().has_error())
    return;
  std::cerr << "warning: the plan is complete, but standard output cannot be written: "
            << llvm::outs().error().message() << "\n";
  llvm::outs().clear_error();
}
