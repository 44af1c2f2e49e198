//===- MeasuredCosts.cpp - times of steps, from a trace -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/simulator/MeasuredCosts.h"

#include "support/JsonDepth.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <map>

using namespace llvm;
using namespace gridloom::sim;

namespace {

/// The times of one step.
struct Samples {
  bool isCommunication = false;
  /// By iteration and rank, in order.
  std::map<int64_t, std::map<int64_t, std::vector<double>>> byIteration;

  double getMean() const {
    double sum = 0, count = 0;
    for (const auto &[iteration, ranks] : byIteration) {
      std::vector<double> shortest; // of each turn of a loop
      for (const auto &[rank, times] : ranks)
        for (auto [turn, time] : enumerate(times)) {
          if (!isCommunication || turn >= shortest.size())
            shortest.push_back(time);
          else
            shortest[turn] = std::min(shortest[turn], time);
        }
      for (double time : shortest) {
        sum += time;
        ++count;
      }
    }
    return sum / count;
  }
};

} // namespace

/// Adds the event if it times a step. Returns what is wrong with it; empty if nothing.
static std::string addEvent(const json::Value &value, StringMap<Samples> &samples) {
  const json::Object *event = value.getAsObject();
  if (!event)
    return "is not an object";
  if (event->getString("ph").value_or("") != "X")
    return "";
  std::optional<StringRef> name = event->getString("name");
  std::optional<double> duration = event->getNumber("dur");
  if (!name || !duration)
    return "has no " + std::string(name ? "'dur'" : "'name'");
  if (!(*duration >= 0) || !std::isfinite(*duration))
    return formatv("has 'dur' {0}; it has to be a number of microseconds, at least 0", *duration)
        .str();
  const json::Object *arguments = event->getObject("args");
  StringRef node = arguments ? arguments->getString("onnx").value_or("") : "";
  int64_t iteration = arguments ? arguments->getInteger("iteration").value_or(0) : 0;
  int64_t rank = event->getInteger("pid").value_or(0);
  constexpr double perMicrosecond = 1e-6;
  for (const std::string &key : {name->str(), (*name + "\n" + node).str()}) {
    Samples &step = samples[key];
    step.isCommunication = event->getString("cat").value_or("") == "communication";
    step.byIteration[iteration][rank].push_back(*duration * perMicrosecond);
  }
  return "";
}

std::optional<MeasuredCosts> MeasuredCosts::parse(StringRef text, const std::string &path,
                                                  std::string &error) {
  error = "the costs '" + path + "' ";
  if (isDeepJson(text)) {
    error += "have " + describeDeepJson() + "; no trace has";
    return std::nullopt;
  }
  Expected<json::Value> root = json::parse(text);
  if (!root) {
    std::string reason = toString(root.takeError());
    llvm::replace(reason, '\n', ' ');
    error += "are not JSON: " + reason;
    return std::nullopt;
  }
  const json::Object *object = root->getAsObject();
  const json::Array *events = object ? object->getArray("traceEvents") : nullptr;
  if (!events) {
    error += "have no list 'traceEvents'; make them with gridloom run --trace FILE";
    return std::nullopt;
  }
  StringMap<Samples> samples;
  for (auto [i, event] : enumerate(*events))
    if (std::string fault = addEvent(event, samples); !fault.empty()) {
      error += "are not a trace: traceEvents[" + std::to_string(i) + "] " + fault;
      return std::nullopt;
    }
  if (samples.empty()) {
    error += "time no step; make them with gridloom run --trace FILE";
    return std::nullopt;
  }
  MeasuredCosts costs;
  costs.path = path;
  for (const auto &entry : samples)
    costs.seconds[entry.getKey()] = entry.getValue().getMean();
  error.clear();
  return costs;
}

std::optional<MeasuredCosts> MeasuredCosts::read(const std::string &path, std::string &error) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file = MemoryBuffer::getFile(path, /*IsText=*/true);
  if (!file) {
    error = "cannot read the costs '" + path + "': " + file.getError().message();
    return std::nullopt;
  }
  return parse((*file)->getBuffer(), path, error);
}

std::optional<double> MeasuredCosts::find(StringRef name, StringRef node) const {
  auto found = seconds.find((name + "\n" + node).str());
  if (found == seconds.end())
    found = seconds.find(name);
  return found == seconds.end() ? std::nullopt : std::optional(found->second);
}
