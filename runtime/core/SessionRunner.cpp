//===- SessionRunner.cpp - a session on all ranks or on one ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/SessionRunner.h"

#include "runtime/core/Error.h"
#include "runtime/core/Placement.h"
#include "runtime/launch/Launcher.h"

#include <array>
#include <cstring>
#include <future>

using namespace gridloom::rt;

namespace {

struct JobRunner : SessionRunner {
  JobRunner(std::shared_ptr<const Plan> plan, const InProcessOptions &options)
      : job(std::move(plan), options) {}
  void bind(const std::string &name, const HostArray &array) override { job.bind(name, array); }
  Session &getSession(int rank) override { return job.getSession(rank < 0 ? 0 : rank); }
  RunStats run(const std::string &entry, const std::map<std::string, int64_t> &dims) override {
    return combineStats(job.run(entry, dims));
  }
  HostArray getOutput(const std::string &name) override { return job.getOutput(name); }
  void updateWeights(const std::string &path) override { job.updateWeights(path); }
  void resetStates() override { job.resetStates(); }
  HostArray getState(const std::string &name) override { return job.getState(name); }
  void setState(const std::string &name, const HostArray &global) override {
    job.setState(name, global);
  }
  void agree(const std::string &, const std::function<TrainingProgress()> &work) override {
    work();
  }
  void writeTrace(const std::string &path) override { job.writeTrace(path); }
  void abort(const std::string &reason) override { job.abort(reason); }
  InProcessJob job;
};

struct RankRunner : SessionRunner {
  RankRunner(const std::shared_ptr<const Plan> &plan, const InProcessOptions &options)
      : traced(options.session.trace), isInterrupted(options.isInterrupted),
        patience(options.patience) {
    std::optional<World> world = detectWorld(getProcessEnvironment());
    if (!world)
      throw Error(
          ErrorCode::InvalidArgument,
          "the environment names no rank; start with gridloom run, torchrun, mpirun or srun");
    if (int ranks = plan->getMesh().getNumRanks(); world->size != ranks)
      throw Error(ErrorCode::InvalidArgument,
                  plan->getFolder().string() + " is for " + std::to_string(ranks) + " ranks but " +
                      world->source + " says " + std::to_string(world->size) +
                      "; compile it for that many, or start as many as it is for");
    if (world->size > 1)
      host = join(*world, options.placement.limits);
    try {
      await([&] { start(plan, *world, options); },
            [&] {
              if (host)
                host->abort("the load was interrupted");
            });
    } catch (const std::exception &error) {
      // The other ranks wait for this one.
      if (host)
        host->abort(error.what());
      throw;
    }
  }
  /// Runs work that may wait for other ranks; on another thread if this one polls for interrupts.
  /// `end` aborts it.
  template <typename Work>
  std::invoke_result_t<Work> await(Work work, const std::function<void()> &end) {
    if (!isInterrupted)
      return work();
    auto result = std::async(std::launch::async, work);
    Interruption(isInterrupted, patience)
        .await(
            [&](std::chrono::milliseconds limit) {
              return result.wait_for(limit) == std::future_status::ready;
            },
            end);
    return result.get();
  }
  template <typename Work> auto call(Work work) {
    return await(work, [&] { session->abort("the run was interrupted"); });
  }
  void bind(const std::string &name, const HostArray &array) override {
    session->bind(name, array);
  }
  Session &getSession(int rank) override {
    if (rank >= 0 && rank != session->getRank())
      throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(rank) +
                                                  " is not here; this process is rank " +
                                                  std::to_string(session->getRank()));
    return *session;
  }
  RunStats run(const std::string &entry, const std::map<std::string, int64_t> &dims) override {
    return call([&] { return session->run(entry, dims); });
  }
  HostArray getOutput(const std::string &name) override {
    return call([&] { return session->gatherOutput(name); });
  }
  void updateWeights(const std::string &path) override {
    call([&] { session->updateWeights(path); });
  }
  void resetStates() override { session->resetStates(); }
  HostArray getState(const std::string &name) override {
    return call([&] { return session->gatherState(name); });
  }
  void setState(const std::string &name, const HostArray &global) override {
    session->setGlobalState(name, global);
  }
  void agree(const std::string &what, const std::function<TrainingProgress()> &work) override {
    std::exception_ptr failure;
    std::array<std::byte, 1 + sizeof(TrainingProgress)> mine = {}; // success, and the result
    try {
      TrainingProgress progress = work();
      mine[0] = std::byte(1);
      std::memcpy(mine.data() + 1, &progress, sizeof(progress));
    } catch (...) {
      failure = std::current_exception();
    }
    std::vector<std::vector<std::byte>> all = call([&] { return session->exchange(mine); });
    if (failure)
      std::rethrow_exception(failure);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      std::string who = "rank " + std::to_string(rank);
      if (all[rank][0] != std::byte(1))
        throw Error(ErrorCode::InvalidArgument, what + " failed on " + who);
      if (all[rank] != all[0])
        throw Error(ErrorCode::InvalidArgument, what + ": " + who + " has another one than rank 0");
    }
  }
  void writeTrace(const std::string &path) override {
    if (!traced)
      throw Error(ErrorCode::InvalidArgument, "the session was created without options.trace");
    std::vector<std::string> ranks = call([&] {
      return session->gatherText(toChromeEvents(session->getTrace(), session->getRank()));
    });
    if (session->getRank() == 0)
      writeChromeTrace(path, ranks);
  }
  void abort(const std::string &reason) override { session->abort(reason); }

private:
  std::unique_ptr<Transport> join(World &world, TransportOptions limits) {
    if (isInterrupted)
      limits.whileJoining = [this] {
        if (isInterrupted())
          throw Error(ErrorCode::PeerFailed, "interrupted while waiting for the other ranks");
      };
    return joinJob(world, limits);
  }
  void start(const std::shared_ptr<const Plan> &plan, const World &world,
             const InProcessOptions &options) {
    PlacementOptions placing = options.placement;
    placing.prepare(plan->getTargetKind(), world.size, /*inProcess=*/world.size == 1,
                    plan->getFolder().string());
    placement = placeRank(placing, world.rank, world.localRank, world.localSize, host.get());
    Transport *transport = placement.deviceTransport ? placement.deviceTransport.get() : host.get();
    session = std::make_unique<Session>(plan, *placement.device, transport, options.session);
  }
  bool traced;
  std::function<bool()> isInterrupted;
  std::chrono::milliseconds patience;
  std::unique_ptr<Transport> host;
  Placement placement;
  std::unique_ptr<Session> session;
};

} // namespace

std::unique_ptr<SessionRunner> gridloom::rt::makeJobRunner(std::shared_ptr<const Plan> plan,
                                                           const InProcessOptions &options) {
  return std::make_unique<JobRunner>(std::move(plan), options);
}

std::unique_ptr<SessionRunner> gridloom::rt::makeRankRunner(const std::shared_ptr<const Plan> &plan,
                                                            const InProcessOptions &options) {
  return std::make_unique<RankRunner>(plan, options);
}
