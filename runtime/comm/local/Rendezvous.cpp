//===- Rendezvous.cpp - share a segment by job name -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/local/Rendezvous.h"

#include "runtime/comm/local/Membership.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr uint64_t helloMagic = 0x32646c6f6c677267;

struct Hello {
  uint64_t magic;
  int32_t rank, size;
  int32_t pid, padding;
};

/// Carries the descriptor if `text`, the refusal, is empty.
struct Answer {
  char text[256];
};

class Socket {
public:
  explicit Socket(int fd) : fd(fd) {
    if (fd < 0)
      throw Error(ErrorCode::Unavailable, std::string("cannot open a socket: ") + strerror(errno));
  }
  ~Socket() { close(fd); }
  Socket(const Socket &) = delete;
  Socket &operator=(const Socket &) = delete;
  const int fd;
};

struct Address {
  sockaddr_un name{};
  socklen_t length;
  /// An abstract address needs no file. It includes the user and the job's name.
  explicit Address(const std::string &job) {
    uint64_t hash = 0xcbf29ce484222325;
    for (unsigned char c : job)
      hash = (hash ^ c) * 0x100000001b3;
    name.sun_family = AF_UNIX;
    int written = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "gridloom-%u-%016llx",
                           getuid(), static_cast<unsigned long long>(hash));
    length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(written));
  }
  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&name); }
};

} // namespace

static int openSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

/// The peer's credentials in this process's namespaces; nullopt for another user.
static std::optional<ucred> getSameUser(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.uid != getuid())
    return std::nullopt;
  return peer;
}

/// Waits until `fd` can be read or accepts; false at `end`.
static bool awaitInput(int fd, steady_clock::time_point end, const TransportOptions &options) {
  while (true) {
    if (options.whileJoining)
      options.whileJoining();
    auto left = std::chrono::duration_cast<milliseconds>(end - steady_clock::now()).count();
    if (left <= 0)
      return false;
    pollfd entry{fd, POLLIN, 0};
    int ready = poll(&entry, 1, int(std::min<int64_t>(left, 200)));
    if (ready > 0)
      return true;
    if (ready < 0 && errno != EINTR)
      return false;
  }
}

/// Reads exactly `bytes`; false if the peer closes or has not sent them by `end`.
static bool receiveAll(int fd, void *to, size_t bytes, steady_clock::time_point end,
                       const TransportOptions &options) {
  for (size_t done = 0; done < bytes;) {
    if (!awaitInput(fd, end, options))
      return false;
    ssize_t got = recv(fd, static_cast<char *>(to) + done, bytes - done, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (got <= 0)
      return false;
    done += size_t(got);
  }
  return true;
}

static void sendAnswer(int to, const std::string &text, int passedFd) {
  Answer answer{};
  memcpy(answer.text, text.data(), std::min(text.size(), sizeof answer.text - 1));
  iovec data{&answer, sizeof answer};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (text.empty()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &passedFd, sizeof(int));
  }
  while (sendmsg(to, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
    ; // ignore other failures: joining detects peers that left
}

static int receiveAnswer(int from, std::string &text, steady_clock::time_point end,
                         const TransportOptions &options) {
  Answer answer{};
  iovec data{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  int fd = -1;
  ssize_t got = 0;
  while (awaitInput(from, end, options)) {
    got = recvmsg(from, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got >= 0 || (errno != EINTR && errno != EAGAIN))
      break;
  }
  auto taken = size_t(std::max<ssize_t>(got, 0));
  if (got <= 0 || !receiveAll(from, reinterpret_cast<char *>(&answer) + taken,
                              sizeof answer - taken, end, options)) {
    text = "rank 0 closed the connection";
    return fd;
  }
  cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
  answer.text[sizeof answer.text - 1] = 0;
  text = answer.text;
  return fd;
}

/// The reason to refuse a peer; empty to accept it.
static std::string judge(const Hello &hello, const ucred &caller, int size,
                         const std::vector<bool> &seen) {
  if (hello.magic != helloMagic)
    return "another version of gridloom called; start all ranks with the same one";
  if (hello.size != size)
    return "rank " + std::to_string(hello.rank) + " believes in " + std::to_string(hello.size) +
           " ranks, rank 0 in " + std::to_string(size) + "; start all ranks alike";
  if (hello.rank < 1 || hello.rank >= size)
    return "rank " + std::to_string(hello.rank) + " is outside a job of " + std::to_string(size) +
           " ranks";
  if (seen[size_t(hello.rank)])
    return "two processes call themselves rank " + std::to_string(hello.rank);
  // Liveness is checked by process id, which is only valid in one pid namespace.
  if (hello.pid != caller.pid)
    return "rank " + std::to_string(hello.rank) + " is in another pid namespace: its process " +
           std::to_string(hello.pid) + " is " + std::to_string(caller.pid) +
           " to rank 0; start all ranks in one container, or share its process namespace";
  return "";
}

static std::shared_ptr<Segment> serve(const Address &address, const std::string &job, int size,
                                      const TransportOptions &options) {
  auto until = steady_clock::now() + options.deadline;
  Socket listener(openSocket());
  while (bind(listener.fd, address.get(), address.length) != 0) {
    if (errno != EADDRINUSE || steady_clock::now() > until)
      throw Error(ErrorCode::Unavailable, "cannot open the meeting place of job " + job + ": " +
                                              strerror(errno) +
                                              "; does another job of this name run?");
    if (options.whileJoining)
      options.whileJoining();
    std::this_thread::sleep_for(milliseconds(20));
  }
  if (listen(listener.fd, maxLocalRanks) != 0)
    throw Error(ErrorCode::Unavailable, std::string("cannot listen: ") + strerror(errno));

  std::shared_ptr<Segment> segment = Segment::create(size);
  std::vector<bool> seen(size_t(size), false);
  seen[0] = true;
  while (std::count(seen.begin(), seen.end(), false) != 0) {
    if (!awaitInput(listener.fd, until, options)) {
      std::vector<int> missing;
      for (int rank = 0; rank < size; ++rank)
        if (!seen[size_t(rank)])
          missing.push_back(rank);
      throw Error(ErrorCode::DeadlineExceeded, "job " + job + " is not complete after " +
                                                   std::to_string(options.deadline.count()) +
                                                   " ms; missing " + describeRanks(missing));
    }
    int accepted = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0)
      continue;
    Socket peer(accepted);
    Hello hello{};
    std::optional<ucred> caller = getSameUser(peer.fd);
    auto end = std::min(until, steady_clock::now() + milliseconds(2000)); // others wait behind it
    if (!caller || !receiveAll(peer.fd, &hello, sizeof hello, end, options))
      continue;
    std::string objection = judge(hello, *caller, size, seen);
    sendAnswer(peer.fd, objection, segment->getFd());
    if (!objection.empty())
      throw Error(ErrorCode::InvalidArgument, "job " + job + ": " + objection);
    seen[size_t(hello.rank)] = true;
  }
  return segment;
}

static std::shared_ptr<Segment> call(const Address &address, const std::string &job, int rank,
                                     int size, const TransportOptions &options) {
  auto until = steady_clock::now() + options.deadline;
  milliseconds pause(5);
  while (true) {
    if (options.whileJoining)
      options.whileJoining();
    Socket socket(openSocket());
    if (connect(socket.fd, address.get(), address.length) != 0) {
      if (steady_clock::now() > until)
        throw Error(ErrorCode::DeadlineExceeded,
                    "rank 0 of job " + job +
                        " did not come to the meeting place on this machine "
                        "within " +
                        std::to_string(options.deadline.count()) + " ms");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(50));
      continue;
    }
    Hello hello{helloMagic, rank, size, getpid(), 0};
    std::string objection;
    int fd = -1;
    if (!getSameUser(socket.fd))
      objection = "the meeting place belongs to another user";
    else if (::send(socket.fd, &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello))
      objection = "rank 0 closed the connection";
    else
      fd = receiveAnswer(socket.fd, objection, until + milliseconds(1000), options);
    if (fd < 0)
      throw Error(ErrorCode::InvalidArgument, "job " + job + ": " + objection);
    return Segment::adopt(fd);
  }
}

std::shared_ptr<Segment> gridloom::rt::meetAtSocket(const std::string &job, int rank, int size,
                                                    const TransportOptions &options) {
  if (rank < 0 || rank >= size)
    throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(rank) +
                                                " is outside a job of " + std::to_string(size) +
                                                " ranks");
  if (size == 1)
    return Segment::create(1);
  Address address(job);
  return rank == 0 ? serve(address, job, size, options) : call(address, job, rank, size, options);
}
