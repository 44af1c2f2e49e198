//===- Program.h - running one program --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PROGRAM_H
#define GRIDLOOM_RUNTIME_CORE_PROGRAM_H

#include "runtime/core/Communicators.h"
#include "runtime/core/Plan.h"
#include "runtime/core/plan.pb.h"
#include "runtime/device/Device.h"
#include "runtime/trace/Trace.h"

#include <deque>
#include <functional>
#include <map>

namespace gridloom::rt {

/// Streams by name, shared by the programs of a session.
using StreamTable = std::map<std::string, std::unique_ptr<Stream>>;

/// The kernels of a stage, by their index in it.
std::vector<std::unique_ptr<Kernel>> loadKernels(const Plan &plan, const schema::Stage &stage,
                                                 Device &device);

/// What a program runs with. All of it outlives the program.
struct ProgramContext {
  const Plan &plan;
  const schema::Stage &stage;
  int rank;
  Device &device;
  const std::vector<std::unique_ptr<Kernel>> &kernels;
  const Communicators *communicators; // null: no group in the program has two members
  StreamTable &streams;
  bool serialize = false;
};

/// Where the spaces of a program lie for one run.
struct ProgramMemory {
  void *arena = nullptr;
  void *registered = nullptr;
  std::function<const void *(uint32_t)> weight, state, input, output;
};

/// One verified program, resolved: libraries asked, communicators found, constants in place.
class Program {
public:
  Program(const ProgramContext &context, const schema::Specialisation &program);
  ~Program();

  /// Submits everything and waits for it. Steps' times go to `events`. Throws the first
  /// error; work may then still be pending until `drain`.
  void run(const ProgramMemory &memory, std::vector<TraceEvent> &events);
  /// Waits for all streams, whatever they throw.
  void drain();
  const schema::Specialisation &getSchema() const { return program; }

private:
  using Body = google::protobuf::RepeatedPtrField<schema::Control>;
  using Indices = google::protobuf::RepeatedField<uint32_t>;
  struct Timed {
    const schema::Step *step;
    int64_t iteration;
    int64_t begin = 0, end = 0;
  };

  /// The communicator of a group, whose members are in the order of their ranks. Where the group's
  /// axes are not in the mesh's order its parts are, and `places` says where member i's part is.
  struct PreparedGroup {
    Communicator *members = nullptr;        // null: this rank alone
    std::vector<size_t> places;             // empty: part i is member i's
    std::unique_ptr<Memory> sent, received; // parts in the members' order
    int getMember(int64_t place) const;
  };

  void prepareConstants();
  void prepareBody(const Body &body);
  void prepareMatmul(const schema::Step &step);
  void prepareGroup(const schema::Step &step);
  void resolveBuffers(const ProgramMemory &memory);
  void *getPointer(uint32_t buffer, int64_t iteration) const;
  uint64_t getElements(uint32_t buffer) const;

  void runBody(const Body &body, int64_t iteration);
  bool readCondition(uint32_t buffer, bool communicates, int64_t iteration);
  void submit(const schema::Step &step, int64_t iteration);
  void submitWork(const schema::Step &step, Stream &stream, int64_t iteration);
  void submitMatmul(const schema::Step &step, Stream &stream, int64_t iteration);
  void submitGroup(const schema::Step &step, Stream &stream, int64_t iteration);
  void submitCollective(const schema::Step &step, Stream &stream, const void *in, void *out,
                        uint32_t index, OpContext op);
  void submitPermute(const schema::Step &step, Stream &stream, const void *in, void *out,
                     uint64_t count, DataType type, OpContext op);
  /// Makes `stream` wait for all others, or all others for it.
  void meet(Stream &stream, bool others);
  Event &getEvent(uint32_t id, int64_t iteration);
  void synchronize();
  std::string describe(const schema::Step &step) const;

  ProgramContext context;
  const schema::Specialisation &program;
  std::vector<Stream *> streams;
  std::vector<std::unique_ptr<Memory>> constants; // by buffer
  std::vector<void *> bases;                      // by buffer
  std::map<const schema::Step *, std::unique_ptr<MatmulPlan>> matmuls;
  std::map<const schema::Step *, PreparedGroup> groups;
  std::vector<std::vector<std::unique_ptr<Event>>> events; // by id, as many as it may lag and one
  std::vector<uint32_t> maxLag;
  std::vector<std::unique_ptr<Event>> meetings; // by stream
  std::unique_ptr<Memory> conditionScratch;
  std::unique_ptr<Stream> conditionStream;
  std::deque<Timed> timeline;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PROGRAM_H
