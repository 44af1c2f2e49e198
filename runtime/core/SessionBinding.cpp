//===- SessionBinding.cpp - bind inputs of a run --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Error.h"
#include "runtime/core/IndexCheck.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/SessionImpl.h"
#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <set>

using namespace gridloom;
using namespace gridloom::rt;

void Session::Impl::bind(const std::string &name, const HostArray &array, bool isShard) {
  requireUsable();
  if (array.isNull() && array.getNumElements())
    throw Error(ErrorCode::InvalidArgument, "input '" + name + "' has no data");
  std::set<std::string> known;
  for (const Entry &entry : plan->getEntries())
    for (const EntrySpecialisation &specialisation : entry.specialisations)
      for (const Argument &input : specialisation.inputs) {
        known.insert(input.name);
        if (input.name != name)
          continue;
        if (input.type != array.getType())
          throw Error(ErrorCode::InvalidArgument,
                      "input '" + name + "' is " + std::string(nameOf(array.getType())) +
                          ", the plan takes " + std::string(nameOf(input.type)));
        bindings[name] = {array, isShard};
        return;
      }
  if (plan->hasState(name))
    throw Error(ErrorCode::InvalidArgument,
                "'" + name +
                    "' is a state, which the session keeps from call to call, and no input "
                    "of the plan");
  std::string names;
  for (const std::string &each : known)
    names += (names.empty() ? "" : ", ") + each;
  throw Error(ErrorCode::InvalidArgument,
              "the plan has no input '" + name + "'; its inputs are: " + names);
}

static std::string describeDims(const std::map<std::string, int64_t> &dims) {
  return dims.empty() ? "(none)" : formatDims(dims);
}

/// Why the bound inputs do not fit; empty if they fit.
std::string Session::Impl::findMisfit(const LoadedProgram &loaded) const {
  const schema::Specialisation &program = loaded.program->getSchema();
  for (const Argument &input : loaded.global->inputs) {
    auto bound = bindings.find(input.name);
    const schema::Binding *local = nullptr;
    for (const schema::Binding &binding : program.inputs())
      if (binding.name() == input.name)
        local = &binding;
    if (bound == bindings.end()) {
      if (local)
        return "input '" + input.name + "' is not bound";
      continue;
    }
    auto [array, isShard] = bound->second;
    if (isShard && !local)
      continue;
    std::vector<int64_t> wanted =
        isShard ? std::vector<int64_t>(local->shape().begin(), local->shape().end()) : input.shape;
    if (array.getShape() != wanted)
      return std::string(isShard ? "the shard of input '" : "input '") + input.name +
             "' has shape " + formatShape(array.getShape()) + ", the plan takes " +
             formatShape(wanted);
  }
  return "";
}

void Session::Impl::checkIndices(const LoadedProgram &loaded) const {
  for (const Argument &input : loaded.global->inputs)
    if (auto bound = bindings.find(input.name);
        options.checkIndices && bound != bindings.end() && !bound->second.isShard)
      rt::checkIndices(input, bound->second.array);
}

Session::Impl::LoadedProgram &Session::Impl::select(const std::string &entryName,
                                                    const std::map<std::string, int64_t> &dims) {
  const Entry &entry = plan->getEntry(entryName);
  std::string misfit;
  for (std::unique_ptr<LoadedProgram> &loaded : programs) {
    if (loaded->entry != &entry || !loaded->global->binds(dims))
      continue;
    std::string reason = findMisfit(*loaded);
    if (reason.empty()) {
      checkIndices(*loaded);
      return *loaded;
    }
    if (misfit.empty())
      misfit = reason;
  }
  if (misfit.empty())
    misfit = "no specialisation has " + describeDims(dims);
  // Prefer to report an input that no specialisation accepts over the first mismatch.
  for (const auto &[name, bound] : bindings)
    if (entry.specialisations.size() > 1 && !bound.isShard)
      if (std::string cause = entry.findMisfit(name, bound.array.getShape()); !cause.empty())
        throw Error(ErrorCode::InvalidArgument, cause);
  std::string known;
  for (const EntrySpecialisation &specialisation : entry.specialisations)
    known += (known.empty() ? "" : "; ") + describeDims(specialisation.dims);
  if (entry.specialisations.size() > 1)
    misfit += "; entry '" + entry.name + "' is compiled for: " + known;
  throw Error(ErrorCode::InvalidArgument, misfit);
}

/// As select; on failure ends the job, since peers may already be in this run and wait for this
/// rank.
Session::Impl::LoadedProgram &
Session::Impl::selectOrFail(const std::string &entry, const std::map<std::string, int64_t> &dims) {
  try {
    return select(entry, dims);
  } catch (const Error &) {
    if (!control)
      throw;
    fail(std::current_exception(), nullptr);
  }
}
