//===- Membership.cpp - one rank's place in a local job -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/Membership.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

static constexpr int sameProcess = -1;
static constexpr int goneBeforeOpen = -2;
static constexpr int withoutDescriptor = -3;

/// Whether a process has ended, zombies included, if the system has no descriptor for it.
static bool hasEnded(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  size_t name = text.rfind(')'); // the name may contain any character
  if (!file.is_open() || name == std::string::npos || name + 2 >= text.size())
    return kill(pid, 0) != 0 && errno == ESRCH;
  return text[name + 2] == 'Z' || text[name + 2] == 'X';
}

Membership::Membership(std::shared_ptr<Segment> segmentOfJob, int rank, TransportOptions options)
    : segment(std::move(segmentOfJob)), rank(rank), options(options),
      patience(Patience::forRanks(segment->getRanks())) {
  if (rank < 0 || rank >= getSize())
    throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(rank) +
                                                " is outside a job of " +
                                                std::to_string(getSize()) + " ranks");
  RankSlot &slot = segment->getRank(rank);
  slot.pid.store(getpid());
  epoch = slot.joins.get();
  slot.joins.advanceTo(epoch + 1);
}

Membership::~Membership() {
  for (int peer : peers)
    if (peer >= 0)
      close(peer);
  segment->getRank(rank).leaves.advanceTo(epoch + 1);
}

void Membership::awaitAll() {
  Operation operation{"joining the job", {}, "", ""};
  auto getMissing = [&] {
    std::vector<int> missing;
    for (int other = 0; other < getSize(); ++other)
      if (!segment->getRank(other).joins.hasReached(epoch + 1))
        missing.push_back(other);
    return missing;
  };
  for (int other = 0; other < getSize(); ++other)
    await(segment->getRank(other).joins, epoch + 1, operation, getMissing);
  isJoining = false;
  openPeers();
}

void Membership::openPeers() {
  peers.assign(size_t(getSize()), sameProcess);
  for (int other = 0; other < getSize(); ++other) {
    pid_t pid = segment->getRank(other).pid.load();
    if (pid == getpid())
      continue;
    int fd = int(syscall(SYS_pidfd_open, pid, 0));
    peers[size_t(other)] = fd >= 0 ? fd : errno == ESRCH ? goneBeforeOpen : withoutDescriptor;
  }
}

void Membership::check(const Operation &operation) {
  if (!segment->hasFailed())
    return;
  Failure failure = *segment->getFailure();
  std::string text = "rank " + std::to_string(rank) + " stopped in " + operation.describe();
  throw Error(text, Error(failure.code, failure.text));
}

void Membership::checkAll(const Operation &operation) {
  check(operation);
  if (std::vector<int> dead = findDead(); !dead.empty())
    failOf(dead, operation);
}

void Membership::fail(ErrorCode code, const std::string &text, const Operation &operation) {
  std::string full = "rank " + std::to_string(rank) + " in " + operation.describe() + ": " + text;
  if (!segment->fail(code, rank, full))
    check(operation);
  throw Error(code, full);
}

std::vector<int> Membership::findDead() const {
  std::vector<pollfd> polls;
  for (int peer : peers)
    polls.push_back({peer, POLLIN, 0}); // poll ignores negative descriptors
  std::vector<int> dead;
  if (polls.empty() || poll(polls.data(), polls.size(), 0) < 0)
    return dead;
  for (int other = 0; other < int(peers.size()); ++other) {
    int peer = peers[size_t(other)];
    bool gone = peer == goneBeforeOpen || polls[size_t(other)].revents != 0 ||
                (peer == withoutDescriptor && hasEnded(segment->getRank(other).pid.load()));
    if (gone && !segment->getRank(other).leaves.hasReached(epoch + 1))
      dead.push_back(other);
  }
  return dead;
}

void Membership::failOf(const std::vector<int> &dead, const Operation &operation) {
  std::string text = describeRanks(dead) + " died; gone: process";
  for (int other : dead)
    text += " " + std::to_string(segment->getRank(other).pid.load());
  fail(ErrorCode::PeerFailed, text, operation);
}

std::vector<int> Membership::findLeft(std::span<const int> ranks) const {
  std::vector<int> left;
  for (int other : ranks)
    if (other != rank && segment->getRank(other).leaves.hasReached(epoch + 1))
      left.push_back(other);
  return left;
}

void Membership::failOfLeft(const std::vector<int> &left, const Operation &operation) {
  fail(ErrorCode::PeerFailed,
       describeRanks(left) + (left.size() == 1 ? " has" : " have") +
           " left the job without taking part",
       operation);
}

void Membership::checkLeft(std::span<const int> ranks, const Operation &operation) {
  if (std::vector<int> left = findLeft(ranks); !left.empty())
    failOfLeft(left, operation);
}

void Membership::awaitSlowly(Counter &counter, uint32_t target, const Operation &operation,
                             const std::function<std::vector<int>()> &getMissing) {
  // Short enough for both time limits; a peer's advance wakes a sleeper sooner.
  milliseconds tick = std::min({milliseconds(20), options.liveness / 4, options.deadline / 4});
  tick = std::max(tick, milliseconds(1));
  steady_clock::duration waited{};
  auto last = steady_clock::now();
  while (!counter.hasReached(target)) {
    counter.sleepUntil(target, tick);
    if (counter.hasReached(target))
      return;
    if (isJoining && options.whileJoining)
      options.whileJoining();
    // Do not count time during which this rank itself was stopped.
    auto now = steady_clock::now();
    waited += std::min<steady_clock::duration>(now - last, tick + milliseconds(200));
    last = now;

    bool failed = segment->hasFailed();
    std::vector<int> dead = findDead();
    std::vector<int> missing = getMissing();
    std::vector<int> left = findLeft(missing);
    // A peer may have arrived just before it failed, died or left: the failure is then in a later
    // operation.
    if (counter.hasReached(target))
      return;
    if (failed)
      check(operation);
    if (!dead.empty())
      failOf(dead, operation);
    if (!left.empty())
      failOfLeft(left, operation);
    if (waited >= options.deadline)
      fail(ErrorCode::DeadlineExceeded,
           "no progress for " + std::to_string(options.deadline.count()) + " ms; missing " +
               describeRanks(missing) + "; give a longer timeout if they are only slow",
           operation);
  }
}
