//===- PlanVerifier.cpp - bounds of a stage program -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/PlanVerifier.h"

#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"
#include "runtime/core/ProgramVerifier.h"
#include "runtime/core/Shard.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

namespace {

/// Checks the stage's tables; ProgramVerifier checks its programs.
class StageVerifier {
public:
  StageVerifier(const Plan &plan, int index, const std::string &file)
      : plan(plan), stage(plan.getStage(index)), index(index), file(file) {}
  void verify();

private:
  void verifyKernels();
  void verifyDerived();
  void verifyWeights();
  void verifyStates();
  void verifyDraw(const schema::State &state, DataType type, const std::string &what) const;
  void verifyEntries();
  void verifySpecialisation(const EntrySpecialisation &global, const schema::Specialisation &local,
                            const std::string &what);
  template <typename Bindings>
  void verifyBindings(const std::vector<Argument> &arguments, const Bindings &bindings,
                      const std::string &what);
  DataType getType(int type, const std::string &what) const {
    if (!isDataType(type))
      fail(what + " has unknown element type " + std::to_string(type));
    return DataType(type);
  }
  [[noreturn]] void fail(const std::string &message) const {
    throw Error(ErrorCode::InvalidPlan, file + ": " + message);
  }

  const Plan &plan;
  const schema::Stage &stage;
  int index;
  const std::string &file;
  /// Derived tensors that weights can be shards of: type and global shape.
  struct Source {
    DataType type;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Source> derived;
};

} // namespace

static std::vector<int64_t> toVector(const google::protobuf::RepeatedField<int64_t> &values) {
  return {values.begin(), values.end()};
}

void StageVerifier::verify() {
  if (int(stage.stage()) != index)
    fail("is the program of stage " + std::to_string(stage.stage()) +
         ", the manifest lists it as " + std::to_string(index));
  try {
    verifyKernels();
    verifyDerived();
    verifyWeights();
    verifyStates();
    verifyEntries();
  } catch (const Error &error) {
    // Errors of shards, meshes and shapes do not name the file yet.
    std::string message = error.what();
    if (message.starts_with(file))
      throw;
    fail(message);
  }
}

void StageVerifier::verifyKernels() {
  for (const schema::Kernel &kernel : stage.kernels()) {
    std::string what = "kernel '" + kernel.symbol() + "'";
    plan.getKernelCode(kernel.library());
    if (kernel.symbol().empty() || kernel.symbol().find('\0') != std::string::npos)
      fail("a kernel of kernels/" + kernel.library() + " has no name");
    if (kernel.rows() < 0 || kernel.grain() < 0 || kernel.rows() > (int64_t(1) << 48))
      fail(what + " has " + std::to_string(kernel.rows()) + " rows and grain " +
           std::to_string(kernel.grain()));
    if (kernel.grid_size() > 3 || kernel.block_size() > 3)
      fail(what + " has a grid of " + std::to_string(kernel.grid_size()) + " and a block of " +
           std::to_string(kernel.block_size()) + " dimensions, at most 3 are possible");
  }
}

void StageVerifier::verifyDerived() {
  for (const schema::Derived &tensor : stage.derived()) {
    std::string what = "derived tensor '" + tensor.name() + "'";
    if (plan.findWeight(tensor.name()) || derived.count(tensor.name()))
      fail(what + " has the name of another tensor");
    DataType type = getType(tensor.type(), what);
    std::vector<int64_t> shape = toVector(tensor.shape());
    ProgramVerifier program(plan, stage, file, what);
    for (const std::string &name : tensor.sources()) {
      const WeightInfo *weight = plan.findWeight(name);
      auto earlier = derived.find(name);
      if (!weight && earlier == derived.end())
        fail(what + " needs '" + name + "', which is neither a weight nor derived before it");
      program.addInput(weight ? weight->type : earlier->second.type,
                       weight ? weight->bytes
                              : uint64_t(checkedBytes(earlier->second.shape,
                                                      sizeOf(earlier->second.type), name)));
    }
    program.addOutput(type, uint64_t(checkedBytes(shape, sizeOf(type), what)));
    program.verifyDerived(tensor);
    derived[tensor.name()] = {type, shape};
  }
}

void StageVerifier::verifyWeights() {
  std::set<std::string> names;
  for (const schema::Weight &weight : stage.weights()) {
    std::string what = "weight '" + weight.name() + "'";
    DataType type = getType(weight.type(), what);
    const WeightInfo *info = plan.findWeight(weight.name());
    auto tensor = derived.find(weight.name());
    if (!info && tensor == derived.end())
      fail(what + " is neither in the manifest nor derived");
    DataType globalType = info ? info->type : tensor->second.type;
    if (type != globalType)
      fail(what + " is " + std::string(nameOf(type)) + ", the manifest says " +
           std::string(nameOf(globalType)));
    std::vector<int64_t> local = toVector(weight.shape());
    Shard shard =
        getShard(plan.getMesh(), 0, weight.sharding(), info ? info->shape : tensor->second.shape);
    if (local != shard.local)
      fail(what + " has local shape " + formatShape(local) + ", its sharding gives " +
           formatShape(shard.local));
    int64_t pad = weight.row_pad();
    if (pad < 0 || pad > (int64_t(1) << 32) || (pad && local.empty()))
      fail(what + " has " + std::to_string(pad) + " elements of padding per row");
    if (!local.empty())
      local.back() += pad;
    uint64_t bytes = uint64_t(checkedBytes(local, sizeOf(type), what));
    if (weight.bytes() != bytes)
      fail(what + " has " + std::to_string(weight.bytes()) + " bytes, its padded shape needs " +
           std::to_string(bytes));
  }
}

/// Checks the distribution that a state is drawn from.
void StageVerifier::verifyDraw(const schema::State &state, DataType type,
                               const std::string &what) const {
  const schema::Draw &draw = state.draw();
  if (!schema::Draw::Distribution_IsValid(draw.distribution()))
    fail(what + " is drawn from distribution " + std::to_string(draw.distribution()) +
         ", which is none");
  if (type != DataType::F32 && type != DataType::F64)
    fail(what + " is drawn and of type " + std::string(nameOf(type)) + ", not f32 or f64");
  if (!state.init().empty())
    fail(what + " is drawn and begins with '" + state.init() + "'");
  if (!std::isfinite(draw.first()) || !std::isfinite(draw.second()))
    fail(what + " is drawn from a distribution that is not finite");
}

void StageVerifier::verifyStates() {
  std::set<std::string> names;
  for (const schema::State &state : stage.states()) {
    std::string what = "state '" + state.name() + "'";
    if (!names.insert(state.name()).second)
      fail(what + " is there twice");
    DataType type = getType(state.type(), what);
    std::vector<int64_t> local = toVector(state.shape()), global = toVector(state.global_shape());
    uint64_t bytes = uint64_t(checkedBytes(local, sizeOf(type), what));
    checkedBytes(global, sizeOf(type), what);
    Shard shard = getShard(plan.getMesh(), 0, state.sharding(), global);
    if (local != shard.local)
      fail(what + " has local shape " + formatShape(local) + ", its sharding gives " +
           formatShape(shard.local));
    if (state.has_draw())
      verifyDraw(state, type, what);
    for (const schema::TiedWeight &tie : state.tied())
      if (state.role() != schema::PARAMETER || (tie.transposed() && global.size() != 2))
        fail(what + " cannot stand for '" + tie.name() + "'");
    if (!state.init().empty()) {
      const WeightInfo *weight = plan.findWeight(state.init());
      if (!weight)
        fail(what + " begins with '" + state.init() + "', which is not in the manifest");
      if (weight->type != type || weight->shape != global)
        fail(what + " is " + std::string(nameOf(type)) + formatShape(global) + ", and '" +
             weight->name + "', with which it begins, " + std::string(nameOf(weight->type)) +
             formatShape(weight->shape));
    }
    if (state.bytes() != bytes)
      fail(what + " has " + std::to_string(state.bytes()) + " bytes, its shape needs " +
           std::to_string(bytes));
  }
}

void StageVerifier::verifyEntries() {
  if (stage.entries_size() != int(plan.getEntries().size()))
    fail("has " + std::to_string(stage.entries_size()) + " entries, the manifest " +
         std::to_string(plan.getEntries().size()));
  for (int i = 0; i < stage.entries_size(); ++i) {
    const schema::Entry &entry = stage.entries(i);
    const Entry &global = plan.getEntries()[i];
    if (entry.name() != global.name)
      fail("entry " + std::to_string(i) + " is '" + entry.name() + "', in the manifest '" +
           global.name + "'");
    if (entry.specialisations_size() != int(global.specialisations.size()))
      fail("entry '" + entry.name() + "' has " + std::to_string(entry.specialisations_size()) +
           " specialisations, in the manifest " + std::to_string(global.specialisations.size()));
    for (int j = 0; j < entry.specialisations_size(); ++j)
      verifySpecialisation(global.specialisations[j], entry.specialisations(j),
                           "entry '" + entry.name() + "' specialisation " + std::to_string(j));
  }
}

void StageVerifier::verifySpecialisation(const EntrySpecialisation &global,
                                         const schema::Specialisation &local,
                                         const std::string &what) {
  verifyBindings(global.inputs, local.inputs(), what + " input");
  verifyBindings(global.outputs, local.outputs(), what + " output");
  ProgramVerifier program(plan, stage, file, what);
  for (const schema::Binding &binding : local.inputs())
    program.addInput(DataType(binding.type()),
                     uint64_t(checkedBytes(toVector(binding.shape()),
                                           sizeOf(DataType(binding.type())), binding.name())));
  for (const schema::Binding &binding : local.outputs())
    program.addOutput(DataType(binding.type()),
                      uint64_t(checkedBytes(toVector(binding.shape()),
                                            sizeOf(DataType(binding.type())), binding.name())));
  program.verifySpecialisation(local);
}

template <typename Bindings>
void StageVerifier::verifyBindings(const std::vector<Argument> &arguments, const Bindings &bindings,
                                   const std::string &what) {
  std::set<std::string> bound;
  for (const schema::Binding &binding : bindings) {
    std::string name = what + " '" + binding.name() + "'";
    if (!bound.insert(binding.name()).second)
      fail(name + " is there twice");
    auto argument = std::find_if(arguments.begin(), arguments.end(),
                                 [&](const Argument &a) { return a.name == binding.name(); });
    if (argument == arguments.end())
      fail(name + " is not in the manifest");
    if (std::find(argument->stages.begin(), argument->stages.end(), index) ==
        argument->stages.end())
      fail(name + " is not listed for stage " + std::to_string(index) + " in the manifest");
    DataType type = getType(binding.type(), name);
    if (type != argument->type)
      fail(name + " is " + std::string(nameOf(type)) + ", the manifest says " +
           std::string(nameOf(argument->type)));
    try {
      getShard(plan.getMesh(), 0, binding.sharding(), argument->shape, toVector(binding.shape()));
    } catch (const Error &error) {
      fail(name + ": " + error.what());
    }
    checkedBytes(toVector(binding.shape()), sizeOf(type), name);
  }
  for (const Argument &argument : arguments)
    if (std::find(argument.stages.begin(), argument.stages.end(), index) != argument.stages.end() &&
        !bound.count(argument.name))
      fail(what + " '" + argument.name + "' is missing, the manifest lists stage " +
           std::to_string(index) + " for it");
}

void gridloom::rt::verifyStage(const Plan &plan, int stage, const std::string &file) {
  StageVerifier(plan, stage, file).verify();
}

namespace {

/// The transfers of a channel as one side has them.
struct Transfer {
  std::vector<std::pair<int, uint64_t>> tensors; // type, elements
  uint64_t count = 0;
  bool known = true;   // not under a condition
  bool isAlike = true; // every message has the same tensors
};
using Transfers = std::map<std::tuple<int, int, uint32_t>, Transfer>; // from, to, channel

} // namespace

static void collect(const schema::Specialisation &program,
                    const google::protobuf::RepeatedPtrField<schema::Control> &body, int stage,
                    uint64_t times, bool known, Transfers &sent, Transfers &received) {
  for (const schema::Control &control : body) {
    if (control.has_repeat())
      collect(program, control.repeat().body(), stage, times * control.repeat().count(), known,
              sent, received);
    if (control.has_loop())
      collect(program, control.loop().body(), stage, times, false, sent, received);
    if (control.has_branch()) {
      collect(program, control.branch().then(), stage, times, false, sent, received);
      collect(program, control.branch().otherwise(), stage, times, false, sent, received);
    }
    for (const schema::Step &step : control.block().steps()) {
      const schema::Group &group = step.group();
      bool isSend = group.kind() == schema::Group::SEND;
      if (!step.has_group() || (!isSend && group.kind() != schema::Group::RECV))
        continue;
      int peer = int(group.peer_stage());
      Transfer &transfer =
          isSend ? sent[{stage, peer, group.channel()}] : received[{peer, stage, group.channel()}];
      std::vector<std::pair<int, uint64_t>> tensors;
      for (uint32_t index : isSend ? group.inputs() : group.outputs()) {
        const schema::Buffer &buffer = program.buffers(int(index));
        uint64_t elements = 1;
        for (int64_t size : buffer.shape())
          elements *= uint64_t(size);
        tensors.emplace_back(int(buffer.type()), elements);
      }
      transfer.isAlike &= transfer.count == 0 || transfer.tensors == tensors;
      transfer.tensors = std::move(tensors);
      transfer.count += times;
      transfer.known &= known;
    }
  }
}

void gridloom::rt::verifyTransfers(const Plan &plan, const std::string &file) {
  for (size_t e = 0; e < plan.getEntries().size(); ++e)
    for (size_t s = 0; s < plan.getEntries()[e].specialisations.size(); ++s) {
      Transfers sent, received;
      for (int stage = 0; stage < plan.getNumStages(); ++stage) {
        const auto &program = plan.getStage(stage).entries(int(e)).specialisations(int(s));
        collect(program, program.body(), stage, 1, true, sent, received);
      }
      for (bool flip : {false, true})
        for (auto &[key, mine] : flip ? received : sent) {
          auto [from, to, channel] = key;
          std::string what = "entry '" + plan.getEntries()[e].name + "' channel " +
                             std::to_string(channel) + " from stage " + std::to_string(from) +
                             " to stage " + std::to_string(to);
          Transfers &others = flip ? sent : received;
          auto other = others.find(key);
          if (other == others.end())
            throw Error(ErrorCode::InvalidPlan,
                        file + ": " + what + " is " +
                            (flip ? "received but never sent" : "sent but never received"));
          if (!mine.isAlike)
            throw Error(ErrorCode::InvalidPlan, file + ": " + what + " is " +
                                                    (flip ? "received" : "sent") +
                                                    " with several sizes or types");
          if (mine.tensors != other->second.tensors)
            throw Error(ErrorCode::InvalidPlan,
                        file + ": " + what + " is received with other sizes or types than sent");
          if (mine.known && other->second.known && mine.count != other->second.count)
            throw Error(ErrorCode::InvalidPlan,
                        file + ": " + what + " is " + (flip ? "received " : "sent ") +
                            std::to_string(mine.count) + " times and " +
                            (flip ? "sent " : "received ") + std::to_string(other->second.count));
        }
    }
}
