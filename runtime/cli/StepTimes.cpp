//===- StepTimes.cpp - times of a plan's steps ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/StepTimes.h"

#include "cluster/KernelClass.h"
#include "runtime/arrays/Generator.h"
#include "runtime/core/Error.h"
#include "runtime/core/LibraryCalls.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/Session.h"

#include <algorithm>
#include <chrono>
#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
using cluster::NumberType;
using cluster::Work;
using cluster::WorkClass;
using cluster::WorkSample;

static NumberType getNumberType(DataType type) {
  return type == DataType::F64    ? NumberType::F64
         : type == DataType::F16  ? NumberType::F16
         : type == DataType::BF16 ? NumberType::Bf16
                                  : NumberType::F32;
}

std::vector<Work> gridloom::rt::listWork(const schema::Stage &stage,
                                         const schema::Specialisation &program) {
  std::vector<Work> list;
  walkSteps(program, [&](const PlannedStep &visit) {
    const schema::Step &step = visit.step;
    Work work;
    auto getType = [&](const auto &buffers) {
      return buffers.empty() ? NumberType::F32
                             : getNumberType(DataType(program.buffers(int(buffers[0])).type()));
    };
    if (step.has_launch()) {
      const schema::Kernel &kernel = stage.kernels(int(step.launch().kernel()));
      work.type = getType(step.launch().inputs());
      work.flops = double(kernel.flops());
      work.readBytes = double(kernel.bytes());
      work.kind = cluster::getKernelClass(work);
    } else if (step.has_library()) {
      work.kind = WorkClass::Contraction;
      work.type = getType(step.library().inputs());
      work.flops = getFlops(step.library());
      work.readBytes = double(getBytes(step.library()));
    } else if (step.has_copy()) {
      work.readBytes = work.writtenBytes =
          double(program.buffers(int(step.copy().input())).bytes());
    } else {
      return;
    }
    list.push_back(work);
  });
  return list;
}

namespace {

/// The durations of one program's steps over its runs, in nanoseconds.
class Durations {
public:
  explicit Durations(size_t steps) : steps(steps) {}
  void add(const std::vector<TraceEvent> &events);
  double getUsual(size_t step) const { return getUsual(steps[step]); }
  double getPause() const { return pauses.empty() ? 0 : getUsual(pauses); }

private:
  /// The mean without the longest tenth: step times vary, a program's time is their sum, and
  /// outliers affect few runs.
  static double getUsual(std::vector<double> values) {
    auto end = values.end() - ptrdiff_t(values.size() / 10);
    std::nth_element(values.begin(), end - 1, values.end());
    return std::accumulate(values.begin(), end, 0.0) / double(end - values.begin());
  }

  std::vector<std::vector<double>> steps;
  std::vector<double> pauses;
};

} // namespace

void Durations::add(const std::vector<TraceEvent> &events) {
  if (events.size() != steps.size())
    throw Error(ErrorCode::Internal, "a run had " + std::to_string(events.size()) +
                                         " steps, and its plan has " +
                                         std::to_string(steps.size()));
  for (size_t i = 0; i < events.size(); ++i) {
    steps[i].push_back(double(events[i].end - events[i].begin));
    if (i > 0)
      pauses.push_back(std::max(0.0, double(events[i].begin - events[i - 1].end)));
  }
}

/// Binds 0.5 everywhere: kernels take as long as for other numbers, and nothing overflows.
static void bindInputs(Session &session, const EntrySpecialisation &specialisation) {
  for (const Argument &input : specialisation.inputs)
    session.bind(input.name,
                 generate({Generator::Constant, 0.5, 0}, input.name, input.type, input.shape, 0));
}

std::vector<WorkSample> gridloom::rt::timeSteps(const std::shared_ptr<const Plan> &plan,
                                                Device &device, Transport &transport,
                                                double seconds) {
  std::vector<int> ranks(static_cast<size_t>(transport.getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::unique_ptr<Communicator> world = transport.createCommunicator(ranks, "measure");
  std::unique_ptr<Stream> stream = device.createStream(StreamKind::Communication, "measure");
  uint32_t sequence = 0;

  SessionOptions options;
  options.trace = true;
  options.graphs = false;
  Session session(plan, device, nullptr, options);
  const schema::Entry &entry = plan->getStage(0).entries(0);
  const Entry &described = plan->getEntries().front();
  std::vector<WorkSample> samples;
  for (int i = 0; i < entry.specialisations_size(); ++i) {
    const EntrySpecialisation &specialisation = described.specialisations[size_t(i)];
    std::vector<Work> work = listWork(plan->getStage(0), entry.specialisations(i));
    Durations durations(work.size());
    bindInputs(session, specialisation);
    session.run(described.name, specialisation.dims); // warm-up: touches all memory
    world->barrier(*stream, {"barrier", ++sequence, "measure"});
    stream->synchronize();
    auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (int run = 0; run < 3 || std::chrono::steady_clock::now() < end; ++run) {
      session.run(described.name, specialisation.dims);
      durations.add(session.getTrace());
    }
    constexpr double nanosecond = 1e-9;
    for (size_t step = 0; step < work.size(); ++step)
      samples.push_back(
          {work[step], nanosecond * (durations.getUsual(step) + durations.getPause())});
  }
  return samples;
}
