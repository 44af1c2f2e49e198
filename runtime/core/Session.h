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
  /// Weights to use instead of the model's (.onnx, .safetensors, or a checkpoint's folder); empty:
  /// the model's.
  std::filesystem::path weights;
  /// Check the model file's SHA-256 also where it is large and older than the plan.
  bool verifyModel = false;
  /// Shared between the sessions of one process; may be null.
  std::shared_ptr<WeightCache> cache;
  /// Keep every step's time for getTrace; figures of a run are kept always.
  bool trace = false;
  /// Let communication overlap nothing: what overlap is measured against.
  bool serialize = false;
  /// Capture programs as graphs where the device and the transport can: from a program's second run
  /// on, the first having made connections and loaded code. With `trace` there are none, since each
  /// step is timed. The same on all ranks.
  bool graphs = true;
  /// The ranks are threads of one process. NCCL says that graphs of several GPUs of one process may
  /// deadlock, so there are none unless the environment variable GRIDLOOM_IN_PROCESS_GRAPHS is 1.
  bool inProcess = false;
  /// Measure which algorithms of the device's libraries are fastest, as far as the plan's folder
  /// does not tell, and write it there for later sessions. The same on all ranks.
  bool autotune = false;
  /// Gets what people should know, one line each. May be null.
  std::function<void(const std::string &line)> warn;
  /// Gets remarks for people who ask for them, one line each: why there are no graphs. May be null.
  std::function<void(const std::string &line)> remark;
  /// Refuse a run whose inputs hold indices that are out of range. Without it such an index takes
  /// what lies at the nearest one, or zeros. Inputs that are bound as shards are not looked at, nor
  /// are indices that the program computes. The same on all ranks.
  bool checkIndices = false;
  /// The seed of states that the plan draws, in place of its own. The same on all ranks.
  std::optional<uint64_t> initSeed = {};
  /// Fill the padding of float inputs with NaN instead of zeros: what reads it shows.
  bool poisonPadding = false;
};

/// A part of an output: which rank has it, and where it lies in the whole.
struct OutputPart {
  int rank = 0;
  Shard shard;
};

/// One rank of a plan, loaded and ready to run: weights on the device, memory reserved, kernels and
/// libraries resolved, communicators made. The device and the transport must outlive it. One thread
/// at a time may call it; methods marked collective are called by all ranks in the same order.
///
/// A failed run aborts the transport, so that no peer waits for this rank; the session is then only
/// good for destruction, and says so.
class Session {
public:
  /// Collective. `transport` may be null where the mesh has one rank; otherwise its size must be
  /// the mesh's, and its ranks must have loaded the same plan.
  Session(std::shared_ptr<const Plan> plan, Device &device, Transport *transport,
          SessionOptions options = {});
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  const Plan &getPlan() const;
  int getRank() const;
  int getStage() const;

  /// Gives the input `name` its whole (global) value: this rank cuts its part, and a rank whose
  /// stage does not take the input only notes the shape. The memory is read at run and kept
  /// referenced until the input is bound again. Throws InvalidArgument on an unknown name or type.
  void bind(const std::string &name, const HostArray &global);
  /// Gives the input this rank's part, padding included: the local shape of the plan.
  void bindShard(const std::string &name, const HostArray &local);

  /// Throws what run would throw before it starts: a caller of several ranks asks all of them
  /// first, so that none is left waiting for a peer whose inputs are wrong.
  void checkRun(const std::string &entry, const std::map<std::string, int64_t> &dims) const;
  /// Collective. Runs `entry` in the specialisation whose dims equal `dims` where given (a subset
  /// is enough if it names one), else the one that the bound inputs' shapes fit. Returns when the
  /// outputs are complete. Throws InvalidArgument listing the specialisations there are when none
  /// fits; with several ranks that ends the job, since the others may be running already.
  RunStats run(const std::string &entry = "main", const std::map<std::string, int64_t> &dims = {});

  /// Ends the job on all ranks: what they wait for now or later throws PeerFailed with `reason`.
  /// From any thread.
  void abort(const std::string &reason);

  /// The specialisation of the last run: its outputs and their global shapes.
  const EntrySpecialisation &getLastSpecialisation() const;
  /// This rank's part of an output of the last run, padding included; a null array where this
  /// rank's stage does not make it.
  HostArray getOutputShard(const std::string &name) const;
  /// The ranks whose parts together are the whole output of the last run, each part once: what a
  /// caller that holds all sessions puts together with placeShard.
  std::vector<OutputPart> getOutputParts(const std::string &name) const;
  /// Collective. The whole output of the last run on rank 0, a null array elsewhere.
  HostArray gatherOutput(const std::string &name);
  /// Collective. The whole output of the last run on every rank.
  HostArray gatherOutputToAll(const std::string &name);
  /// Collective. Every rank's text on rank 0 in rank order, nothing elsewhere: traces, figures.
  std::vector<std::string> gatherText(const std::string &text);

  /// Collective. Every rank's bytes on every rank, in rank order; all ranks give equally many.
  std::vector<std::vector<std::byte>> exchange(std::span<const std::byte> mine);

  /// Collective. Replaces all weights by those of another file, on all ranks or on none.
  void updateWeights(const std::filesystem::path &path);

  /// A state's local value, padding included.
  HostArray getState(const std::string &name) const;
  /// Gives a state its local value, padding included. Throws InvalidArgument where this rank's
  /// stage has no state of the name, or one of another type or shape.
  void setState(const std::string &name, const HostArray &local);
  /// Collective. A state's whole (global) value, without padding, on rank 0, a null array
  /// elsewhere. Where several stages have the state, the first one's. Throws InvalidArgument where
  /// no stage has it. Memory is that of `into` where this is of the state's type and shape: an
  /// array that nobody else looks at, as of a former call, costs no new pages.
  HostArray gatherState(const std::string &name, HostArray into = {});
  /// Collective. The same on every rank.
  HostArray gatherStateToAll(const std::string &name);
  /// Gives this rank its part of a state's whole value, zeros where that is padding; does nothing
  /// where only other stages have the state. Throws InvalidArgument where no stage has it, or the
  /// type or shape is another one.
  void setGlobalState(const std::string &name, const HostArray &whole);
  /// Makes all states of this rank what they are in a new session: the weight that the plan names,
  /// the numbers that it draws, or zeros.
  void resetStates();

  /// Steps of the last run; empty unless options.trace.
  const std::vector<TraceEvent> &getTrace() const;

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_SESSION_H
