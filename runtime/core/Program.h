//===- Program.h - running one program --------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_PROGRAM_H
#define GRIDLOOM_RUNTIME_CORE_PROGRAM_H

#include "runtime/core/Communicators.h"
#include "runtime/core/Error.h"
#include "runtime/core/Plan.h"
#include "runtime/core/plan.pb.h"
#include "runtime/device/Device.h"
#include "runtime/trace/Trace.h"

#include <deque>
#include <functional>
#include <map>
#include <set>

namespace gridloom::rt {

/// Streams by name, shared by the programs of a session.
using StreamTable = std::map<std::string, std::unique_ptr<Stream>>;

/// The kernels of a stage, by their index in it.
std::vector<std::unique_ptr<Kernel>> loadKernels(const Plan &plan, const schema::Stage &stage,
                                                 Device &device);

/// The environment of a program; everything that it refers to must outlive the program.
struct ProgramContext {
  const Plan &plan;
  const schema::Stage &stage;
  int rank;
  Device &device;
  const std::vector<std::unique_ptr<Kernel>> &kernels;
  const Communicators *communicators; // null: every group has one member
  StreamTable &streams;
  bool serialize = false;
  bool named = false; // keep each step's times, with its name
  /// Throws if the job was aborted; called in each iteration of loops, which may not communicate.
  std::function<void()> checkJob = {};
};

/// The addresses of a program's spaces for one run.
struct ProgramMemory {
  void *arena = nullptr;
  void *registered = nullptr;
  std::function<const void *(uint32_t)> weight, state, input, output;
};

/// One verified program with its library calls planned, communicators found and constants on the
/// device.
class Program {
public:
  Program(const ProgramContext &context, const schema::Specialisation &program);
  ~Program();

  /// Submits all steps and waits for them. Throws the first error; work may then still be pending
  /// until `drain`.
  void run(const ProgramMemory &memory);
  /// Waits for all streams and ignores their errors.
  void drain();

  /// Captures all steps as graphs, one for each stretch between conditions, without running them;
  /// later runs submit the graphs. Throws if the device or a communicator refuses; runs then remain
  /// step by step. Collective if the steps are.
  void capture(const ProgramMemory &memory);
  /// Makes run submit step by step again. Call it before the memory that steps use moves.
  void dropGraphs() {
    graphs.clear();
    isCaptured = false;
  }
  /// Call it when weights have moved or have new values.
  void forgetWeights() {
    dropGraphs(); // graphs contain addresses
    for (auto &[step, call] : calls)
      call->forgetWeights();
    for (auto &[step, matmul] : matmuls)
      matmul->forgetWeights();
  }
  bool hasGraphs() const { return isCaptured; }
  /// Whether libraries may have made packed copies of weights after a run: true if it calls any.
  bool packsWeights() const { return !calls.empty() || !repeatedProducts.empty(); }

  /// The time from the first step's start to the last step's end in the last run, on the device.
  struct Span {
    int64_t begin = 0, end = 0; // ns of the monotonic clock
    int64_t graphs = 0;         // graphs launched; 0: it ran step by step
  };
  const Span &getSpan() const { return span; }
  /// The times of the last run's steps; empty if a device's graphs take none.
  const RunTimes &getTimes() const { return added; }
  /// The last run's steps, if the context is named; call it once.
  std::vector<TraceEvent> takeTrace() { return std::move(trace); }
  const schema::Specialisation &getSchema() const { return program; }

private:
  using Body = google::protobuf::RepeatedPtrField<schema::Control>;
  using Indices = google::protobuf::RepeatedField<uint32_t>;
  struct Timed {
    const schema::Step *step;
    int64_t iteration;
    int64_t begin = 0, end = 0;
    uint32_t mark = 0; // recorded in the stream after the step
  };

  /// The communicator of a group. Its members are ordered by rank, while the group's parts are
  /// ordered by its axes; `places` maps member i to its part where the two differ.
  struct PreparedGroup {
    Communicator *members = nullptr;        // null: this rank alone
    std::vector<size_t> places;             // empty: part i belongs to member i
    std::unique_ptr<Memory> sent, received; // parts in the members' order
    int getMember(int64_t place) const;
  };

  /// The times of captured work on devices whose graphs can take times: one for each collective and
  /// for each stretch of other steps between two waits or records. Written by the threads that run
  /// the stream's work.
  struct StretchTimes {
    bool isOpen = false;     // while capturing
    std::vector<Timed> done; // of what is not in `added`
  };

  static StreamKind getKind(const schema::Stream &stream);
  void prepareConstants();
  void countWeightReads(const Body &body, bool isRepeated);
  bool prepareBody(const Body &body);
  void prepareLibrary(const schema::Step &step);
  void prepareConvolution(const schema::Step &step);
  void prepareMatmul(const schema::Step &step);
  void launch(uint32_t kernel, Stream &stream, std::span<void *const> pointers);
  void prepareGroup(const schema::Step &step);
  void resolveBuffers(const ProgramMemory &memory);
  void *getPointer(uint32_t buffer, int64_t iteration) const;
  uint64_t getElements(uint32_t buffer) const;

  enum class Mode { Plain, Capture, Replay };
  struct Segment {
    const Body &body;
    int begin, end;
    int64_t iteration;
  };
  void runBody(const Body &body, int64_t iteration);
  void runGuarded(const schema::Control &control, int64_t iteration);
  void runSegment(const Segment &segment);
  void submitAll(const Body &body, int begin, int end, int64_t iteration);
  void captureSegment(const Segment &segment);
  Stream &getOrigin() const;
  [[noreturn]] void explain(const Error &error) const;
  std::string getNode(const schema::Step &step) const;
  std::string describeOrigin(const schema::Step &step) const;
  bool readCondition(uint32_t buffer, bool communicates, int64_t iteration);
  void submit(const schema::Step &step, int64_t iteration);
  void captureWork(const schema::Step &step, Stream &stream, int64_t iteration);
  void closeStretch(uint32_t stream);
  void addTimes();
  void addTimesIfMany();
  TraceEvent makeEvent(const Timed &timed) const;
  void submitNamed(const schema::Step &step, Stream &stream, int64_t iteration);
  void submitWork(const schema::Step &step, Stream &stream, int64_t iteration);
  void submitLibrary(const schema::Step &step, Stream &stream, int64_t iteration);
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
  /// Products with one weight that are alike share a plan, and with it the packed weight.
  std::map<const schema::Step *, std::shared_ptr<MatmulPlan>> matmuls;
  std::map<std::pair<uint32_t, std::string>, std::shared_ptr<MatmulPlan>> repeatedProducts;
  std::map<uint32_t, int> weightReads; ///< of products, by buffer; in loops each counts twice
  /// Scratch for matmuls whose epilogue runs as a fallback kernel: the plain products.
  std::map<const schema::Step *, std::unique_ptr<Memory>> products;
  std::map<const schema::Step *, std::unique_ptr<LibraryPlan>> calls; // to other libraries
  std::map<const schema::Step *, PreparedGroup> groups;
  std::vector<std::vector<std::unique_ptr<Event>>> events; // by id: maximum lag + 1 each
  std::vector<uint32_t> maxLag;
  std::set<const schema::Control *> guards;     // loops and branches that communicate
  std::vector<std::unique_ptr<Event>> meetings; // by stream
  std::unique_ptr<Memory> conditionScratch;
  std::unique_ptr<Stream> conditionStream;
  std::deque<Timed> timeline;          // of steps that are not in `added`
  std::vector<StretchTimes> stretches; // by stream; empty where graphs take no times
  Mode mode = Mode::Plain;
  /// Key: a segment's first control, and the iteration. All graphs are submitted to one stream.
  std::map<std::pair<const schema::Control *, int64_t>, std::unique_ptr<WorkGraph>> graphs;
  bool isCaptured = false;
  std::vector<void *> capturedBases;
  std::set<const Event *> recorded; // in the capture in progress
  Span span;
  RunTimes added;
  std::vector<TraceEvent> trace;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_PROGRAM_H
