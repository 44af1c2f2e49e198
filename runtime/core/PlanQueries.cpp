//===- PlanQueries.cpp - facts about the programs of a plan ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/PlanQueries.h"

#include "runtime/core/HostArray.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>

using namespace gridloom;
using namespace gridloom::rt;

std::string gridloom::rt::formatDims(const std::map<std::string, int64_t> &dims) {
  std::string text;
  for (const auto &[name, size] : dims)
    text += (text.empty() ? "" : ",") + name + "=" + std::to_string(size);
  return text;
}

std::string gridloom::rt::formatSharding(const schema::Sharding &sharding) {
  std::string text = "[";
  for (int d = 0; d < sharding.dims_size(); ++d) {
    const schema::DimSharding &dim = sharding.dims(d);
    text += d ? ", " : "";
    for (int a = 0; a < dim.axes_size(); ++a)
      text += (a ? "." : "") + dim.axes(a);
    if (dim.axes_size() == 0)
      text += "-";
    else if (dim.granule() > 1)
      text += "*" + std::to_string(dim.granule());
  }
  return text + "]";
}

static std::string lower(std::string text) {
  for (char &c : text)
    c = char(tolower(c));
  return text;
}

using Visitor = std::function<void(const PlannedStep &)>;

static void walk(const google::protobuf::RepeatedPtrField<schema::Control> &body, int64_t times,
                 const std::string &control, const Visitor &visit) {
  std::string outer = control.empty() ? "" : control + " / ";
  for (const schema::Control &node : body) {
    if (node.has_block())
      for (const schema::Step &step : node.block().steps())
        visit({step, times, control});
    if (node.has_repeat())
      walk(node.repeat().body(), times * node.repeat().count(),
           outer + "repeat " + std::to_string(node.repeat().count()), visit);
    if (node.has_loop())
      walk(node.loop().body(), times, outer + "while", visit);
    if (node.has_branch()) {
      walk(node.branch().then(), times, outer + "then", visit);
      walk(node.branch().otherwise(), times, outer + "else", visit);
    }
  }
}

void gridloom::rt::walkSteps(const schema::Specialisation &program, const Visitor &visit) {
  walk(program.body(), 1, "", visit);
}

/// Programs know no sizes of dimensions; the manifest lists specialisations in the same order.
void gridloom::rt::forEachProgram(const Plan &plan,
                                  const std::function<void(const PlannedProgram &)> &visit) {
  for (int number = 0; number < plan.getNumStages(); ++number)
    for (const schema::Entry &entry : plan.getStage(number).entries())
      for (int i = 0; i < entry.specialisations_size(); ++i)
        visit({number, plan.getStage(number), entry.name(),
               formatDims(plan.getEntry(entry.name()).specialisations[size_t(i)].dims),
               entry.specialisations(i)});
}

std::string gridloom::rt::getOrigin(const schema::Stage &stage, const schema::Step &step) {
  return int(step.origin()) < stage.origins_size() ? stage.origins(int(step.origin())) : "";
}

std::string gridloom::rt::getKindName(const schema::Group &group) {
  return lower(schema::Group::Kind_Name(group.kind()));
}

static const char *kindOf(const schema::Step &step) {
  if (step.has_launch())
    return "kernel";
  if (step.has_library())
    return step.library().has_convolution() ? "convolution"
           : step.library().has_attention() ? "attention"
                                            : "matmul";
  if (step.has_copy())
    return "copy";
  if (step.has_group())
    return "group";
  return step.has_record() ? "record" : "wait";
}

/// Whether some of these buffers is a weight, or one that is trained.
static bool readsWeight(const schema::Stage &stage, const schema::Specialisation &program,
                        const google::protobuf::RepeatedField<uint32_t> &inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [&](uint32_t input) {
    const schema::Buffer &buffer = program.buffers(int(input));
    return buffer.space() == schema::WEIGHT ||
           (buffer.space() == schema::STATE &&
            stage.states(int(buffer.index())).role() == schema::PARAMETER);
  });
}

const char *gridloom::rt::getPart(const schema::Stage &stage, const schema::Specialisation &program,
                                  const schema::Step &step) {
  if (step.has_launch()) {
    const schema::Kernel &kernel = stage.kernels(int(step.launch().kernel()));
    if (kernel.skeleton() == "product")
      return readsWeight(stage, program, step.launch().inputs()) ? "gemm" : "attention";
    return kernel.flops() ? "kernel" : "copy";
  }
  if (step.has_library()) {
    const schema::Library &call = step.library();
    constexpr int matrix = 3; // sizes: batch..., M, N, K
    if (call.has_convolution())
      return "convolution";
    bool isAttention = call.has_attention() || (call.matmul().sizes_size() > matrix &&
                                                !readsWeight(stage, program, call.inputs()));
    return isAttention ? "attention" : "gemm";
  }
  return step.has_copy() ? "copy" : step.has_group() ? "communication" : "";
}

static PlannedCollective
describeGroup(const schema::Stage &stage, const schema::Specialisation &specialisation,
              const PlannedStep &visit,
              const std::function<int64_t(const std::vector<std::string> &)> &groupOf) {
  const schema::Group &group = visit.step.group();
  PlannedCollective collective;
  collective.kind = getKindName(group);
  collective.axes.assign(group.axes().begin(), group.axes().end());
  collective.sequence = group.sequence();
  collective.origin = getOrigin(stage, visit.step);
  if (group.cause() > 0 && int(group.cause()) <= stage.causes_size())
    collective.because = stage.causes(int(group.cause()) - 1);
  collective.times = visit.times;
  bool isTransfer = group.kind() == schema::Group::SEND || group.kind() == schema::Group::RECV;
  collective.group = isTransfer ? 2 : groupOf(collective.axes);
  if (isTransfer)
    collective.axes = {"to stage " + std::to_string(group.peer_stage())};
  if (group.kind() == schema::Group::RECV)
    collective.axes = {"from stage " + std::to_string(group.peer_stage())};
  if (group.kind() == schema::Group::ALL_REDUCE || group.kind() == schema::Group::REDUCE_SCATTER)
    collective.reduction = lower(schema::Group::Reduction_Name(group.reduction()));
  for (uint32_t buffer : group.inputs_size() ? group.inputs() : group.outputs())
    collective.bytes += specialisation.buffers(int(buffer)).bytes();
  for (uint32_t buffer : group.outputs())
    collective.resultBytes += specialisation.buffers(int(buffer)).bytes();
  return collective;
}

void gridloom::rt::addCollectives(
    int number, const schema::Stage &stage,
    const std::function<int64_t(const std::vector<std::string> &)> &groupOf,
    const std::function<std::string(const std::string &, int)> &dimsOf,
    std::vector<PlannedCollective> &found) {
  for (const schema::Entry &entry : stage.entries())
    for (int i = 0; i < entry.specialisations_size(); ++i)
      walkSteps(entry.specialisations(i), [&](const PlannedStep &visit) {
        if (!visit.step.has_group())
          return;
        found.push_back(describeGroup(stage, entry.specialisations(i), visit, groupOf));
        found.back().stage = number;
        found.back().entry = entry.name();
        found.back().dims = dimsOf(entry.name(), i);
      });
}

std::vector<PlannedCollective> gridloom::rt::findCollectives(const Plan &plan) {
  std::vector<PlannedCollective> found;
  auto groupOf = [&](const std::vector<std::string> &axes) { return plan.getMesh().getSize(axes); };
  auto dimsOf = [&](const std::string &entry, int i) {
    return formatDims(plan.getEntry(entry).specialisations[size_t(i)].dims);
  };
  for (int number = 0; number < plan.getNumStages(); ++number)
    addCollectives(number, plan.getStage(number), groupOf, dimsOf, found);
  return found;
}

std::vector<PlannedMemory> gridloom::rt::findMemory(const Plan &plan) {
  std::vector<PlannedMemory> found;
  auto bindingBytes = [](const auto &bindings) {
    uint64_t sum = 0;
    for (const schema::Binding &binding : bindings) {
      std::vector<int64_t> shape(binding.shape().begin(), binding.shape().end());
      sum += uint64_t(checkedBytes(shape, sizeOf(DataType(int(binding.type()))), binding.name()));
    }
    return sum;
  };
  forEachProgram(plan, [&](const PlannedProgram &place) {
    const schema::Specialisation &specialisation = place.specialisation;
    PlannedMemory memory;
    memory.stage = place.number;
    memory.entry = place.entry;
    memory.dims = place.dims;
    memory.arena = specialisation.arena_bytes();
    memory.registered = specialisation.registered_bytes();
    memory.inputs = bindingBytes(specialisation.inputs());
    memory.outputs = bindingBytes(specialisation.outputs());
    found.push_back(memory);
  });
  return found;
}

std::map<std::string, int64_t> gridloom::rt::countSteps(const Plan &plan) {
  std::map<std::string, int64_t> counts;
  forEachProgram(plan, [&](const PlannedProgram &place) {
    walkSteps(place.specialisation,
              [&](const PlannedStep &visit) { counts[kindOf(visit.step)] += visit.times; });
  });
  return counts;
}
