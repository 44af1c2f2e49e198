//===- TcpMessage.cpp - messages between machines -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/tcp/TcpMessage.h"

#include "runtime/core/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace gridloom::rt;

namespace {

/// Precedes each message, in native byte order: all ranks run the same build.
struct Header {
  uint64_t magic;
  uint32_t kind;
  int32_t rank;
  uint64_t id, number;
  uint32_t keyBytes, textBytes;
};

constexpr uint64_t magic = 0x32706374646c7267;
constexpr uint32_t longest = 1 << 20; // of a key or a text

void setOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof value);
}

} // namespace

TcpConnection::TcpConnection(int fd, const TransportOptions &options) : fd(fd) {
  int limit = int(std::max<int64_t>(options.liveness.count(), 100));
  setOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // The connection ends if the peer's machine does not acknowledge pings for this time. A stopped
  // process is not gone: its machine answers.
  setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, int(options.silence.count()));
  timeval patience{limit / 1000, long(limit % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

TcpConnection::~TcpConnection() { close(fd); }

bool TcpConnection::send(const TcpMessage &message) {
  Header header{magic,
                message.kind,
                message.rank,
                message.id,
                message.number,
                uint32_t(std::min<size_t>(message.key.size(), longest)),
                uint32_t(std::min<size_t>(message.text.size(), longest))};
  std::string bytes(reinterpret_cast<const char *>(&header), sizeof header);
  bytes.append(message.key, 0, header.keyBytes).append(message.text, 0, header.textBytes);
  for (size_t done = 0; done < bytes.size();) {
    ssize_t sent = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return false;
    done += size_t(sent);
  }
  return true;
}

bool TcpConnection::receive() {
  char buffer[65536];
  ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  received.append(buffer, size_t(got));
  if (got == 0)
    return false;
  Header header{};
  if (received.size() < sizeof header)
    return true;
  memcpy(&header, received.data(), sizeof header);
  return header.magic == magic && header.keyBytes <= longest && header.textBytes <= longest;
}

std::optional<TcpMessage> TcpConnection::next() {
  Header header{};
  if (received.size() < sizeof header)
    return std::nullopt;
  memcpy(&header, received.data(), sizeof header);
  size_t bytes = sizeof header + header.keyBytes + header.textBytes;
  if (header.magic != magic || received.size() < bytes)
    return std::nullopt;
  TcpMessage message{TcpMessage::Kind(header.kind),
                     header.rank,
                     header.id,
                     header.number,
                     received.substr(sizeof header, header.keyBytes),
                     received.substr(sizeof header + header.keyBytes, header.textBytes)};
  received.erase(0, bytes);
  return message;
}

std::shared_ptr<addrinfo> gridloom::rt::resolve(const std::string &master,
                                                std::chrono::steady_clock::time_point end,
                                                const std::function<void()> &whileJoining) {
  size_t colon = master.rfind(':');
  std::string host = master.substr(0, colon);
  if (host.empty() || colon == std::string::npos)
    throw Error(
        ErrorCode::InvalidArgument,
        "ranks on several machines need MASTER_ADDR and MASTER_PORT, an address of rank 0's "
        "machine and a free port of it; set both on all machines");
  if (host.front() == '[' && host.back() == ']') // an IPv6 address, as URLs have it
    host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo *found = nullptr;
  int problem = 0;
  while (true) {
    problem = getaddrinfo(host.c_str(), master.c_str() + colon + 1, &hints, &found);
    // The name of a service or pod may be created later than this process.
    bool mayCome = problem == EAI_AGAIN || problem == EAI_NONAME || problem == EAI_NODATA;
    if (!mayCome || std::chrono::steady_clock::now() >= end)
      break;
    if (whileJoining)
      whileJoining();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (problem != 0)
    throw Error(ErrorCode::Unavailable, "MASTER_ADDR=" + host +
                                            " is not an address: " + gai_strerror(problem) +
                                            "; give a name or number of rank 0's machine");
  return {found, freeaddrinfo};
}
