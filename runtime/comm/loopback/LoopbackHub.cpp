//===- LoopbackHub.cpp - meeting point of ranks of one GPU ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/loopback/LoopbackHub.h"

#include "runtime/comm/loopback/ReducePtx.h"

#include <algorithm>

using namespace gridloom::rt;
using std::chrono::steady_clock;

struct LoopbackHub::Meeting {
  std::string name;
  std::vector<int> ranks;
  std::vector<LoopbackCall *> calls; // null: not arrived
  bool isPerforming = false, isDone = false;
};

LoopbackHub::LoopbackHub(int size) : joined(size_t(size)), left(size_t(size)) {}

std::shared_ptr<LoopbackHub::Meeting> LoopbackHub::post(const std::string &name,
                                                        std::span<const int> ranks, size_t slot,
                                                        LoopbackCall &call,
                                                        const LoopbackWork &work) {
  Lock lock(mutex);
  checkLocked(call.rank, call.operation);
  std::shared_ptr<Meeting> &entry = meetings[name];
  if (!entry) {
    entry = std::make_shared<Meeting>();
    entry->name = name;
    entry->ranks.assign(ranks.begin(), ranks.end());
    entry->calls.resize(ranks.size());
  }
  std::shared_ptr<Meeting> meeting = entry;
  meeting->calls[slot] = &call;
  if (std::count(meeting->calls.begin(), meeting->calls.end(), nullptr) == 0) {
    meetings.erase(name);
    perform(lock, *meeting, work);
  }
  return meeting;
}

void LoopbackHub::perform(Lock &lock, Meeting &meeting, const LoopbackWork &work) {
  const LoopbackCall &first = *meeting.calls.front();
  for (const LoopbackCall *call : meeting.calls)
    if (!first.terms.agreesWith(call->terms))
      return failLocked(ErrorCode::InvalidArgument,
                        describeDisagreement(first.rank, first.terms, call->rank, call->terms));
  meeting.isPerforming = true; // keeps the other ranks' calls alive
  lock.unlock();
  std::optional<Error> error;
  {
    std::lock_guard turn(enqueuing);
    try {
      work(meeting.calls);
    } catch (const Error &caught) {
      error = caught;
    }
  }
  lock.lock();
  meeting.isPerforming = false;
  meeting.isDone = !error;
  if (error)
    failLocked(error->getCode(), first.operation.describe() + ": " + error->what());
  changed.notify_all();
}

std::vector<int> LoopbackHub::findMissing(const Meeting &meeting) const {
  std::vector<int> missing;
  for (size_t i = 0; i < meeting.ranks.size(); ++i)
    if (!meeting.calls[i])
      missing.push_back(meeting.ranks[i]);
  return missing;
}

void LoopbackHub::await(Meeting &meeting, const LoopbackCall &call,
                        const TransportOptions &limits) {
  Lock lock(mutex);
  auto end = steady_clock::now() + limits.deadline;
  while (!meeting.isDone) {
    if (!meeting.isPerforming) {
      checkLocked(call.rank, call.operation);
      std::vector<int> missing = findMissing(meeting), gone;
      for (int rank : missing)
        if (hasLeft(rank, call.rank))
          gone.push_back(rank);
      std::string who = "rank " + std::to_string(call.rank) + " in " + call.operation.describe();
      if (!gone.empty())
        failLocked(ErrorCode::PeerFailed, who + ": " + describeRanks(gone) +
                                              (gone.size() == 1 ? " has" : " have") +
                                              " left the job without taking part");
      else if (steady_clock::now() >= end)
        failLocked(ErrorCode::DeadlineExceeded,
                   who + ": no progress for " + std::to_string(limits.deadline.count()) +
                       " ms; missing " + describeRanks(missing) +
                       "; give a longer timeout if they are only slow");
      checkLocked(call.rank, call.operation);
    }
    changed.wait_until(
        lock, end + (meeting.isPerforming ? limits.deadline : std::chrono::milliseconds(0)));
  }
}

void LoopbackHub::checkLocked(int rank, const Operation &operation) const {
  if (failure)
    throw Error("rank " + std::to_string(rank) + " stopped in " + operation.describe(), *failure);
}

void LoopbackHub::check(int rank, const Operation &operation) {
  Lock lock(mutex);
  checkLocked(rank, operation);
}

void LoopbackHub::failLocked(ErrorCode code, const std::string &text) {
  if (!failure)
    failure.emplace(code, text);
  changed.notify_all();
}

void LoopbackHub::abort(ErrorCode code, const std::string &text) {
  Lock lock(mutex);
  failLocked(code, text);
}

void LoopbackHub::join(int rank) {
  Lock lock(mutex);
  ++joined[size_t(rank)];
}

void LoopbackHub::leave(int rank) {
  Lock lock(mutex);
  ++left[size_t(rank)];
  changed.notify_all();
}

bool LoopbackHub::hasLeft(int other, int rank) const {
  return left[size_t(other)] >= joined[size_t(rank)];
}

Kernel &LoopbackHub::getReduction(CudaDevice &device, DataType type, Reduction reduction,
                                  int inputs) {
  std::string name = getReduceName(type, reduction, inputs);
  std::unique_ptr<Kernel> &kernel = kernels[name];
  if (!kernel) {
    std::string text = makeReducePtx(type, reduction, inputs);
    kernel = device.loadKernel(name + ".ptx", std::as_bytes(std::span(text)), name);
  }
  return *kernel;
}
