//===- SessionImpl.h - state of a session -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_SESSIONIMPL_H
#define GRIDLOOM_RUNTIME_CORE_SESSIONIMPL_H

#include "runtime/core/Communicators.h"
#include "runtime/core/HostPool.h"
#include "runtime/core/Program.h"
#include "runtime/core/Session.h"
#include "runtime/device/AutotuneCache.h"

#include <atomic>
#include <chrono>
#include <mutex>

namespace gridloom::rt {

class Session::Impl {
public:
  /// One specialisation of one entry, ready to run.
  struct LoadedProgram {
    const Entry *entry = nullptr;
    const EntrySpecialisation *global = nullptr;
    int entryIndex = 0, index = 0;
    std::unique_ptr<Program> program;
    bool reserved = false; // whether memory for inputs and outputs is allocated
    bool warm = false;     // has run
    bool refused = false;  // a rank could not capture it
    RunStats stepped;      // of its last run without graphs
    std::vector<std::unique_ptr<Memory>> inputs, outputs;
    std::vector<Shard> placements; // of inputs
  };

  Impl(std::shared_ptr<const Plan> plan, Device &device, Transport *transport,
       SessionOptions options);
  ~Impl();

  const schema::Stage &getStage() const { return plan->getStage(stageNumber); }
  void requireUsable() const;
  const LoadedProgram &getLast() const;
  /// Called from any thread: running and later calls throw PeerFailed with `reason`.
  void abort(const std::string &reason);
  /// Throws if the job has been aborted, here or by a peer.
  void checkJob();

  void bind(const std::string &name, const HostArray &array, bool isShard);
  /// With options.checkIndices: throws if an input holds an index out of range.
  void checkIndices(const LoadedProgram &loaded) const;
  LoadedProgram &select(const std::string &entry, const std::map<std::string, int64_t> &dims);
  LoadedProgram &selectOrFail(const std::string &entry, const std::map<std::string, int64_t> &dims);
  RunStats run(LoadedProgram &loaded);

  const Argument &getOutput(const std::string &name) const;
  HostArray readShard(const std::string &name) const;
  std::vector<OutputPart> findParts(const std::string &name) const;
  HostArray gatherOutput(const std::string &name, bool toAll);
  HostArray gatherState(const std::string &name, bool toAll, HostArray into);
  void setGlobalState(const std::string &name, const HostArray &whole);
  std::vector<std::string> gatherText(const std::string &text);
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine);
  void updateWeights(const std::filesystem::path &path);
  int findState(const std::string &name) const;
  /// `into` as for gatherState.
  HostArray readState(int index, HostArray into = {}) const;
  HostArray borrowState(int index) const;
  void resetStates();
  void zero(void *to, size_t bytes);
  Stream &getHostStream();
  void submitCopyIn(void *to, std::span<const std::byte> from);
  /// Blocks until the copy is done.
  void copyIn(void *to, std::span<const std::byte> from);
  void copyOut(std::span<std::byte> to, const void *from);

private:
  void start();
  void requireEqualPlans();
  void requireEqualLibraries();
  void agree(const std::string &what, const std::function<void()> &work);
  void agreeOnWeights(const std::string &what, const std::function<std::string()> &work);
  std::string load();
  void keepSource(const std::shared_ptr<const WeightSource> &opened);
  void prepare();
  void agreeOnGraphs();
  void openTuning();
  void closeTuning();
  std::vector<std::string> exchangeTexts(const std::string &mine);
  void capture(LoadedProgram &loaded, const ProgramMemory &memory);
  RunStats summarize(LoadedProgram &loaded, int64_t begin, int64_t end);
  void remark(const std::string &line) const {
    if (options.remark && rank == 0)
      options.remark(line);
  }
  void warn(const std::string &line) const {
    if (options.warn && rank == 0)
      options.warn(line);
  }
  std::unique_ptr<Memory> allocateZeroed(size_t bytes);
  void resetState(const schema::State &state, void *to);
  std::vector<std::byte> drawState(const schema::State &state) const;
  std::string findMisfit(const LoadedProgram &loaded) const;
  std::vector<OutputPart> findParts(int stage, const std::function<Shard(int)> &getShard) const;
  HostArray gather(DataType type, const std::vector<int64_t> &shape,
                   const std::vector<OutputPart> &parts,
                   const std::function<HostArray(HostArray)> &read, bool toAll,
                   HostArray into = {});
  void reserveBindings(LoadedProgram &loaded);
  void fillInputs(LoadedProgram &loaded);
  [[noreturn]] void fail(const std::exception_ptr &cause, LoadedProgram *loaded);
  const schema::Binding *findBinding(const LoadedProgram &loaded, int stage,
                                     const std::string &name, bool output) const;
  Shard getPlacement(const LoadedProgram &loaded, const schema::Binding &binding, int ofRank,
                     bool output) const;

public:
  // Destroyed in reverse order: programs use everything above them.
  std::shared_ptr<const Plan> plan;
  Device &device;
  Transport *transport;
  SessionOptions options;
  int rank = 0, stageNumber = 0;
  std::shared_ptr<const WeightSource> source; // null if no state is initialised from a weight
  std::shared_ptr<const WeightSet> weights;
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::shared_ptr<AutotuneCache> tuning;
  std::unique_ptr<Memory> arena, registered;
  mutable HostPool pool; // for outputs' shards
  std::vector<std::unique_ptr<Memory>> states;
  std::unique_ptr<ControlChannel> control; // null: one rank
  std::mutex abortMutex;
  std::string abortReason; // guarded by abortMutex
  std::atomic<bool> isAborted{false};
  std::chrono::steady_clock::time_point nextPeerCheck;
  std::unique_ptr<Communicators> communicators;
  std::unique_ptr<Stream> hostStream;
  StreamTable streams;
  std::vector<std::unique_ptr<LoadedProgram>> programs;
  struct Bound {
    HostArray array;
    bool isShard = false;
  };
  std::map<std::string, Bound> bindings;
  const LoadedProgram *last = nullptr;
  bool usesGraphs = false;
  std::vector<TraceEvent> trace;
  std::string failure; // why the session is unusable; empty: it is usable
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SESSIONIMPL_H
