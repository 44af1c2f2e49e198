//===- InProcessJob.cpp - all ranks in one process ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/InProcessJob.h"

#include "runtime/comm/local/LocalTransport.h"
#include "runtime/core/Error.h"
#include "runtime/core/HostPool.h"
#include "runtime/core/Placement.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unistd.h>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

ForkGuard::ForkGuard() : process(getpid()) {}
bool ForkGuard::isForked() const { return process != getpid(); }
void ForkGuard::check(const char *what) const {
  if (isForked())
    throw Error(ErrorCode::InvalidArgument,
                std::string(what) + " was made in process " + std::to_string(process) +
                    " and cannot be used in process " + std::to_string(getpid()) +
                    ", forked from it; make one there, or start the process with spawn");
}

void Interruption::await(const std::function<bool(milliseconds)> &waitFor,
                         const std::function<void()> &end) const {
  std::exception_ptr thrown;
  std::optional<steady_clock::time_point> since;
  bool hasEnded = false;
  while (!waitFor(ask ? milliseconds(50) : milliseconds(3600000))) {
    if (!ask || hasEnded)
      continue;
    try {
      if (!since && ask())
        since = steady_clock::now();
    } catch (...) {
      thrown = std::current_exception();
      since = steady_clock::now();
    }
    if (since && steady_clock::now() - *since >= patience) {
      hasEnded = true;
      end();
    }
  }
  if (thrown)
    std::rethrow_exception(thrown);
}

/// One thread per rank; all calls of a rank's session are made on its thread.
class InProcessJob::Impl {
public:
  Impl(std::shared_ptr<const Plan> givenPlan, InProcessOptions options);
  ~Impl();

  /// Calls work(rank) on all ranks' threads and waits; throws the cause if any fails.
  void forAll(const std::function<void(int)> &work);
  Session &get(int rank) const;
  void abort(const std::string &reason);

  ForkGuard origin;
  std::shared_ptr<const Plan> plan;
  bool traced;
  HostPool pool; // of whole outputs

private:
  struct Rank {
    std::unique_ptr<Transport> transport; // on host memory
    Placement placement;
    std::unique_ptr<Session> session;
    std::exception_ptr failure;
    std::thread thread;
  };
  void startRank(int rank, const InProcessOptions &options);
  void loop(int rank);
  void throwCause();
  void stop();

  std::vector<Rank> ranks;
  std::mutex mutex;
  std::condition_variable wake, finished;
  const std::function<void(int)> *current = nullptr;
  uint64_t generation = 0;
  size_t pending = 0;
  bool stopping = false, isStarted = false;
  std::function<bool()> isInterrupted;
  milliseconds patience;
};

InProcessJob::Impl::Impl(std::shared_ptr<const Plan> givenPlan, InProcessOptions options)
    : plan(std::move(givenPlan)), traced(options.session.trace),
      isInterrupted(std::move(options.isInterrupted)), patience(options.patience) {
  int count = plan->getMesh().getNumRanks();
  if (!options.session.cache)
    options.session.cache = std::make_shared<WeightCache>();
  options.placement.prepare(plan->getTargetKind(), count, /*inProcess=*/true,
                            plan->getFolder().string());
  options.session.inProcess = count > 1;
  ranks.resize(size_t(count));
  if (count > 1) {
    auto transports = createInProcessTransports(count, options.placement.limits);
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank].transport = std::move(transports[rank]);
  }
  try {
    for (int rank = 0; rank < count; ++rank)
      ranks[size_t(rank)].thread = std::thread([this, rank] { loop(rank); });
    forAll([&](int rank) { startRank(rank, options); });
    isStarted = true;
  } catch (...) {
    stop();
    throw;
  }
}

/// Runs on the rank's own thread. If it fails, it aborts the transport, since the others wait for
/// this rank.
void InProcessJob::Impl::startRank(int rank, const InProcessOptions &options) {
  Rank &mine = ranks[size_t(rank)];
  try {
    mine.placement =
        placeRank(options.placement, rank, rank, int(ranks.size()), mine.transport.get());
    Transport *transport = mine.placement.deviceTransport ? mine.placement.deviceTransport.get()
                                                          : mine.transport.get();
    mine.session =
        std::make_unique<Session>(plan, *mine.placement.device, transport, options.session);
  } catch (const std::exception &error) {
    if (mine.transport)
      mine.transport->abort(error.what());
    throw;
  }
}

InProcessJob::Impl::~Impl() { stop(); }

void InProcessJob::Impl::stop() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (Rank &rank : ranks)
    if (rank.thread.joinable())
      rank.thread.join();
}

void InProcessJob::Impl::loop(int rank) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || generation != seen; });
    if (stopping)
      break;
    seen = generation;
    const std::function<void(int)> &work = *current;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work(rank);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    ranks[size_t(rank)].failure = failure;
    if (--pending == 0)
      finished.notify_all();
  }
  lock.unlock();
  ranks[size_t(rank)].session.reset();
  ranks[size_t(rank)].placement = {};
}

/// Prefers an error other than PeerFailed: a rank that lost its peer is not the cause.
void InProcessJob::Impl::throwCause() {
  std::exception_ptr first;
  for (Rank &rank : ranks) {
    if (!rank.failure)
      continue;
    if (!first)
      first = rank.failure;
    try {
      std::rethrow_exception(rank.failure);
    } catch (const Error &error) {
      if (error.getCode() != ErrorCode::PeerFailed)
        throw;
    }
  }
  if (first)
    std::rethrow_exception(first);
}

void InProcessJob::Impl::forAll(const std::function<void(int)> &work) {
  origin.check("the session");
  {
    std::lock_guard lock(mutex);
    current = &work;
    pending = ranks.size();
    ++generation;
  }
  wake.notify_all();
  Interruption(isInterrupted, patience)
      .await(
          [&](milliseconds limit) {
            std::unique_lock lock(mutex);
            return finished.wait_for(lock, limit, [&] { return pending == 0; });
          },
          [&] { abort("the run was interrupted"); });
  throwCause();
}

/// Called from any thread. Host transports exist until the ranks' threads end; sessions and device
/// transports are created while ranks start.
void InProcessJob::Impl::abort(const std::string &reason) {
  for (Rank &rank : ranks) {
    if (isStarted && rank.session)
      rank.session->abort(reason); // stops a loop that does not communicate
    if (isStarted && rank.placement.deviceTransport)
      rank.placement.deviceTransport->abort(reason);
    if (rank.transport)
      rank.transport->abort(reason);
  }
}

Session &InProcessJob::Impl::get(int rank) const {
  origin.check("the session");
  if (rank < 0 || size_t(rank) >= ranks.size())
    throw Error(ErrorCode::InvalidArgument,
                "rank " + std::to_string(rank) + " is not one of " + std::to_string(ranks.size()));
  return *ranks[size_t(rank)].session;
}

InProcessJob::InProcessJob(std::shared_ptr<const Plan> plan, InProcessOptions options)
    : impl(std::make_unique<Impl>(std::move(plan), std::move(options))) {}
InProcessJob::~InProcessJob() {
  [[maybe_unused]] Impl *left = nullptr;
  if (impl->origin.isForked())
    left = impl.release(); // leaked: its threads do not exist in this process
}

const Plan &InProcessJob::getPlan() const { return *impl->plan; }
int InProcessJob::getNumRanks() const { return impl->plan->getMesh().getNumRanks(); }
Session &InProcessJob::getSession(int rank) { return impl->get(rank); }

void InProcessJob::bind(const std::string &name, const HostArray &global) {
  for (int rank = 0; rank < getNumRanks(); ++rank)
    impl->get(rank).bind(name, global);
}

void InProcessJob::bindShard(int rank, const std::string &name, const HostArray &local) {
  impl->get(rank).bindShard(name, local);
}

std::vector<RunStats> InProcessJob::run(const std::string &entry,
                                        const std::map<std::string, int64_t> &dims) {
  for (int rank = 0; rank < getNumRanks(); ++rank)
    impl->get(rank).checkRun(entry, dims);
  std::vector<RunStats> stats(static_cast<size_t>(getNumRanks()));
  impl->forAll([&](int rank) { stats[size_t(rank)] = impl->get(rank).run(entry, dims); });
  return stats;
}

const EntrySpecialisation &InProcessJob::getLastSpecialisation() const {
  return impl->get(0).getLastSpecialisation();
}

HostArray InProcessJob::getOutput(const std::string &name) const {
  std::vector<OutputPart> parts = impl->get(0).getOutputParts(name);
  const Argument &argument = *getLastSpecialisation().findOutput(name);
  if (parts.size() == 1 && parts.front().shard.isWhole())
    return impl->get(parts.front().rank).getOutputShard(name);
  HostArray whole = impl->pool.allocate(argument.type, argument.shape);
  for (const OutputPart &part : parts) {
    HostArray local = impl->get(part.rank).getOutputShard(name);
    placeShard(part.shard, sizeOf(argument.type), local.getData(), whole.getMutableData());
  }
  return whole;
}

std::map<std::string, HostArray> InProcessJob::getOutputs() const {
  std::map<std::string, HostArray> outputs;
  for (const Argument &output : getLastSpecialisation().outputs)
    outputs[output.name] = getOutput(output.name);
  return outputs;
}

HostArray InProcessJob::getOutputShard(int rank, const std::string &name) const {
  return impl->get(rank).getOutputShard(name);
}

void InProcessJob::updateWeights(const std::filesystem::path &path) {
  impl->forAll([&](int rank) { impl->get(rank).updateWeights(path); });
}

void InProcessJob::abort(const std::string &reason) { impl->abort(reason); }

void InProcessJob::resetStates() {
  impl->forAll([&](int rank) { impl->get(rank).resetStates(); });
}

HostArray InProcessJob::getState(const std::string &name) const {
  HostArray whole;
  impl->forAll([&](int rank) {
    if (HostArray gathered = impl->get(rank).gatherState(name); rank == 0)
      whole = gathered;
  });
  return whole;
}

void InProcessJob::setState(const std::string &name, const HostArray &global) {
  impl->forAll([&](int rank) { impl->get(rank).setGlobalState(name, global); });
}

void InProcessJob::writeTrace(const std::filesystem::path &path) const {
  if (!impl->traced)
    throw Error(ErrorCode::InvalidArgument, "the job was made without tracing");
  std::vector<std::string> texts;
  for (int rank = 0; rank < getNumRanks(); ++rank)
    texts.push_back(toChromeEvents(impl->get(rank).getTrace(), rank));
  writeChromeTrace(path, texts);
}
