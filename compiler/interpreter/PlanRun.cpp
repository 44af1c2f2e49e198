//===- PlanRun.cpp - runs a compiled plan for a check ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/PlanRun.h"

#include "runtime/arrays/Generator.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"
#include "runtime/core/Shard.h"
#include "runtime/core/plan.pb.h"

#include <cstring>

using namespace gridloom;

static rt::HostArray makeArray(const PlanTensor &tensor, const std::string &name) {
  std::optional<rt::DataType> type = rt::parseDataType(tensor.type);
  if (!type)
    throw rt::Error(rt::ErrorCode::InvalidArgument, "input '" + name + "' has type " + tensor.type);
  rt::HostArray array = rt::HostArray::allocate(*type, tensor.shape);
  if (array.getNumBytes() != tensor.bytes.size())
    throw rt::Error(rt::ErrorCode::Internal,
                    "input '" + name + "' has " + std::to_string(tensor.bytes.size()) +
                        " bytes, its shape needs " + std::to_string(array.getNumBytes()));
  std::memcpy(array.getMutableData(), tensor.bytes.data(), tensor.bytes.size());
  return array;
}

static PlanTensor toPlanTensor(const rt::HostArray &array) {
  const char *data = reinterpret_cast<const char *>(array.getData());
  return {std::string(rt::nameOf(array.getType())), array.getShape(),
          std::vector<char>(data, data + array.getNumBytes())};
}

PlanTensor gridloom::makeInputTensor(const std::string &name, const std::string &text,
                                     const std::string &typeName, const std::vector<int64_t> &shape,
                                     uint64_t seed, std::string &error) {
  try {
    std::optional<rt::DataType> type = rt::parseDataType(typeName);
    if (!type)
      throw rt::Error(rt::ErrorCode::InvalidArgument,
                      "elements of type " + typeName + " cannot be given on the command line");
    if (std::optional<rt::Generator> generator = rt::Generator::parse(text))
      return toPlanTensor(rt::generate(*generator, name, *type, shape, seed));
    return toPlanTensor(rt::adaptInput(rt::readInput(text), text, name, *type, shape));
  } catch (const std::exception &exception) {
    error = exception.what();
    return {};
  }
}

/// Throws if a rank's part of a state differs from that in `whole`.
static void compareReplicas(rt::InProcessJob &job, const schema::State &state, int stage,
                            const rt::HostArray &whole) {
  auto type = static_cast<rt::DataType>(state.type());
  size_t bytes = whole.getNumBytes();
  rt::HostArray own = rt::HostArray::allocate(type, whole.getShape());
  for (int rank : job.getPlan().getMesh().getStageRanks(stage)) {
    std::memcpy(own.getMutableData(), whole.getData(), bytes);
    rt::placeShard(rt::getShard(job.getPlan().getMesh(), rank, state.sharding(), whole.getShape()),
                   rt::sizeOf(type), job.getSession(rank).getState(state.name()).getData(),
                   own.getMutableData());
    if (std::memcmp(own.getData(), whole.getData(), bytes) != 0)
      throw rt::Error(rt::ErrorCode::Internal, "state '" + state.name() +
                                                   "' differs between its replicas: rank " +
                                                   std::to_string(rank) + " has another value");
  }
}

/// A state, gathered from its ranks. Throws when two stages have one of that name, or replicas
/// differ.
static PlanTensor gatherState(rt::InProcessJob &job, const std::string &name,
                              const std::vector<int64_t> &shape) {
  const rt::Plan &plan = job.getPlan();
  std::vector<std::pair<int, const schema::State *>> owners;
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      if (state.name() == name)
        owners.emplace_back(stage, &state);
  if (owners.size() != 1)
    throw rt::Error(rt::ErrorCode::InvalidPlan,
                    "state '" + name + "' lies in " +
                        (owners.empty() ? "no stage"
                                        : "stage " + std::to_string(owners[0].first) +
                                              " and in stage " + std::to_string(owners[1].first)));
  auto [stage, state] = owners.front();
  auto type = static_cast<rt::DataType>(state->type());
  rt::HostArray whole = rt::HostArray::allocate(type, shape);
  for (int rank : plan.getMesh().getStageRanks(stage))
    rt::placeShard(rt::getShard(plan.getMesh(), rank, state->sharding(), shape), rt::sizeOf(type),
                   job.getSession(rank).getState(name).getData(), whole.getMutableData());
  compareReplicas(job, *state, stage, whole);
  return toPlanTensor(whole);
}

/// Whether the name can be bound, or names a state, which `bind` refuses.
static bool knowsInput(const rt::Plan &plan, const std::string &name) {
  for (const rt::Entry &entry : plan.getEntries())
    for (const rt::EntrySpecialisation &specialisation : entry.specialisations)
      if (specialisation.findInput(name))
        return true;
  return plan.hasState(name);
}

static void runCall(rt::InProcessJob &job, const PlanCall &call, PlanRunResult &result) {
  result.ranks = job.getNumRanks();
  for (const auto &[name, tensor] : call.inputs)
    if (knowsInput(job.getPlan(), name))
      job.bind(name, makeArray(tensor, name));
    else
      result.unread.push_back(name);
  job.run(call.entry, call.dims);
  for (const auto &[name, array] : job.getOutputs())
    result.outputs[name] = toPlanTensor(array);
  for (const auto &[name, state] : call.states)
    result.outputs[state.output] = gatherState(job, name, state.shape);
}

static rt::PlanOptions getOptions(const PlanPlace &plan) {
  rt::PlanOptions options;
  options.requireSignature.assign(plan.keys.begin(), plan.keys.end());
  return options;
}

std::vector<PlanRunResult> gridloom::runPlanCalls(const PlanPlace &plan,
                                                  const std::vector<PlanCall> &calls) {
  std::vector<PlanRunResult> results(1);
  try {
    rt::InProcessOptions options;
    options.session.poisonPadding = true;
    rt::InProcessJob job(rt::Plan::load(plan.folder, getOptions(plan)), std::move(options));
    for (size_t i = 0; i < calls.size(); ++i) {
      results.resize(i + 1);
      runCall(job, calls[i], results.back());
    }
  } catch (const std::exception &error) {
    results.back().error = error.what();
  }
  return results;
}

PlanRunResult gridloom::runPlan(const PlanPlace &plan, const std::string &entry,
                                const std::map<std::string, int64_t> &dims,
                                const std::map<std::string, PlanTensor> &inputs) {
  return runPlanCalls(plan, {{entry, dims, inputs, {}}}).front();
}

std::string gridloom::findModel(const PlanPlace &plan, std::string &error) {
  try {
    rt::PlanOptions options = getOptions(plan);
    // Finding the model must not need a machine that can run the kernels.
    options.requireTarget = false;
    return rt::Plan::load(plan.folder, options)->getModel().path.string();
  } catch (const std::exception &exception) {
    error = exception.what();
    return "";
  }
}
