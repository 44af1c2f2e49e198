//===- Session.h - one rank's loaded plan -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_SESSION_H
#define GRIDLOOM_RUNTIME_CORE_SESSION_H

#include "runtime/comm/Transport.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"
#include "runtime/core/Shard.h"
#include "runtime/core/WeightStore.h"
#include "runtime/device/Device.h"
#include "runtime/trace/Trace.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gridloom::rt {

struct SessionOptions {
  /// A file or checkpoint folder with other weights than the model's (.onnx, .safetensors); empty:
  /// the model's.
  std::filesystem::path weights;
  /// Check the model file's SHA-256 even if the file is large and older than the plan.
  bool verifyModel = false;
  /// Shared between the sessions of one process; may be null.
  std::shared_ptr<WeightCache> cache;
  /// Keep every step's time for getTrace. RunStats are always available.
  bool trace = false;
  /// Do not overlap communication with computation: the baseline for measuring overlap.
  bool serialize = false;
  /// Capture programs as graphs in their second run, if the device and the transport can: the first
  /// run makes connections and loads code. Not used with `trace`, which times each step. Must be
  /// equal on all ranks.
  bool graphs = true;
  /// The ranks are threads of one process. NCCL warns that graphs of several GPUs of one process
  /// may deadlock: they are not used unless the environment variable GRIDLOOM_IN_PROCESS_GRAPHS is
  /// 1.
  bool inProcess = false;
  /// Measure the fastest algorithms of library calls that the plan's folder has no measurements
  /// for, and save them there for later sessions. Must be equal on all ranks.
  bool autotune = false;
  /// Receives warnings, one line each. May be null.
  std::function<void(const std::string &line)> warn;
  /// Receives verbose remarks, one line each, such as why there are no graphs. May be null.
  std::function<void(const std::string &line)> remark;
  /// Refuse a run whose inputs hold indices that are out of range; otherwise such an index reads
  /// the nearest element, or zeros. Inputs bound as shards and indices that the program computes
  /// are not checked. Must be equal on all ranks.
  bool checkIndices = false;
  /// Replaces the plan's seed for states that it draws. Must be equal on all ranks.
  std::optional<uint64_t> initSeed = {};
  /// Fill the padding of float inputs with NaN instead of zeros, to find code that reads it.
  bool poisonPadding = false;
};

/// A part of an output: the rank that has it, and its place in the whole.
struct OutputPart {
  int rank = 0;
  Shard shard;
};

/// One rank of a plan, loaded and ready to run: weights on the device, memory reserved, kernels and
/// libraries resolved, communicators made. The device and the transport must outlive it. One thread
/// at a time may use it; all ranks must call collective methods in the same order.
///
/// A failed run aborts the transport, so that no peer waits for this rank; later calls of the
/// session throw.
class Session {
public:
  /// Collective. `transport` may be null if the mesh has one rank; otherwise its size must be the
  /// mesh's, and all ranks must have loaded the same plan.
  Session(std::shared_ptr<const Plan> plan, Device &device, Transport *transport,
          SessionOptions options = {});
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Plan &getPlan() const;
  int getRank() const;
  int getStage() const;

  /// Sets the input `name` to its whole (global) value: this rank cuts its part; if its stage does
  /// not take the input, it only uses the shape. The array is read by run and referenced until the
  /// input is bound again. Throws InvalidArgument on an unknown name or a wrong type.
  void bind(const std::string &name, const HostArray &global);
  /// Sets this rank's part of the input, padding included: the plan's local shape.
  void bindShard(const std::string &name, const HostArray &local);

  /// Throws what run would throw before it starts: a caller with several ranks checks all of them
  /// first, so that none waits for a peer whose inputs are wrong.
  void checkRun(const std::string &entry, const std::map<std::string, int64_t> &dims) const;
  /// Collective. Runs the first specialisation of `entry` that binds `dims`, which may name some
  /// dimensions or none, and that fits the bound inputs' shapes. Returns when the outputs are
  /// complete. Throws InvalidArgument listing the specialisations if none fits; with several ranks
  /// that ends the job, since others may be running already.
  RunStats run(const std::string &entry = "main", const std::map<std::string, int64_t> &dims = {});

  /// Ends the job on all ranks: what they wait for now or later throws PeerFailed with `reason`.
  /// May be called from any thread.
  void abort(const std::string &reason);

  /// The specialisation of the last run: its outputs and their global shapes.
  const EntrySpecialisation &getLastSpecialisation() const;
  /// This rank's part of an output of the last run, padding included; a null array if this rank's
  /// stage does not compute it.
  HostArray getOutputShard(const std::string &name) const;
  /// The ranks whose parts make up the whole output of the last run, each part once: for callers
  /// that hold all sessions and assemble it with placeShard.
  std::vector<OutputPart> getOutputParts(const std::string &name) const;
  /// Collective. The whole output of the last run on rank 0, a null array elsewhere.
  HostArray gatherOutput(const std::string &name);
  /// Collective. The whole output of the last run on every rank.
  HostArray gatherOutputToAll(const std::string &name);
  /// Collective. Every rank's text on rank 0, in rank order; empty elsewhere.
  std::vector<std::string> gatherText(const std::string &text);

  /// Collective. Every rank's bytes on every rank, in rank order; all pass equally many bytes.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine);

  /// Collective. Replaces all weights with those of another file, on all ranks or on none.
  void updateWeights(const std::filesystem::path &path);

  /// A state's local value, padding included.
  HostArray getState(const std::string &name) const;
  /// Sets a state's local value, padding included. Throws InvalidArgument if this rank's stage has
  /// no such state or its type or shape differs.
  void setState(const std::string &name, const HostArray &local);
  /// Collective. A state's whole (global) value, without padding, on rank 0, a null array
  /// elsewhere. If several stages have the state, the first one's. Throws InvalidArgument if no
  /// stage has it. Reuses the memory of `into` if it has the state's type and shape, which saves
  /// new pages; nobody else may use that array.
  HostArray gatherState(const std::string &name, HostArray into = {});
  /// Collective. As gatherState, on every rank.
  HostArray gatherStateToAll(const std::string &name);
  /// Sets this rank's part of a state from its whole value, padding to zeros; does nothing if only
  /// other stages have the state. Throws InvalidArgument if no stage has it, or if the type or
  /// shape differs.
  void setGlobalState(const std::string &name, const HostArray &whole);
  /// Resets all states of this rank to their values in a new session: the weight that the plan
  /// names, the numbers that it draws, or zeros.
  void resetStates();

  /// The steps of the last run; empty unless options.trace.
  const std::vector<TraceEvent> &getTrace() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SESSION_H
