//===- TcpMessage.h - messages between machines -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_TCP_TCPMESSAGE_H
#define GRIDLOOM_RUNTIME_COMM_TCP_TCPMESSAGE_H

#include "runtime/comm/Transport.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

struct addrinfo;

namespace gridloom::rt {

struct TcpMessage {
  enum Kind : uint32_t {
    Hello = 1, // rank; number: ranks of the job; key: the job
    Welcome,
    Refused, // text
    Put,     // key, text; number: of ranks that will get it
    Get,     // key; id: of the answer; number: the rank that puts it
    Value,   // id, text
    Fail,    // number: the error's code; rank: that reports it; text
    Publish, // rank; key: the communicator; number: progress
    Read,    // id, rank, key
    Count,   // id, number
    Bye,
    Ping,
    Left, // rank: has said Bye
  };
  Kind kind = Ping;
  int32_t rank = 0;
  uint64_t id = 0, number = 0;
  std::string key, text;
};

/// A connected socket and the bytes received of the next message.
class TcpConnection {
public:
  /// Takes ownership of the socket; the connection ends if the peer's machine does not answer for
  /// `options.silence`.
  TcpConnection(int fd, const TransportOptions &options);
  ~TcpConnection();
  TcpConnection(const TcpConnection &) = delete;
  TcpConnection &operator=(const TcpConnection &) = delete;

  int getFd() const { return fd; }
  /// False if the connection is gone.
  bool send(const TcpMessage &message);
  /// Reads what has arrived, without waiting; false if the connection is gone or the peer does not
  /// send our messages.
  bool receive();
  /// The next complete message that was received.
  std::optional<TcpMessage> next();

private:
  int fd;
  std::string received;
};

/// Resolves HOST:PORT. Retries an unknown name until `end`, and meanwhile calls `whileJoining`
/// unless it is null. Throws InvalidArgument or Unavailable.
std::shared_ptr<addrinfo> resolve(const std::string &master,
                                  std::chrono::steady_clock::time_point end,
                                  const std::function<void()> &whileJoining);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_TCP_TCPMESSAGE_H
