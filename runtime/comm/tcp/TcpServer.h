//===- TcpServer.h - meeting point of several machines ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_TCP_TCPSERVER_H
#define GRIDLOOM_RUNTIME_COMM_TCP_TCPSERVER_H

#include "runtime/comm/Transport.h"
#include "runtime/comm/tcp/TcpMessage.h"

#include <list>
#include <map>
#include <thread>
#include <vector>

namespace gridloom::rt {

/// Rank 0's server, with its own thread: passes values between ranks, notifies all if one fails or
/// its connection ends, and keeps each rank's progress.
class TcpServer {
public:
  /// Listens only on the first address of `master` that is this machine's. Throws Unavailable if
  /// none is, or the port is taken.
  TcpServer(const std::string &master, std::string job, int size, const TransportOptions &options);
  /// Waits until all ranks have left or are silent, at most for the deadline.
  ~TcpServer();

private:
  struct Peer {
    std::unique_ptr<TcpConnection> connection;
    int rank = -1; // -1: no hello yet
    bool isGone = false;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now(), heard = begin;
  };
  struct Stored {
    std::string text;
    uint64_t readers = 0;
  };
  struct Waiting {
    Peer *peer;
    uint64_t id;
    int owner; // the rank that puts the value
  };

  void run();
  /// False if no descriptor is free, or the connection is gone already.
  bool accept();
  void dropStrangers();
  void greet(Peer &peer, const TcpMessage &hello);
  void handle(Peer &peer, const TcpMessage &message);
  void answer(Stored &stored, const Waiting &waiting);
  void failIfLeft(int owner);
  void fail(uint64_t code, int rank, const std::string &text);
  void ping();
  void drop(Peer &peer);
  bool isComplete() const;

  std::string job;
  int size;
  TransportOptions options;
  int listener = -1;
  int wake[2] = {-1, -1};
  std::list<Peer> peers;
  std::vector<bool> hasJoined, hasLeft;
  std::map<std::string, Stored> values;
  std::map<std::string, std::vector<Waiting>> waiting;
  std::map<std::pair<int, std::string>, uint64_t> progress;
  bool hasFailed = false;
  TcpMessage failure;
  bool isStopping = false;
  std::chrono::steady_clock::time_point stopBegin;
  std::thread thread;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_TCP_TCPSERVER_H
