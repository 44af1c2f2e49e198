//===- TcpTransport.cpp - ranks of several machines -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/comm/tcp/TcpTransport.h"

#include "runtime/comm/Call.h"
#include "runtime/comm/tcp/TcpServer.h"
#include "runtime/core/Error.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// This rank's connection to rank 0's server: one thread receives, any thread may send.
class Client {
public:
  Client(int fd, int rank, const TransportOptions &options)
      : connection(fd, options), rank(rank), options(options) {}
  ~Client();

  /// Sends Hello and waits for the answer.
  void join(const std::string &master, const std::string &job, int size);
  void send(const TcpMessage &message);
  /// Sends a request and waits for the answer; nothing after `limit`. Throws if the job fails
  /// meanwhile, unless `always`.
  std::optional<TcpMessage> ask(TcpMessage message, milliseconds limit, bool always);
  void check(const std::string &where);
  void checkAwaited(std::span<const int> ranks, const std::string &where);
  void publish(const std::string &communicator, uint64_t count);
  std::optional<int> getFailedRank();
  const TransportOptions &getOptions() const { return options; }
  /// Called when all ranks have joined.
  void endJoining() { options.whileJoining = nullptr; }
  int getRank() const { return rank; }

private:
  void run();
  void take(const TcpMessage &message);
  void note(ErrorCode code, int whose, const std::string &text);
  void throwIfFailed(const std::string &where) const;

  TcpConnection connection;
  int rank;
  TransportOptions options;
  std::mutex sending;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint64_t, TcpMessage> answers;
  std::map<std::string, uint64_t> unpublished;
  uint64_t lastId = 0;
  std::optional<Error> failure;
  int failedRank = -1;
  std::set<int> left; // properly
  bool isStopping = false;
  std::thread thread;
};

class Board final : public ProgressBoard {
public:
  explicit Board(std::shared_ptr<Client> client) : client(std::move(client)) {}
  void publish(int, const std::string &communicator, uint64_t count) override {
    client->publish(communicator, count);
  }
  std::optional<uint64_t> read(int rank, const std::string &communicator) override {
    auto answer = client->ask({TcpMessage::Read, rank, 0, 0, communicator, ""}, milliseconds(500),
                              /*always=*/true);
    return answer ? std::optional(answer->number) : std::nullopt;
  }

private:
  std::shared_ptr<Client> client;
};

class TcpTransport final : public Transport {
public:
  TcpTransport(std::unique_ptr<TcpServer> server, std::shared_ptr<Client> client, int size)
      : server(std::move(server)), client(std::move(client)), size(size) {}
  ~TcpTransport() override { client->send({TcpMessage::Bye, getRank(), 0, 0, "", ""}); }

  std::string getName() const override { return "tcp"; }
  int getRank() const override { return client->getRank(); }
  int getSize() const override { return size; }
  std::unique_ptr<Communicator> createCommunicator(std::span<const int>,
                                                   const std::string &) override {
    throw Error(ErrorCode::Unavailable,
                "CPU ranks are joined on one machine only; start all " + std::to_string(size) +
                    " ranks on one, or compile with --target cuda:sm_90 for NCCL");
  }
  void abort(const std::string &reason) override {
    client->send({TcpMessage::Fail, getRank(), 0, uint64_t(ErrorCode::PeerFailed), "",
                  "rank " + std::to_string(getRank()) + " gave up: " + reason});
  }
  void share(std::span<std::byte> bytes, std::span<const int> ranks,
             const std::string &name) override;
  void gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  void check() override { client->check("communication"); }
  void checkAwaited(std::span<const int> ranks) override {
    client->checkAwaited(ranks, "communication");
  }
  std::optional<int> getFailedRank() override { return client->getFailedRank(); }
  std::shared_ptr<ProgressBoard> getProgressBoard() override {
    return std::make_shared<Board>(client);
  }

private:
  std::unique_ptr<TcpServer> server; // on rank 0; outlives its client
  std::shared_ptr<Client> client;
  int size;
  std::map<std::string, int> generations;
};

} // namespace

//===----------------------------------------------------------------------===//
// Client
//===----------------------------------------------------------------------===//

Client::~Client() {
  {
    std::lock_guard lock(mutex);
    isStopping = true;
  }
  shutdown(connection.getFd(), SHUT_RDWR);
  if (thread.joinable())
    thread.join();
}

void Client::join(const std::string &master, const std::string &job, int size) {
  connection.send({TcpMessage::Hello, rank, 0, uint64_t(size), job, ""});
  auto end = steady_clock::now() + options.deadline;
  while (true) {
    if (options.whileJoining)
      options.whileJoining();
    pollfd entry{connection.getFd(), POLLIN, 0};
    poll(&entry, 1, 100);
    bool isOpen = entry.revents == 0 || connection.receive();
    if (std::optional<TcpMessage> message = connection.next()) {
      if (message->kind == TcpMessage::Welcome)
        break;
      throw Error(ErrorCode::InvalidArgument,
                  "job " + job + " at " + master + ": " + message->text);
    }
    if (!isOpen || steady_clock::now() > end)
      throw Error(ErrorCode::Unavailable, "what listens at " + master +
                                              " is not rank 0 of this job; choose another "
                                              "MASTER_PORT");
  }
  thread = std::thread([this] { run(); });
}

void Client::run() {
  milliseconds tick = std::clamp(options.liveness / 4, milliseconds(10), milliseconds(250));
  auto nextPing = steady_clock::now();
  while (true) {
    pollfd entry{connection.getFd(), POLLIN, 0};
    poll(&entry, 1, int(tick.count()));
    bool isOpen = entry.revents == 0 || connection.receive();
    while (std::optional<TcpMessage> message = connection.next())
      take(*message);
    std::map<std::string, uint64_t> news;
    {
      std::lock_guard lock(mutex);
      if (isStopping)
        return;
      if (!isOpen)
        break;
      news.swap(unpublished);
    }
    for (const auto &[name, count] : news)
      send({TcpMessage::Publish, rank, 0, count, name, ""});
    if (steady_clock::now() >= nextPing) {
      send({TcpMessage::Ping, rank, 0, 0, "", ""});
      nextPing = steady_clock::now() + tick;
    }
  }
  note(ErrorCode::PeerFailed, rank, "rank 0 died; gone: its connection");
}

void Client::take(const TcpMessage &message) {
  if (message.kind == TcpMessage::Fail)
    return note(ErrorCode(message.number), message.rank, message.text);
  if (message.kind == TcpMessage::Ping)
    return;
  std::lock_guard lock(mutex);
  if (message.kind == TcpMessage::Left) {
    left.insert(message.rank);
    return;
  }
  answers[message.id] = message;
  changed.notify_all();
}

void Client::note(ErrorCode code, int whose, const std::string &text) {
  std::lock_guard lock(mutex);
  if (!failure) {
    failure.emplace(code, text);
    failedRank = whose;
  }
  changed.notify_all();
}

void Client::throwIfFailed(const std::string &where) const {
  if (failure)
    throw Error("rank " + std::to_string(rank) + " stopped in " + where, *failure);
}

void Client::check(const std::string &where) {
  std::lock_guard lock(mutex);
  throwIfFailed(where);
}

void Client::checkAwaited(std::span<const int> ranks, const std::string &where) {
  std::lock_guard lock(mutex);
  throwIfFailed(where);
  for (int other : ranks)
    if (left.count(other))
      throw Error(ErrorCode::PeerFailed, "rank " + std::to_string(rank) + " stopped in " + where +
                                             ": rank " + std::to_string(other) +
                                             " has left the job without taking part");
}

std::optional<int> Client::getFailedRank() {
  std::lock_guard lock(mutex);
  return failure ? std::optional(failedRank) : std::nullopt;
}

void Client::publish(const std::string &communicator, uint64_t count) {
  std::lock_guard lock(mutex);
  unpublished[communicator] = count;
}

void Client::send(const TcpMessage &message) {
  std::lock_guard lock(sending);
  connection.send(message);
}

std::optional<TcpMessage> Client::ask(TcpMessage message, milliseconds limit, bool always) {
  const std::string where = "waiting for " + message.key;
  {
    std::lock_guard lock(mutex);
    message.id = ++lastId;
  }
  uint64_t id = message.id;
  send(message);
  auto end = steady_clock::now() + limit;
  std::unique_lock lock(mutex);
  while (!answers.count(id)) {
    if (!always)
      throwIfFailed(where);
    if (steady_clock::now() >= end)
      return std::nullopt;
    if (!options.whileJoining) {
      changed.wait_until(lock, end);
      continue;
    }
    changed.wait_until(lock, std::min(end, steady_clock::now() + milliseconds(100)));
    lock.unlock();
    options.whileJoining();
    lock.lock();
  }
  TcpMessage answer = std::move(answers[id]);
  answers.erase(id);
  return answer;
}

//===----------------------------------------------------------------------===//
// TcpTransport
//===----------------------------------------------------------------------===//

void TcpTransport::share(std::span<std::byte> bytes, std::span<const int> ranks,
                         const std::string &name) {
  std::string key = describeGroup(ranks, name);
  key += " #" + std::to_string(generations[key]++);
  if (ranks.front() == getRank()) {
    std::string text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    if (ranks.size() > 1)
      client->send({TcpMessage::Put, getRank(), 0, ranks.size() - 1, key, text});
    return;
  }
  milliseconds limit = client->getOptions().deadline;
  auto answer =
      client->ask({TcpMessage::Get, getRank(), 0, uint64_t(ranks.front()), key, ""}, limit,
                  /*always=*/false);
  if (!answer) {
    std::string text = "rank " + std::to_string(getRank()) + " waited " +
                       std::to_string(limit.count()) + " ms for " + key + "; missing " +
                       describeRanks(ranks.subspan(0, 1));
    abort(text);
    throw Error(ErrorCode::DeadlineExceeded, text);
  }
  if (answer->text.size() != bytes.size())
    throw Error(ErrorCode::Internal, key + " has " + std::to_string(answer->text.size()) +
                                         " bytes, not " + std::to_string(bytes.size()));
  memcpy(bytes.data(), answer->text.data(), bytes.size());
}

void TcpTransport::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  for (int from = 0; from < size; ++from) {
    std::vector<int> ranks = {from};
    for (int rank = 0; rank < size; ++rank)
      if (rank != from)
        ranks.push_back(rank);
    std::span<std::byte> part = all.subspan(size_t(from) * mine.size(), mine.size());
    if (from == getRank())
      std::copy(mine.begin(), mine.end(), part.begin());
    share(part, ranks, "gather");
  }
}

/// A connected, blocking socket, or -1 and the reason in errno. Waits at most until `end`: connect
/// itself would take minutes if packets are dropped.
static int tryConnect(const addrinfo &address, steady_clock::time_point end,
                      const std::function<void()> &whileJoining) {
  int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -1;
  int problem = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  while (problem == EINPROGRESS || problem == EINTR) {
    if (whileJoining) {
      try {
        whileJoining();
      } catch (...) {
        close(fd);
        throw;
      }
    }
    auto left = std::chrono::ceil<milliseconds>(end - steady_clock::now()).count();
    pollfd entry{fd, POLLOUT, 0};
    int ready = left > 0 ? poll(&entry, 1, int(std::min<int64_t>(left, 200))) : 0;
    if (left <= 0)
      problem = ETIMEDOUT;
    else if (ready > 0) {
      socklen_t size = sizeof problem;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size);
      break;
    }
  }
  if (problem == 0 && fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0)
    return fd;
  close(fd);
  errno = problem;
  return -1;
}

/// Whether the host of "host:port" is an address, not a name: names have letters and no colons.
static bool isNumber(const std::string &master) {
  std::string host = master.substr(0, master.rfind(':'));
  return host.find(':') != std::string::npos ||
         host.find_first_not_of("0123456789.") == std::string::npos;
}

static int connectTo(const std::string &master, const TransportOptions &options) {
  auto end = steady_clock::now() + options.deadline;
  std::shared_ptr<addrinfo> addresses = resolve(master, end, options.whileJoining);
  int reason = 0;
  while (true) {
    for (const addrinfo *address = addresses.get(); address; address = address->ai_next) {
      // Several take turns: packets to one may be dropped.
      auto limit =
          addresses->ai_next ? std::min(end, steady_clock::now() + milliseconds(2000)) : end;
      int fd = tryConnect(*address, limit, options.whileJoining);
      if (fd >= 0)
        return fd;
      // A refusal says more than that there is no way to another address, and all else more than
      // that the last attempt had no time.
      if (reason != ECONNREFUSED && (reason == 0 || errno != ETIMEDOUT))
        reason = errno;
    }
    if (steady_clock::now() > end)
      throw Error(ErrorCode::DeadlineExceeded,
                  "rank 0 was not to be reached at " + master + " within " +
                      std::to_string(options.deadline.count()) + " ms: " + strerror(reason) +
                      (reason != ECONNREFUSED ? "; is MASTER_ADDR reachable, and its port open?"
                       : isNumber(master)
                           ? "; is rank 0 running, with the same MASTER_ADDR and MASTER_PORT?"
                           : "; rank 0 may have found another address for that name, such as "
                             "127.0.1.1 in its /etc/hosts; set MASTER_ADDR to an IP address"));
    if (options.whileJoining)
      options.whileJoining();
    std::this_thread::sleep_for(milliseconds(50));
  }
}

std::unique_ptr<Transport> gridloom::rt::joinTcpTransport(const std::string &master,
                                                          const std::string &job, int rank,
                                                          int size,
                                                          const TransportOptions &options) {
  if (rank < 0 || rank >= size)
    throw Error(ErrorCode::InvalidArgument, "rank " + std::to_string(rank) +
                                                " is outside a job of " + std::to_string(size) +
                                                " ranks");
  std::unique_ptr<TcpServer> server;
  if (rank == 0)
    server = std::make_unique<TcpServer>(master, job, size, options);
  auto client = std::make_shared<Client>(connectTo(master, options), rank, options);
  client->join(master, job, size);
  Client &joined = *client;
  auto transport = std::make_unique<TcpTransport>(std::move(server), std::move(client), size);
  // After a gather all ranks have joined.
  std::byte here{1};
  std::vector<std::byte> all(static_cast<size_t>(size));
  transport->gather({&here, 1}, all);
  joined.endJoining();
  return transport;
}
