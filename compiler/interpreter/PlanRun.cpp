//===- PlanRun.cpp - runs a compiled plan for a check ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/PlanRun.h"

#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"

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

PlanRunResult gridloom::runPlan(const std::string &folder, const std::string &entry,
                                const std::map<std::string, int64_t> &dims,
                                const std::map<std::string, PlanTensor> &inputs) {
  PlanRunResult result;
  try {
    rt::InProcessOptions options;
    options.session.poisonPadding = true;
    rt::InProcessJob job(rt::Plan::load(folder), std::move(options));
    result.ranks = job.getNumRanks();
    for (const auto &[name, tensor] : inputs)
      job.bind(name, makeArray(tensor, name));
    job.run(entry, dims);
    for (const auto &[name, array] : job.getOutputs()) {
      const char *data = reinterpret_cast<const char *>(array.getData());
      result.outputs[name] = {std::string(rt::nameOf(array.getType())), array.getShape(),
                              std::vector<char>(data, data + array.getNumBytes())};
    }
  } catch (const std::exception &error) {
    result.error = error.what();
  }
  return result;
}

std::string gridloom::findModel(const std::string &folder, std::string &error) {
  try {
    // Looking for the model must not need the machine the kernels are for.
    return rt::Plan::load(folder, {.requireTarget = false})->getModel().path.string();
  } catch (const std::exception &exception) {
    error = exception.what();
    return "";
  }
}
