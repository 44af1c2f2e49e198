//===- Launcher.cpp - start or join the ranks of a job --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/launch/Launcher.h"

#include "runtime/comm/local/LocalTransport.h"
#include "runtime/comm/tcp/TcpTransport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <poll.h>
#include <span>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace gridloom::rt;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

/// A rank's error, sent to the launcher through a pipe; smaller than PIPE_BUF, so that writes do
/// not interleave.
struct Report {
  int32_t rank;
  int32_t code;
  uint32_t where; // length of Error::getWhere at the start of `text`
  char text[2036];
};

class Launch {
public:
  Launch(int ranks, const LaunchOptions &options, const RankMain &main)
      : options(options), main(main), segment(Segment::create(ranks)) {}
  ~Launch();
  int run();

private:
  void start();
  [[noreturn]] void beRank(int rank, pid_t launcher);
  void supervise();
  void readReports();
  void readSignals();
  void interruptBy(int signal);
  void forceEnd(int signal);
  void reap();
  void noteEnd(int rank, int status);
  void stop();
  void killAll(int signal);
  Error findCause() const;

  const LaunchOptions &options;
  const RankMain &main;
  std::shared_ptr<Segment> segment;
  std::vector<pid_t> children; // 0: ended
  int reports[2] = {-1, -1};
  int signals = -1;
  sigset_t oldMask{};
  bool isStopping = false, wasKilled = false;
  steady_clock::time_point killTime;
  int interrupt = 0;
  bool isForced = false; // the ranks may not end on their own
  std::vector<Report> received;
  std::string death; // of a rank that did not report an error
};

} // namespace

Launch::~Launch() {
  killAll(SIGKILL);
  for (pid_t &child : children)
    if (child != 0)
      waitpid(child, nullptr, 0);
  for (int fd : {reports[0], reports[1], signals})
    if (fd >= 0)
      close(fd);
  if (signals >= 0)
    sigprocmask(SIG_SETMASK, &oldMask, nullptr);
}

void Launch::start() {
  if (pipe2(reports, O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(ErrorCode::Unavailable, std::string("cannot make a pipe: ") + strerror(errno));
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  // Ignored signals, such as SIGHUP under nohup, stay ignored: a signalfd would read them.
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    if (struct sigaction action;
        sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, &oldMask);
  signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);

  fflush(nullptr); // else each rank would print what is buffered
  pid_t launcher = getpid();
  for (int rank = 0; rank < segment->getRanks(); ++rank) {
    pid_t child = fork();
    if (child < 0)
      throw Error(ErrorCode::Unavailable,
                  "cannot start rank " + std::to_string(rank) + ": " + strerror(errno));
    if (child == 0)
      beRank(rank, launcher);
    children.push_back(child);
  }
  close(reports[1]);
  reports[1] = -1;
}

/// Sets torchrun's variables, for programs and libraries that the rank may call.
static void setEnvironment(const World &world) {
  auto set = [](const char *name, const std::string &value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(world.rank));
  set("WORLD_SIZE", std::to_string(world.size));
  set("LOCAL_RANK", std::to_string(world.localRank));
  set("LOCAL_WORLD_SIZE", std::to_string(world.localSize));
  setenv("MASTER_ADDR", "127.0.0.1", 0);
  setenv("MASTER_PORT", "29500", 0);
  // Saves events between NCCL's communicators. setenv is safe: this process has one thread and has
  // not loaded NCCL.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

/// Runs `main` on the transport that `connect` returns; code 0 is success.
static Report runMain(const World &world,
                      const std::function<std::unique_ptr<Transport>()> &connect,
                      const RankMain &main, std::unique_ptr<Transport> &transport) {
  Report report{world.rank, 0, 0, {}};
  auto note = [&](ErrorCode code, const char *text, size_t where) {
    report.code = int32_t(code);
    report.where = uint32_t(where);
    strncpy(report.text, text, sizeof report.text - 1);
  };
  try {
    transport = connect();
    main(world, *transport);
  } catch (const Error &error) {
    note(error.getCode(), error.what(), error.getWhere().size());
  } catch (const std::exception &error) {
    note(ErrorCode::Internal, error.what(), 0);
  }
  return report;
}

void Launch::beRank(int rank, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) // it died before prctl
    _exit(1);
  sigprocmask(SIG_SETMASK, &oldMask, nullptr);
  children.clear();
  int size = segment->getRanks();
  World world{rank, size, rank, size, "gridloom", "", ""};
  setEnvironment(world);

  std::unique_ptr<Transport> transport;
  Report report = runMain(
      world, [&] { return createLocalTransport(segment, rank, options.transport); }, main,
      transport);
  fflush(nullptr);
  if (report.code == 0) {
    transport.reset(); // leaves the job properly
    _exit(0);
  }
  // Tell the launcher before the other ranks: the cause must arrive before its consequences.
  if (write(reports[1], &report, sizeof report) != sizeof report)
    fprintf(stderr, "error: %s\n", report.text);
  if (transport)
    transport->abort(report.text);
  _exit(1);
}

int Launch::run() {
  start();
  supervise();
  bool hasFailed = !death.empty() || !received.empty();
  if (interrupt != 0 && (isForced || !hasFailed)) {
    if (interrupt != SIGPIPE && isForced)
      fprintf(stderr, "error: interrupted by signal %d (%s)\n", interrupt, strsignal(interrupt));
    return 128 + interrupt;
  }
  if (hasFailed)
    throw findCause();
  return 0;
}

void Launch::supervise() {
  auto isRunning = [](pid_t child) { return child != 0; };
  while (std::any_of(children.begin(), children.end(), isRunning)) {
    int timeout = -1;
    if (isStopping && !wasKilled) {
      auto left = std::chrono::ceil<milliseconds>(killTime - steady_clock::now()).count();
      timeout = int(std::max<int64_t>(left, 0));
      if (timeout == 0) {
        wasKilled = true;
        killAll(SIGKILL);
      }
    }
    pollfd entries[] = {{signals, POLLIN, 0}, {reports[0], POLLIN, 0}};
    // A pipe whose writers have all closed it is always readable.
    if (poll(entries, 2, timeout) < 0 && errno != EINTR)
      throw Error(ErrorCode::Internal, std::string("poll failed: ") + strerror(errno));
    if (entries[1].revents & POLLIN)
      readReports();
    if (entries[0].revents & POLLIN)
      readSignals();
    else if (entries[1].revents & POLLHUP)
      usleep(1000); // the ranks have closed the pipe and will end soon
    reap();
  }
  readReports();
}

void Launch::readReports() {
  Report report;
  while (read(reports[0], &report, sizeof report) == sizeof report) {
    received.push_back(report);
    segment->fail(ErrorCode(report.code), report.rank,
                  "rank " + std::to_string(report.rank) + " failed: " + report.text);
    stop();
  }
}

void Launch::readSignals() {
  signalfd_siginfo info;
  while (read(signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD)
      interruptBy(int(info.ssi_signo));
  }
}

void Launch::interruptBy(int signal) {
  if (interrupt != 0 || !options.ranksHandleSignals)
    return forceEnd(signal);
  interrupt = signal;
  killAll(signal);
}

void Launch::forceEnd(int signal) {
  if (isForced)
    return;
  isForced = true;
  if (interrupt == 0)
    interrupt = signal;
  killAll(SIGTERM);
  stop();
}

void Launch::reap() {
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    if (children[rank] == 0 || waitpid(children[rank], &status, WNOHANG) <= 0)
      continue;
    children[rank] = 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
      noteEnd(int(rank), status);
  }
}

void Launch::noteEnd(int rank, int status) {
  std::string name = "rank " + std::to_string(rank);
  int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  // A terminal also interrupts the ranks, perhaps earlier than the launcher.
  if (signal == SIGINT)
    forceEnd(SIGINT);
  // Not an error: the reader of rank 0's output may have stopped reading, such as `head`.
  if (signal == SIGPIPE && rank == 0)
    forceEnd(SIGPIPE);
  readReports(); // it may have reported the error
  bool hasReported = std::any_of(received.begin(), received.end(),
                                 [&](const Report &report) { return report.rank == rank; });
  bool wasOurs = wasKilled || (isForced && signal != 0);
  if (!hasReported && !wasOurs && death.empty()) {
    death = name + (signal ? " was killed by signal " + std::to_string(signal) + " (" +
                                 strsignal(signal) + ")"
                           : " ended with code " + std::to_string(WEXITSTATUS(status)));
    segment->fail(ErrorCode::PeerFailed, rank, death);
  }
  stop();
}

void Launch::stop() {
  if (isStopping)
    return;
  isStopping = true;
  killTime = steady_clock::now() + options.grace;
  segment->fail(ErrorCode::PeerFailed, -1, "the job is being stopped");
}

void Launch::killAll(int signal) {
  for (pid_t child : children)
    if (child != 0)
      kill(child, signal);
}

/// The first report that is not about another rank. If all are, the shortest: later ones repeat the
/// first one's text.
static const Report &findOwn(const std::vector<Report> &reports) {
  auto isOwn = [](const Report &report) {
    ErrorCode code = ErrorCode(report.code);
    return code != ErrorCode::PeerFailed && code != ErrorCode::DeadlineExceeded;
  };
  auto own = std::find_if(reports.begin(), reports.end(), isOwn);
  if (own != reports.end())
    return *own;
  return *std::min_element(reports.begin(), reports.end(), [](const Report &a, const Report &b) {
    return strlen(a.text) < strlen(b.text);
  });
}

Error Launch::findCause() const {
  if (death.empty()) {
    const Report &cause = findOwn(received);
    return {ErrorCode(cause.code), cause.text};
  }
  if (received.empty())
    return {ErrorCode::PeerFailed, death};
  const Report &report = findOwn(received);
  std::string witness = report.text;
  // Do not repeat the death as its cause.
  if (report.where && report.where < witness.size() &&
      witness.compare(report.where, std::string::npos, ": " + death) == 0)
    witness.resize(report.where);
  return {ErrorCode::PeerFailed, death + "; " + witness};
}

int gridloom::rt::launchRanks(int ranks, const LaunchOptions &options, const RankMain &main) {
  return Launch(ranks, options, main).run();
}

void gridloom::rt::runThreads(int ranks, const LaunchOptions &options, const RankMain &main) {
  auto transports = createInProcessTransports(ranks, options.transport);
  std::mutex mutex;
  std::vector<Report> reports;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      World world{rank, ranks, rank, ranks, "gridloom", "", ""};
      std::unique_ptr<Transport> transport;
      Report report =
          runMain(world, [&] { return std::move(transports[size_t(rank)]); }, main, transport);
      if (report.code == 0)
        return;
      std::lock_guard guard(mutex);
      reports.push_back(report);
      transport->abort(report.text);
    });
  for (std::thread &thread : threads)
    thread.join();
  if (reports.empty())
    return;
  const Report &cause = findOwn(reports);
  throw Error(ErrorCode(cause.code), cause.text);
}

/// Identifies the machine: the boot id and, for containers, the namespaces through which processes
/// meet.
static std::string describeMachine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  for (const char *name : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    std::error_code error;
    boot += " " + std::filesystem::read_symlink(name, error).string();
  }
  return boot;
}

/// Sets localRank and localSize by asking all ranks which machine they are on.
static void findPlace(World &world, Transport &transport) {
  using Machine = std::array<char, 128>;
  Machine mine = {};
  describeMachine().copy(mine.data(), mine.size() - 1);
  std::vector<Machine> machines(static_cast<size_t>(world.size));
  transport.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(machines)));
  world.localRank = int(std::count(machines.begin(), machines.begin() + world.rank, mine));
  world.localSize = int(std::count(machines.begin(), machines.end(), mine));
  world.isPlaced = true;
}

std::unique_ptr<Transport> gridloom::rt::joinJob(World &world, const TransportOptions &options) {
  std::unique_ptr<Transport> transport;
  if (!world.isPlaced) {
    if (world.master.empty())
      throw Error(ErrorCode::InvalidArgument,
                  world.source + " does not show which ranks share a machine; set LOCAL_RANK and "
                                 "LOCAL_WORLD_SIZE, or MASTER_ADDR and MASTER_PORT where the ranks "
                                 "can ask each other");
    transport = joinTcpTransport(world.master, world.job, world.rank, world.size, options);
    findPlace(world, *transport);
  }
  if (world.localSize == world.size)
    return joinLocalTransport(world.job, world.rank, world.size, options);
  if (transport)
    return transport;
  return joinTcpTransport(world.master, world.job, world.rank, world.size, options);
}

void gridloom::rt::abortJob(World world, const std::string &reason, milliseconds patience) noexcept
    try {
  if (world.size == 1)
    return;
  TransportOptions options;
  options.deadline = std::min(options.deadline, patience);
  joinJob(world, options)->abort(reason);
} catch (const std::exception &) {
  return; // the others did not join, or already know of a failure
}

void gridloom::rt::runRank(World world, const LaunchOptions &options, const RankMain &main,
                           bool &isCause) {
  isCause = true;
  std::unique_ptr<Transport> transport = joinJob(world, options.transport);
  try {
    main(world, *transport);
  } catch (const std::exception &error) {
    std::optional<int> failedRank = transport->getFailedRank();
    isCause = !failedRank || *failedRank == world.rank;
    transport->abort(error.what());
    throw;
  }
}
