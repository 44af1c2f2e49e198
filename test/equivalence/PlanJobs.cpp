//===- PlanJobs.cpp - runs a plan's entries -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "PlanJobs.h"

#include "runtime/core/InProcessJob.h"
#include "support/Sha256.h"

#include <cstring>

using namespace gridloom;

std::string gridloom::testing::getDigest(const std::vector<char> &bytes) {
  return sha256(std::as_bytes(std::span(bytes)));
}

std::map<std::string, gridloom::testing::PlanTensors>
gridloom::testing::runEntries(const std::string &folder,
                              const std::map<std::string, PlanTensors> &entries, int repeats,
                              std::string &error) {
  std::map<std::string, PlanTensors> results;
  std::string current = "the plan";
  try {
    rt::InProcessOptions options;
    options.session.poisonPadding = true;
    options.placement.limits.deadline = std::chrono::seconds(60);
    rt::InProcessJob job(rt::Plan::load(folder), std::move(options));
    for (const auto &[entry, inputs] : entries) {
      current = "entry '" + entry + "'";
      const rt::EntrySpecialisation &only = job.getPlan().getEntry(entry).specialisations.front();
      for (const auto &[name, tensor] : inputs) {
        // The plan has no inputs that nothing reads after simplification.
        if (!only.findInput(name))
          continue;
        rt::HostArray array =
            rt::HostArray::allocate(*rt::parseDataType(tensor.type), tensor.shape);
        std::memcpy(array.getMutableData(), tensor.bytes.data(), tensor.bytes.size());
        job.bind(name, array);
      }
      for (int i = 0; i < repeats; ++i)
        job.run(entry);
      for (const auto &[name, array] : job.getOutputs()) {
        const char *data = reinterpret_cast<const char *>(array.getData());
        results[entry][name] = {std::string(rt::nameOf(array.getType())), array.getShape(),
                                std::vector<char>(data, data + array.getNumBytes())};
      }
    }
  } catch (const std::exception &failure) {
    error = current + ": " + failure.what();
  }
  return results;
}
