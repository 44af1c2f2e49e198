//===- TcpServer.cpp - meeting point of several machines ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/tcp/TcpServer.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

static int listenAt(const std::string &master, const TransportOptions &options) {
  std::shared_ptr<addrinfo> addresses =
      resolve(master, steady_clock::now() + options.deadline, options.whileJoining);
  int reason = 0;
  for (const addrinfo *address = addresses.get(); address && reason != EADDRINUSE;
       address = address->ai_next) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1;
    if (fd >= 0) {
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    }
    if (fd >= 0 || reason == 0) // a machine without IPv6 has no sockets for such addresses
      reason = errno;
    if (fd >= 0)
      close(fd);
  }
  std::string advice = reason == EADDRNOTAVAIL ? "; MASTER_ADDR must be of rank 0's machine"
                       : reason == EADDRINUSE  ? "; choose another MASTER_PORT"
                                               : "";
  throw Error(ErrorCode::Unavailable,
              "rank 0 cannot listen at " + master + ": " + strerror(reason) + advice);
}

TcpServer::TcpServer(const std::string &master, std::string jobName, int size,
                     const TransportOptions &options)
    : job(std::move(jobName)), size(size), options(options), listener(listenAt(master, options)),
      hasJoined(size_t(size), false), hasLeft(size_t(size), false) {
  if (pipe2(wake, O_CLOEXEC) != 0) {
    close(listener);
    throw Error(ErrorCode::Unavailable, std::string("cannot make a pipe: ") + strerror(errno));
  }
  thread = std::thread([this] { run(); });
}

TcpServer::~TcpServer() {
  close(wake[1]);
  thread.join();
  close(wake[0]);
  close(listener);
}

/// Whether no rank needs the server any more: each has left, did not join in time, or has not been
/// heard for seconds. Such a rank is stopped or cut off; rank 0 does not wait for it.
bool TcpServer::isComplete() const {
  milliseconds longestUnheard = std::max(options.silence, milliseconds(5000));
  auto now = steady_clock::now();
  bool mayJoin = now < stopBegin + std::min(options.deadline, milliseconds(1000));
  for (int rank = 0; rank < size; ++rank)
    if (!hasLeft[size_t(rank)] && !hasJoined[size_t(rank)] && mayJoin)
      return false;
  return std::none_of(peers.begin(), peers.end(), [&](const Peer &peer) {
    return peer.rank >= 0 && !hasLeft[size_t(peer.rank)] && now - peer.heard < longestUnheard;
  });
}

/// Detects machines that are cut off: they do not acknowledge pings.
void TcpServer::ping() {
  for (Peer &peer : peers)
    if (peer.rank >= 0 && !peer.connection->send({TcpMessage::Ping, 0, 0, 0, "", ""}))
      drop(peer);
}

void TcpServer::run() {
  std::vector<pollfd> polls;
  milliseconds tick = std::clamp(options.liveness / 4, milliseconds(10), milliseconds(250));
  auto nextPing = steady_clock::now(), nextAccept = nextPing;
  // After a failure the others only need to receive it.
  auto getPatience = [&] {
    return hasFailed ? std::min(options.deadline, milliseconds(1000)) : options.deadline;
  };
  while (!isStopping || (!isComplete() && steady_clock::now() < stopBegin + getPatience())) {
    bool accepts = steady_clock::now() >= nextAccept;
    polls.assign({{accepts ? listener : -1, POLLIN, 0}, {isStopping ? -1 : wake[0], POLLIN, 0}});
    for (const Peer &peer : peers)
      polls.push_back({peer.connection->getFd(), POLLIN, 0});
    poll(polls.data(), polls.size(), int(tick.count()));
    if (polls[1].revents) { // the destructor has closed the other end
      isStopping = true;
      stopBegin = steady_clock::now();
    }
    size_t index = 2;
    for (Peer &peer : peers) {
      if (polls[index++].revents == 0)
        continue;
      bool isOpen = peer.connection->receive();
      peer.heard = steady_clock::now();
      while (std::optional<TcpMessage> message =
                 peer.isGone ? std::nullopt : peer.connection->next())
        peer.rank < 0 ? greet(peer, *message) : handle(peer, *message);
      if (!isOpen)
        drop(peer);
    }
    if (steady_clock::now() >= nextPing) {
      ping();
      nextPing = steady_clock::now() + tick;
    }
    dropStrangers();
    std::erase_if(peers, [](const Peer &peer) { return peer.isGone; });
    // Without a free descriptor the listener stays readable.
    if (polls[0].revents && !accept())
      nextAccept = steady_clock::now() + tick;
  }
}

bool TcpServer::accept() {
  int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0)
    peers.push_back({std::make_unique<TcpConnection>(fd, options)});
  return fd >= 0;
}

/// Drops connections that do not say who they are, the oldest ones first if they are many: they
/// take descriptors from the job.
void TcpServer::dropStrangers() {
  constexpr int spare = 64; // beside all ranks at once
  int most = size + spare;
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    if (peer->rank < 0 && (--most < 0 || steady_clock::now() - peer->begin > options.silence))
      peer->isGone = true;
}

/// Refuses a foreign connection; the job continues.
void TcpServer::greet(Peer &peer, const TcpMessage &hello) {
  std::string objection;
  if (hello.kind != TcpMessage::Hello || hello.key != job)
    objection = "this is the meeting place of another job";
  else if (hello.number != uint64_t(size))
    objection = "rank " + std::to_string(hello.rank) + " believes in " +
                std::to_string(hello.number) + " ranks, rank 0 in " + std::to_string(size) +
                "; start all ranks alike";
  else if (hello.rank < 0 || hello.rank >= size)
    objection = "rank " + std::to_string(hello.rank) + " is outside a job of " +
                std::to_string(size) + " ranks";
  else if (hasJoined[size_t(hello.rank)])
    objection = "two processes call themselves rank " + std::to_string(hello.rank);
  if (!objection.empty()) {
    peer.connection->send({TcpMessage::Refused, 0, 0, 0, "", objection});
    peer.isGone = true;
    return;
  }
  peer.rank = hello.rank;
  hasJoined[size_t(hello.rank)] = true;
  peer.connection->send({TcpMessage::Welcome, 0, 0, 0, "", ""});
  if (hasFailed)
    peer.connection->send(failure);
}

void TcpServer::handle(Peer &peer, const TcpMessage &message) {
  switch (message.kind) {
  case TcpMessage::Put: {
    Stored &stored = values[message.key];
    stored = {message.text, message.number};
    for (const Waiting &each : std::exchange(waiting[message.key], {}))
      answer(stored, each);
    waiting.erase(message.key);
    if (stored.readers == 0)
      values.erase(message.key);
    break;
  }
  case TcpMessage::Get: {
    auto found = values.find(message.key);
    if (found == values.end()) {
      int owner = int(message.number);
      waiting[message.key].push_back({&peer, message.id, owner});
      failIfLeft(owner);
      break;
    }
    answer(found->second, {&peer, message.id, 0});
    if (found->second.readers == 0)
      values.erase(found);
    break;
  }
  case TcpMessage::Fail:
    fail(message.number, peer.rank, message.text);
    break;
  case TcpMessage::Publish:
    progress[{peer.rank, message.key}] = message.number;
    break;
  case TcpMessage::Read: {
    auto found = progress.find({message.rank, message.key});
    uint64_t count = found == progress.end() ? 0 : found->second;
    peer.connection->send({TcpMessage::Count, message.rank, message.id, count, "", ""});
    break;
  }
  case TcpMessage::Bye:
    hasLeft[size_t(peer.rank)] = true;
    for (Peer &other : peers)
      if (other.rank >= 0 && &other != &peer && !other.isGone)
        other.connection->send({TcpMessage::Left, peer.rank, 0, 0, "", ""});
    failIfLeft(peer.rank);
    break;
  default:
    break;
  }
}

void TcpServer::answer(Stored &stored, const Waiting &to) {
  to.peer->connection->send({TcpMessage::Value, 0, to.id, 0, "", stored.text});
  --stored.readers;
}

/// Fails the job if a rank waits for a value of a rank that has left: it would wait for ever.
void TcpServer::failIfLeft(int owner) {
  if (owner < 0 || owner >= size || !hasLeft[size_t(owner)])
    return;
  for (const auto &[key, list] : waiting)
    for (const Waiting &each : list)
      if (each.owner == owner)
        return fail(uint64_t(ErrorCode::PeerFailed), /*rank=*/0,
                    "rank " + std::to_string(owner) + " has left the job without taking part in " +
                        key);
}

void TcpServer::fail(uint64_t code, int rank, const std::string &text) {
  if (hasFailed)
    return;
  hasFailed = true;
  failure = {TcpMessage::Fail, rank, 0, code, "", text};
  for (Peer &peer : peers)
    if (peer.rank >= 0 && !peer.isGone)
      peer.connection->send(failure);
}

void TcpServer::drop(Peer &peer) {
  peer.isGone = true;
  for (auto &[key, list] : waiting)
    std::erase_if(list, [&](const Waiting &each) { return each.peer == &peer; });
  if (peer.rank < 0)
    return;
  if (!hasLeft[size_t(peer.rank)])
    fail(uint64_t(ErrorCode::PeerFailed), /*rank=*/0, // reported by rank 0
         "rank " + std::to_string(peer.rank) + " died; gone: its connection");
  hasLeft[size_t(peer.rank)] = true;
}
