//===- TcpTransportTest.cpp - ranks on several machines -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The machines are processes that talk over 127.0.0.1. test/python/test_machines.py runs whole
// plans this way, and between network namespaces.
//
//===----------------------------------------------------------------------===//
#include "TransportHarness.h"

#include "runtime/comm/tcp/TcpTransport.h"

#include <gmock/gmock.h>

#include <arpa/inet.h>
#include <atomic>
#include <fstream>
#include <netinet/in.h>
#include <new>
#include <sstream>
#include <sys/mman.h>
#include <sys/socket.h>
#include <utility>

using namespace gridloom::rt;
using namespace gridloom::rt::test;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

namespace {

/// A port that is currently free.
int findPort() {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0)
    throw std::runtime_error("no free port");
  close(fd);
  return ntohs(address.sin_port);
}

std::string makeMaster(int port) { return "127.0.0.1:" + std::to_string(port); }

std::vector<Outcome> runJob(int n, const Body &body, const JobOptions &options = {},
                            int port = findPort()) {
  return runForked(n, options, body, [&](int rank) {
    return joinTcpTransport(makeMaster(port), "job", rank, n, options.transport);
  });
}

std::vector<int> getAll(const Transport &transport) {
  std::vector<int> ranks;
  for (int rank = 0; rank < transport.getSize(); ++rank)
    ranks.push_back(rank);
  return ranks;
}

void share(Transport &transport, std::span<const int> ranks, int round) {
  std::string value = "of rank " + std::to_string(ranks.front()) + " in round " +
                      std::to_string(round) + std::string(200, '.');
  std::string bytes = transport.getRank() == ranks.front() ? value : std::string(value.size(), ' ');
  transport.share(std::as_writable_bytes(std::span(bytes)), ranks, "id");
  if (bytes != value)
    throw std::runtime_error("got '" + bytes + "'");
}

/// Calls check() until it throws, for at most 18 s.
void checkUntilFailed(Transport &transport) {
  auto end = std::chrono::steady_clock::now() + 18s;
  while (std::chrono::steady_clock::now() < end) {
    transport.check();
    std::this_thread::sleep_for(5ms);
  }
  throw std::runtime_error("nothing was noticed");
}

/// A flag that forked processes share.
class SharedFlag {
public:
  SharedFlag()
      : flag(new (mmap(nullptr, sizeof *flag, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                       -1, 0)) std::atomic<bool>(false)) {}
  ~SharedFlag() { munmap(flag, sizeof *flag); }
  void raise() { *flag = true; }
  void await() const {
    while (!*flag)
      std::this_thread::sleep_for(5ms);
  }

private:
  std::atomic<bool> *flag;
};

} // namespace

TEST(TcpTransportTest, ValuesAreShared) {
  EXPECT_THAT(runJob(5,
                     [](Transport &transport) {
                       for (int round = 0; round < 20; ++round)
                         share(transport, getAll(transport), round);
                       int low = transport.getRank() / 2 * 2;
                       std::vector<int> pair = {low, low + 1};
                       if (low < 4)
                         share(transport, pair, 0);
                     }),
              Each(Outcome{}));
}

TEST(TcpTransportTest, KilledRankIsNoticedByAll) {
  for (int victim : {0, 2}) {
    auto begin = std::chrono::steady_clock::now();
    std::vector<Outcome> outcomes = runJob(4, [&](Transport &transport) {
      share(transport, getAll(transport), 0);
      if (transport.getRank() == victim)
        raise(SIGKILL);
      checkUntilFailed(transport);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s); // the deadline is 20
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim)
        continue;
      EXPECT_EQ(outcomes[size_t(rank)].code, int(ErrorCode::PeerFailed));
      EXPECT_THAT(outcomes[size_t(rank)].text,
                  HasSubstr("rank " + std::to_string(victim) + " died"));
    }
  }
}

TEST(TcpTransportTest, AbortIsTold) {
  std::vector<Outcome> outcomes = runJob(3, [](Transport &transport) {
    share(transport, getAll(transport), 0);
    if (transport.getRank() == 1)
      transport.abort("all_reduce #7 (onnx node /MatMul) failed");
    try {
      checkUntilFailed(transport);
    } catch (const Error &) {
      if (transport.getFailedRank() != 1)
        throw std::runtime_error("another rank");
      throw;
    }
  });
  EXPECT_THAT(outcomes,
              Each(testing::Field(&Outcome::text, AllOf(HasSubstr("rank 1 gave up: all_reduce #7"),
                                                        HasSubstr("onnx node /MatMul")))));
}

TEST(TcpTransportTest, ProgressIsSeen) {
  EXPECT_THAT(runJob(3,
                     [](Transport &transport) {
                       auto board = transport.getProgressBoard();
                       int rank = transport.getRank();
                       for (uint64_t count = 1; count <= 50; ++count)
                         board->publish(rank, "world", count * 10 + uint64_t(rank));
                       for (int peer = 0; peer < 3; ++peer) {
                         uint64_t wanted = 500 + uint64_t(peer);
                         for (int i = 0; i < 3000 && board->read(peer, "world") != wanted; ++i)
                           std::this_thread::sleep_for(5ms);
                         if (board->read(peer, "world") != wanted)
                           throw std::runtime_error("not seen");
                         if (board->read(peer, "other") != 0)
                           throw std::runtime_error("seen");
                       }
                       share(transport, getAll(transport), 0);
                     }),
              Each(Outcome{}));
}

TEST(TcpTransportTest, OnlyTheMastersAddressListens) {
  int port = findPort();
  EXPECT_THAT(
      runJob(
          2,
          [&](Transport &transport) {
            char hex[8];
            snprintf(hex, sizeof hex, ":%04X", unsigned(port));
            for (const char *name : {"/proc/net/tcp", "/proc/net/tcp6"}) {
              std::ifstream file(name);
              for (std::string line, number, local, peer, state; std::getline(file, line);) {
                std::stringstream(line) >> number >> local >> peer >> state;
                if (state == "0A" && local.ends_with(hex) && local != "0100007F" + std::string(hex))
                  throw std::runtime_error("listens at " + local);
              }
            }
            share(transport, getAll(transport), 0);
          },
          {}, port),
      Each(Outcome{}));
}

TEST(TcpTransportTest, StrangersAreTurnedAway) {
  int port = findPort();
  SharedFlag over; // the job runs until the strangers have connected
  JobOptions options;
  options.beside = [&](const std::vector<pid_t> &) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::vector<int> sockets;
    for (int i = 0; i < 40; ++i) {
      int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockets.push_back(fd);
      if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0) {
        std::string noise(size_t(i) * 100, char('A' + i));
        (void)send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
      }
      usleep(10000);
    }
    for (int fd : sockets)
      close(fd);
    try {
      joinTcpTransport(makeMaster(port), "another job", 1, 3, {10000ms, 1000ms});
      ADD_FAILURE() << "another job was let in";
    } catch (const Error &error) {
      EXPECT_THAT(error.what(), HasSubstr("meeting place of another job"));
    }
    over.raise();
  };
  EXPECT_THAT(runJob(
                  3,
                  [&](Transport &transport) {
                    for (int round = 0; round < 40; ++round) {
                      share(transport, getAll(transport), round);
                      std::this_thread::sleep_for(10ms);
                    }
                    over.await();
                    share(transport, getAll(transport), 40);
                  },
                  options, port),
              Each(Outcome{}));
}

TEST(TcpTransportTest, SilentStrangersAreDropped) {
  int port = findPort();
  SharedFlag over;
  JobOptions options;
  options.transport.silence = 1000ms;
  options.beside = [&](const std::vector<pid_t> &) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval patience{15, 0};
    int fd = -1;
    for (int i = 0; i < 1000 && fd < 0; ++i) { // until rank 0 listens
      fd = socket(AF_INET, SOCK_STREAM, 0);
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) {
        close(std::exchange(fd, -1));
        usleep(10000);
      }
    }
    char answer = 0;
    EXPECT_EQ(recv(fd, &answer, 1, 0), 0); // closed
    close(fd);
    over.raise();
  };
  EXPECT_THAT(runJob(
                  2,
                  [&](Transport &transport) {
                    over.await();
                    share(transport, getAll(transport), 0);
                  },
                  options, port),
              Each(Outcome{}));
}

TEST(TcpTransportTest, DisagreementAndAbsenceAreNamed) {
  int port = findPort();
  JobOptions options;
  options.transport.deadline = 3000ms;
  std::vector<Outcome> outcomes = runForked(
      3, options, [](Transport &) {},
      [&](int rank) -> std::unique_ptr<Transport> {
        if (rank == 2)
          throw std::runtime_error("does not come");
        return joinTcpTransport(makeMaster(port), "job", rank, 3, options.transport);
      });
  for (int rank : {0, 1}) {
    EXPECT_THAT(outcomes[size_t(rank)].text, HasSubstr("rank 2")) << rank;
    EXPECT_NE(outcomes[size_t(rank)].code, 0);
  }
  port = findPort();
  outcomes = runForked(
      2, options, [](Transport &) {},
      [&](int rank) {
        return joinTcpTransport(makeMaster(port), "job", rank, 2 + rank, options.transport);
      });
  EXPECT_THAT(outcomes[1].text, HasSubstr("rank 1 believes in 3 ranks, rank 0 in 2"));
}

TEST(TcpTransportTest, WrongMastersAreOneLine) {
  auto messageOf = [](const std::string &master) {
    try {
      joinTcpTransport(master, "job", 0, 2, {300ms, 100ms});
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(messageOf(""), HasSubstr("need MASTER_ADDR and MASTER_PORT"));
  EXPECT_THAT(messageOf("192.0.2.1:29500"), HasSubstr("MASTER_ADDR must be of rank 0's machine"));
  EXPECT_THAT(messageOf("[192.0.2.1]:29500"), HasSubstr("must be of rank 0's machine"));
  int port = findPort();
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_THAT(messageOf(makeMaster(port)), HasSubstr("choose another MASTER_PORT"));
  close(fd);
}

/// If a rank leaves normally while others need it, they stop waiting, before or after it leaves.
TEST(TcpTransportTest, ARankThatLeftIsNotWaitedFor) {
  for (auto pause : {0ms, 500ms}) {
    auto begin = std::chrono::steady_clock::now();
    std::vector<Outcome> outcomes = runJob(3, [&](Transport &transport) {
      share(transport, getAll(transport), 0);
      if (transport.getRank() == 1)
        return;
      std::this_thread::sleep_for(pause); // before or after rank 1 has left
      std::vector<int> ranks = {1, 0, 2};
      share(transport, ranks, 1);
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
    EXPECT_EQ(outcomes[1], Outcome{});
    for (int rank : {0, 2})
      EXPECT_THAT(outcomes[size_t(rank)].text,
                  HasSubstr("rank 1 has left the job without taking part in"));
  }
}

TEST(TcpTransportTest, WhoWaitsForARankHearsThatItLeft) {
  std::vector<Outcome> outcomes = runJob(2, [](Transport &transport) {
    share(transport, getAll(transport), 0);
    if (transport.getRank() == 1)
      return;
    std::vector<int> other = {1}, none;
    auto end = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < end) {
      transport.check(); // leaving alone is no failure
      transport.checkAwaited(none);
      transport.checkAwaited(other);
      std::this_thread::sleep_for(5ms);
    }
  });
  EXPECT_THAT(outcomes[0].text, HasSubstr("rank 1 has left the job without taking part"));
}

/// A listener with a full queue drops connections, as a firewall does: connect would retry for 2
/// minutes.
TEST(TcpTransportTest, ConnectingMeetsTheDeadline) {
  int port = findPort();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> sockets = {socket(AF_INET, SOCK_STREAM, 0)};
  ASSERT_EQ(bind(sockets[0], reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  ASSERT_EQ(listen(sockets[0], 0), 0);
  for (int i = 0; i < 4; ++i) {
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)connect(sockets.back(), reinterpret_cast<sockaddr *>(&address), sizeof address);
  }
  std::this_thread::sleep_for(100ms);
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(joinTcpTransport(makeMaster(port), "job", 1, 2, {700ms, 100ms}), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  for (int fd : sockets)
    close(fd);
}

TEST(TcpTransportTest, ARefusalNamesTheCommonCause) {
  std::string port = ":" + std::to_string(findPort());
  for (const auto &[host, cause] :
       {std::pair("localhost", "set MASTER_ADDR to an IP address"),
        std::pair("127.0.0.1", "is rank 0 running, with the same MASTER_ADDR and MASTER_PORT?")})
    try {
      joinTcpTransport(host + port, "job", 1, 2, {300ms, 100ms});
      FAIL() << "nobody listens";
    } catch (const Error &error) {
      EXPECT_EQ(error.getCode(), ErrorCode::DeadlineExceeded);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("Connection refused"), HasSubstr(cause)));
    }
}

/// The name of a service may be created after a rank first looks it up.
TEST(TcpTransportTest, ANameIsAskedForUntilTheDeadline) {
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(joinTcpTransport("no-such-host.invalid:29500", "job", 1, 2, {700ms, 100ms}), Error);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 700ms);
}

TEST(TcpTransportTest, ALookUpIsInterrupted) {
  for (int rank : {0, 1}) {
    TransportOptions options = {60000ms, 100ms};
    options.whileJoining = [] { throw Error(ErrorCode::PeerFailed, "interrupted"); };
    try {
      joinTcpTransport("no-such-host.invalid:29500", "job", rank, 2, options);
      FAIL();
    } catch (const Error &error) {
      EXPECT_STREQ(error.what(), "interrupted") << rank;
    }
  }
}

TEST(TcpTransportTest, RankZeroLeavesWithoutAStoppedRank) {
  JobOptions options;
  options.transport.deadline = 60000ms;
  SharedFlag isStopped;
  options.beside = [&](const std::vector<pid_t> &pids) {
    int status = 0;
    waitpid(pids[1], &status, WUNTRACED);
    isStopped.raise();
    siginfo_t info;
    waitid(P_PID, id_t(pids[0]), &info, WEXITED | WNOWAIT);
    kill(pids[1], SIGCONT);
  };
  auto begin = std::chrono::steady_clock::now();
  runJob(
      2,
      [&](Transport &transport) {
        share(transport, getAll(transport), 0);
        if (transport.getRank() == 1)
          raise(SIGSTOP);
        else
          isStopped.await();
      },
      options);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 40s);
}

TEST(TcpTransportTest, CpuRanksAreRefusedWithTheRemedy) {
  std::vector<Outcome> outcomes = runJob(
      2, [](Transport &transport) { transport.createCommunicator(getAll(transport), "world"); });
  EXPECT_THAT(outcomes[0].text, HasSubstr("CPU ranks are joined on one machine only"));
}
