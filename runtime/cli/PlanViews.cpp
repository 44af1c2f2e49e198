//===- PlanViews.cpp - contents of a plan as documents --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/PlanViews.h"

#include "runtime/cli/Job.h"
#include "runtime/cli/ReportFile.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/LibraryCalls.h"
#include "runtime/core/MemoryNeeds.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <set>
#include <sstream>

using namespace gridloom;
using namespace gridloom::rt;

template <typename Shape> static std::string shapeText(const Shape &shape) {
  return formatShape(std::vector<int64_t>(shape.begin(), shape.end()));
}

static std::string typeText(schema::DataType type) {
  return std::string(nameOf(DataType(int(type))));
}

static std::string joinAll(const auto &parts, const std::string &separator = ".") {
  std::string text;
  for (const auto &part : parts)
    text += (text.empty() ? "" : separator) + part;
  return text;
}

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

Document gridloom::rt::makeSummary(const Plan &plan) {
  Document document;
  document.addField("plan", plan.getFolder().string());
  document.addField("producer", plan.getProducer());
  SignatureSummary signature = summarizeSignature(plan);
  document.addField("signature", signature.state);
  if (!signature.signer.empty())
    document.addField("signed_by", signature.signer);
  document.addField("model", plan.getModel().path.lexically_normal().string());
  document.addField("target", plan.getTargetKind() + " " + plan.getTargetArch());
  document.addField("precision", plan.getPrecision());
  document.addField("mesh", formatMesh(plan.getMesh()));
  document.addField("ranks", plan.getMesh().getNumRanks());
  document.addField("stages", plan.getNumStages());
  document.addField("microbatches", plan.getMicrobatches());
  uint64_t weightBytes = 0;
  for (const WeightInfo &weight : plan.getWeights())
    weightBytes += weight.bytes;
  Cell bytes = bytesCell(weightBytes);
  document.addField("weights", plan.getWeights().size());
  document.addField("weight_bytes", bytes);
  for (const auto &[kind, count] : countSteps(plan))
    document.addField(kind + "_steps", count);

  document.addTable("arguments", {"entry", "dims", "argument", "name", "type", "shape", "stages"});
  for (const Entry &entry : plan.getEntries())
    for (const EntrySpecialisation &specialisation : entry.specialisations)
      for (bool isInput : {true, false})
        for (const Argument &argument : isInput ? specialisation.inputs : specialisation.outputs)
          document.addRow({entry.name, formatDims(specialisation.dims),
                           isInput ? "input" : "output", argument.name,
                           std::string(nameOf(argument.type)),
                           Cell(argument.shape, formatShape(argument.shape)), argument.stages});

  // Per kind, group and stage, a rank's communication in one call.
  std::map<std::tuple<std::string, std::string, int>, std::pair<int64_t, uint64_t>> sums;
  for (const PlannedCollective &collective : findCountedCollectives(plan)) {
    auto &[times, sum] = sums[{collective.kind, joinAll(collective.axes), collective.stage}];
    times += collective.times;
    sum += collective.bytes * uint64_t(collective.times);
  }
  document.addTable("communication", {"kind", "over", "stage", "times", "bytes"});
  for (const auto &[key, value] : sums)
    document.addRow({std::get<0>(key), std::get<1>(key), std::get<2>(key), value.first,
                     bytesCell(value.second)});
  return document;
}

Document gridloom::rt::makeCollectives(const Plan &plan) {
  Document document;
  document.addTable("collectives", {"id", "stage", "entry", "dims", "sequence", "kind", "reduction",
                                    "over", "ranks", "bytes", "times", "onnx_node", "because"});
  int64_t id = 0;
  for (const PlannedCollective &c : findCountedCollectives(plan))
    document.addRow({id++, c.stage, c.entry, c.dims, c.sequence, c.kind, c.reduction,
                     joinAll(c.axes), c.group, bytesCell(c.bytes), c.times, c.origin, c.because});
  return document;
}

Document gridloom::rt::makeMemory(const Plan &plan) {
  Document document;
  // The memory that a session allocates: the largest program's activations, and all programs'
  // inputs and outputs.
  std::vector<PlannedMemory> programs = findMemory(plan);
  document.addTable("memory_of_a_rank", {"stage", "weights", "states", "arena", "registered",
                                         "inputs", "outputs", "total"});
  for (int number = 0; number < plan.getNumStages(); ++number) {
    MemoryNeeds needs = computeNeeds(plan.getStage(number));
    uint64_t inputs = 0, outputs = 0;
    for (const PlannedMemory &m : programs)
      if (m.stage == number) {
        inputs += m.inputs;
        outputs += m.outputs;
      }
    document.addRow({number, bytesCell(needs.weights), bytesCell(needs.states),
                     bytesCell(needs.arena), bytesCell(needs.registered), bytesCell(inputs),
                     bytesCell(outputs), bytesCell(needs.getAllocated())});
  }
  document.addTable("memory_of_programs",
                    {"stage", "entry", "dims", "arena", "registered", "inputs", "outputs"});
  for (const PlannedMemory &m : programs)
    document.addRow({m.stage, m.entry, m.dims, bytesCell(m.arena), bytesCell(m.registered),
                     bytesCell(m.inputs), bytesCell(m.outputs)});
  return document;
}

/// "launch k3", "all_reduce #2 over model", "wait 5".
static std::string describeStep(const schema::Stage &stage, const schema::Step &step) {
  if (step.has_launch())
    return stage.kernels(int(step.launch().kernel())).symbol();
  if (step.has_library())
    return describe(step.library());
  if (step.has_copy())
    return "copy";
  if (step.has_group()) {
    const schema::Group &group = step.group();
    std::string text = getKindName(group) + " #" + std::to_string(group.sequence());
    if (group.kind() == schema::Group::SEND || group.kind() == schema::Group::RECV)
      return text + (group.kind() == schema::Group::SEND ? " to stage " : " from stage ") +
             std::to_string(group.peer_stage());
    return text + " over " + joinAll(group.axes());
  }
  const schema::Event &event = step.has_record() ? step.record() : step.wait();
  return (step.has_record() ? "record " : "wait ") + std::to_string(event.id()) +
         (event.lag() ? " lag " + std::to_string(event.lag()) : "");
}

static std::pair<std::vector<uint32_t>, std::vector<uint32_t>>
getBuffers(const schema::Step &step) {
  auto both = [](const auto &part) {
    return std::pair(std::vector<uint32_t>(part.inputs().begin(), part.inputs().end()),
                     std::vector<uint32_t>(part.outputs().begin(), part.outputs().end()));
  };
  if (step.has_launch())
    return both(step.launch());
  if (step.has_library())
    return both(step.library());
  if (step.has_group())
    return both(step.group());
  if (step.has_copy())
    return {{step.copy().input()}, {step.copy().output()}};
  return {};
}

static std::string describeBuffer(const schema::Stage &stage,
                                  const schema::Specialisation &specialisation, uint32_t index) {
  const schema::Buffer &buffer = specialisation.buffers(int(index));
  int at = int(buffer.index());
  switch (buffer.space()) {
  case schema::WEIGHT:
    return stage.weights(at).name();
  case schema::STATE:
    return stage.states(at).name();
  case schema::INPUT:
    return specialisation.inputs(at).name();
  case schema::OUTPUT:
    return specialisation.outputs(at).name();
  case schema::CONSTANT:
    return "constant";
  case schema::RANK_PARAM:
    return "index of " + joinAll(buffer.axes());
  default:
    return (buffer.space() == schema::REGISTERED ? "r+" : "a+") + std::to_string(buffer.offset());
  }
}

Document gridloom::rt::makeSchedule(const Plan &plan) {
  Document document;
  document.addTable("schedule", {"stage", "entry", "dims", "control", "stream", "step", "reads",
                                 "writes", "onnx_node"});
  forEachProgram(plan, [&](const PlannedProgram &place) {
    const auto &[number, stage, entry, dims, specialisation] = place;
    walkSteps(specialisation, [&](const PlannedStep &visit) {
      auto [reads, writes] = getBuffers(visit.step);
      auto names = [&](const std::vector<uint32_t> &buffers) {
        std::vector<std::string> list;
        for (uint32_t buffer : buffers)
          list.push_back(describeBuffer(stage, specialisation, buffer));
        return listCell(list);
      };
      document.addRow({number, entry, dims, visit.control,
                       specialisation.streams(int(visit.step.stream())).name(),
                       describeStep(stage, visit.step), names(reads), names(writes),
                       getOrigin(stage, visit.step)});
    });
  });
  return document;
}

static std::string nameNodes(const std::set<std::string> &nodes) {
  if (nodes.empty())
    return "";
  std::string first = *nodes.begin();
  return nodes.size() > 1 ? first + " and " + std::to_string(nodes.size() - 1) + " more" : first;
}

/// Rows of a table with their total cost.
using Rows = std::vector<std::pair<double, std::vector<Cell>>>;

/// Adds rows by descending cost.
static void addByCost(Document &document, Rows rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto &a, const auto &b) { return a.first > b.first; });
  for (auto &[cost, cells] : rows)
    document.addRow(std::move(cells));
}

/// Merges equal calls of a stage into one row.
static void addLibraryCalls(const Plan &plan, Document &document) {
  struct Calls {
    const schema::Library *call;
    int64_t times = 0;
    std::set<std::string> nodes;
  };
  std::map<std::pair<int, std::string>, Calls> found;
  forEachProgram(plan, [&](const PlannedProgram &place) {
    const auto &[number, stage, entry, dims, specialisation] = place;
    walkSteps(specialisation, [&](const PlannedStep &visit) {
      if (!visit.step.has_library())
        return;
      const schema::Library &call = visit.step.library();
      Calls &calls = found[{place.number, describe(call)}];
      calls.call = &call;
      calls.times += visit.times;
      calls.nodes.insert(getOrigin(stage, visit.step));
    });
  });
  document.addTable("library_calls", {"stage", "call", "calls", "flops", "bytes", "nodes"});
  Rows rows;
  for (const auto &[key, calls] : found)
    rows.push_back({double(getFlops(*calls.call)) * double(calls.times),
                    {key.first, key.second, calls.times, countCell(int64_t(getFlops(*calls.call))),
                     bytesCell(getBytes(*calls.call)), nameNodes(calls.nodes)}});
  addByCost(document, std::move(rows));
}

Document gridloom::rt::makeKernels(const Plan &plan) {
  Document document;
  document.addTable("kernels",
                    {"stage", "symbol", "library", "skeleton", "rows", "grain", "registers",
                     "spill", "pointers", "launches", "fallbacks", "flops", "bytes", "nodes"});
  Rows rows;
  for (int number = 0; number < plan.getNumStages(); ++number) {
    const schema::Stage &stage = plan.getStage(number);
    // Fallbacks are launched if the library cannot apply a call's epilogue.
    std::vector<int64_t> launches(size_t(stage.kernels_size()), 0), fallbacks(launches);
    std::vector<std::set<std::string>> nodes(launches.size());
    for (const schema::Entry &entry : stage.entries())
      for (const schema::Specialisation &specialisation : entry.specialisations())
        walkSteps(specialisation, [&](const PlannedStep &visit) {
          bool falls = visit.step.has_library() && visit.step.library().fallback();
          if (!visit.step.has_launch() && !falls)
            return;
          uint32_t kernel =
              falls ? visit.step.library().fallback() - 1 : visit.step.launch().kernel();
          (falls ? fallbacks : launches)[kernel] += visit.times;
          nodes[kernel].insert(stage.origins(int(visit.step.origin())));
        });
    for (int k = 0; k < stage.kernels_size(); ++k) {
      const schema::Kernel &kernel = stage.kernels(k);
      rows.push_back({double(kernel.bytes()) * double(launches[size_t(k)]),
                      {number, kernel.symbol(), kernel.library(), kernel.skeleton(), kernel.rows(),
                       kernel.grain(), kernel.registers(), bytesCell(kernel.spill_bytes()),
                       kernel.num_pointers(), launches[size_t(k)], fallbacks[size_t(k)],
                       countCell(int64_t(kernel.flops())), bytesCell(kernel.bytes()),
                       nameNodes(nodes[size_t(k)])}});
    }
  }
  addByCost(document, std::move(rows));
  addLibraryCalls(plan, document);
  return document;
}

/// The whole shape of a weight, from the model or the stage's prologue.
static std::string describeWhole(const schema::Stage &stage, const std::string &name,
                                 const WeightInfo *info) {
  if (info)
    return formatShape(info->shape);
  for (const schema::Derived &tensor : stage.derived())
    if (tensor.name() == name)
      return shapeText(tensor.shape());
  return "";
}

Document gridloom::rt::makeWeights(const Plan &plan) {
  Document document;
  document.addTable("weights", {"stage", "name", "type", "shape", "local_shape", "sharding",
                                "row_pad", "bytes", "source"});
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::Weight &weight : plan.getStage(number).weights()) {
      const WeightInfo *info = plan.findWeight(weight.name());
      document.addRow({number, weight.name(), typeText(weight.type()),
                       describeWhole(plan.getStage(number), weight.name(), info),
                       shapeText(weight.shape()), formatSharding(weight.sharding()),
                       weight.row_pad(), bytesCell(weight.bytes()),
                       !info                ? "derived"
                       : info->file.empty() ? "model"
                                            : info->file});
    }
  return document;
}

static const char *nameRole(schema::StateRole role) {
  switch (role) {
  case schema::PARAMETER:
    return "parameter";
  case schema::MOMENT:
    return "moment";
  case schema::STATISTIC:
    return "statistic";
  case schema::COUNTER:
    return "counter";
  default:
    return "";
  }
}

/// A state's initial value: a weight's name, a distribution, or zeros.
static std::string describeBeginning(const schema::State &state) {
  if (!state.has_draw())
    return state.init().empty() ? "zeros" : state.init();
  const schema::Draw &draw = state.draw();
  std::ostringstream text;
  if (draw.distribution() == schema::Draw::CONSTANT)
    text << "constant(" << draw.first() << ")";
  else
    text << (draw.distribution() == schema::Draw::NORMAL ? "normal(" : "uniform(") << draw.first()
         << ", " << draw.second() << ")";
  return text.str();
}

Document gridloom::rt::makeStates(const Plan &plan) {
  Document document;
  uint64_t bytes = 0;
  for (int number = 0; number < plan.getNumStages(); ++number) {
    uint64_t ofStage = 0;
    for (const schema::State &state : plan.getStage(number).states())
      ofStage += state.bytes();
    bytes = std::max(bytes, ofStage);
  }
  document.addField("state_bytes_of_a_device", bytesCell(bytes));
  document.addTable("states", {"stage", "name", "role", "type", "shape", "local_shape", "sharding",
                               "bytes", "begins_as"});
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::State &state : plan.getStage(number).states()) {
      std::vector<int64_t> shape(state.global_shape().begin(), state.global_shape().end());
      std::vector<int64_t> local(state.shape().begin(), state.shape().end());
      document.addRow({number, state.name(), nameRole(state.role()), typeText(state.type()),
                       Cell(shape, formatShape(shape)), Cell(local, formatShape(local)),
                       formatSharding(state.sharding()), bytesCell(state.bytes()),
                       describeBeginning(state)});
    }
  return document;
}
