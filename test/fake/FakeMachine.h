//===- FakeMachine.h - streams, memory and their order ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The state behind the fake entry points of CUDA, cuBLASLt and NCCL. Order is checked when work is
// submitted, by the happens-before relation of streams, events and waits, so findings do not depend
// on when the work runs.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKEMACHINE_H
#define GRIDLOOM_TEST_FAKE_FAKEMACHINE_H

#include "test/fake/PtxMemory.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

namespace gridloom::fake {

/// Results of driver calls.
namespace driver {
enum Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  DeviceUnavailable = 46,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  EccUncorrectable = 214,
  InvalidPtx = 218,
  UnsupportedPtxVersion = 222,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  Timeout = 702,
  LaunchFailed = 719,
  NotSupported = 801,
  CaptureUnsupported = 900,
  CaptureInvalidated = 901,
  CaptureMerge = 902,
  CaptureUnmatched = 903,
  CaptureUnjoined = 904,
  CaptureIsolation = 905,
  CapturedEvent = 907,
  CaptureWrongThread = 908,
};
} // namespace driver

/// For each stream, the number of its operations that are known to precede a point.
using Clock = std::vector<uint64_t>;

enum class Step { Done, Blocked };

struct Capture;

/// Work on a stream. While `run` returns Blocked, it is called again after other progress.
struct Operation {
  std::string name;
  std::vector<Access> accesses;
  std::function<Step()> run;
  /// Accesses that `run` fills in: checked after it ran, by the order at its submission.
  std::shared_ptr<std::vector<Access>> late = nullptr;
  /// May wait for other threads, like a caller's host function.
  bool mayWait = false;
  /// Makes the operation of a graph's replay, for operations with state, which cannot be copied.
  std::function<Operation()> renew = nullptr;
};

struct Event {
  Clock clock;         // at the last record
  uint64_t issued = 0; // records submitted
  uint64_t done = 0;   // the last record that ran
  bool timed = false;
  std::chrono::steady_clock::time_point time; // of the last record that ran
  std::shared_ptr<Capture> capture;           // of the last record
  std::vector<size_t> captured;               // the nodes it represents
};

struct Context {
  explicit Context(int device) : device(device) {}
  int device;
  std::atomic<int> retains = 0;
};

struct Stream {
  int number = 0;
  int device = 0;
  int priority = 0;
  bool destroyed = false;
  Clock clock;
  struct Item {
    Operation operation;
    std::shared_ptr<Event> waitFor; // runs after this event's record number `target`
    uint64_t target = 0;
    Clock clock = {}; // at submission
  };
  std::deque<Item> queue;
  bool running = false;
  uint64_t blockedAt = ~uint64_t(0); // value of `progress` when it was last blocked
  std::shared_ptr<Capture> capture;  // records what is submitted now
};

/// Device memory, kept after it is freed to detect later uses.
struct Allocation {
  std::unique_ptr<std::byte[]> storage;
  std::byte *data = nullptr;
  size_t bytes = 0;
  int device = 0;
  bool freed = false;
  struct Touch {
    size_t begin, end;
    bool write;
    int stream;
    uint64_t tick;
    Clock clock;
    std::string name;
  };
  std::vector<Touch> touches;
  std::unique_ptr<PtxShadow> shadow;
};

class GRIDLOOM_FAKE_EXPORT Machine {
public:
  static Machine &get();
  Machine();
  /// Prints leaks if an environment variable configured the machine.
  ~Machine();

  using Lock = std::unique_lock<std::mutex>;

  void reset(const Options &options);
  const Options &getOptions() const { return options; }

  // For entry points.
  /// Logs the call and returns the error planted for it, or 0.
  int enter(const char *name, int stream = -1, const std::string &detail = "");
  void report(const std::string &finding);
  int getCurrentDevice() const;
  Context *getCurrent() const;
  void setCurrent(Context *context);
  Context *findContext(int device);

  /// Live handles, to find leaks and double destruction.
  void track(const void *object, const std::string &what);
  bool untrack(const void *object, const char *call);
  bool isTracked(const void *object, const char *call);

  // Streams.
  Stream *createStream(int priority);
  bool destroyStream(Stream *stream);
  Stream *checkStream(void *stream, const char *call);
  void submit(Stream &stream, Operation operation);
  void record(Stream &stream, const std::shared_ptr<Event> &event);
  int wait(Stream &stream, const std::shared_ptr<Event> &event);
  int synchronize(Stream &stream);
  int query(Stream &stream);
  int synchronize(Event &event);
  int query(Event &event);
  /// Runs one operation that can run.
  void step();
  /// Runs operations until `finished` (called with the lock held) or until `device` is broken.
  void await(int device, const std::function<bool()> &finished);
  /// Retries blocked work.
  void wakeUp();
  /// The sticky error of `device`, or 0.
  int getSticky(int device);

  // Captures and graphs: FakeCapture.cpp.
  int beginCapture(Stream &stream, int mode);
  int endCapture(Stream &stream, std::shared_ptr<Capture> &capture);
  /// The error of call `name` during a capture, or 0. Forbidden calls invalidate the capture.
  int checkCapture(const char *name, Stream *stream);
  /// The streams on which a graph's branches run.
  std::vector<Stream *> createBranches(const Capture &capture);
  /// Submits all of a graph behind the work of `stream`.
  void launch(const Capture &capture, const std::vector<Stream *> &branches, Stream &stream);

  // Memory.
  std::byte *allocate(size_t bytes);
  bool release(std::byte *data, Stream *stream, const char *call);
  size_t getFreeBytes(int device);
  /// The memory of the current device that `data` points into; empty if there is none.
  std::pair<std::byte *, std::byte *> findMemory(const void *data);
  /// The shadow of the memory that findMemory finds.
  PtxShadow *findShadow(const void *data);
  /// Makes all later calls for `device` fail, as after a kernel's fault.
  void breakDevice(int device, int error);

  // For tests.
  std::vector<Call> getCalls(const std::string &prefix);
  std::vector<std::string> takeFindings();
  std::vector<std::string> findLeaks();
  int getStreamPriority(int stream);
  void plant(const std::string &name, int result, int skip);
  void registerKernel(const std::string &symbol, KernelFunction function);
  std::optional<KernelFunction> findKernel(const std::string &symbol);

private:
  void reportLocked(const std::string &finding);
  void enqueue(Stream &stream, Stream::Item item);
  bool captureLocked(Stream &stream, Operation &operation);
  int waitCaptured(Stream &stream, Event &event);
  /// Checks an access; false if it is not within one buffer.
  bool touch(const Stream &stream, const Clock &clock, const Access &access,
             const std::string &name, bool frees);
  Allocation *find(const void *data);
  void noteDone(const Stream &stream, const Operation &operation);
  bool breaksAt(const Stream &stream, const Operation &operation);
  Stream *choose();
  bool runOne(Lock &lock);
  template <typename Predicate> int drive(Lock &lock, Predicate finished);
  void learn(Clock &clock, const Clock &more);
  Clock &threadClock();

  std::mutex mutex;
  std::condition_variable changed;
  /// Held while device memory is used, so that planted races are not races of the host.
  std::mutex execution;
  Options options;
  std::mt19937_64 random;
  uint64_t progress = 0;
  std::vector<std::unique_ptr<Stream>> streams;
  std::map<int, Clock> hostClocks;                // by device: what host threads have waited for
  std::map<std::thread::id, Clock> threadClocks;  // what each thread has seen
  std::map<const std::byte *, Allocation> memory; // by address
  std::map<int, size_t> usedBytes;
  std::map<int, int> sticky;
  int kernelsToFault = 0;
  std::vector<std::weak_ptr<Capture>> captures; // begun so far
  std::vector<std::unique_ptr<Context>> contexts;
  std::map<const void *, std::string> objects;
  std::map<std::string, KernelFunction> kernels;
  std::vector<Call> calls;
  std::vector<std::string> findings;
  struct Planted {
    std::string name;
    int result, skip;
  };
  std::vector<Planted> planted;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKEMACHINE_H
