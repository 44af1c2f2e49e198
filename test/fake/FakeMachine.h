//===- FakeMachine.h - streams, memory and their order ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The state behind the fake entry points of CUDA, cuBLASLt and NCCL. Order is judged when work is
// submitted, from the happens-before relation that streams, events and waits define, so what it
// finds does not depend on when the work runs.
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

/// What calls of the driver return.
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

/// How many operations of each stream are known to be before a point.
using Clock = std::vector<uint64_t>;

enum class Step { Done, Blocked };

struct Capture;

/// Work on a stream. `run` is asked again, after something else got on, while it is Blocked.
struct Operation {
  std::string name;
  std::vector<Access> accesses;
  std::function<Step()> run;
  /// Accesses that `run` fills in: judged once it is done, by the order at its submission.
  std::shared_ptr<std::vector<Access>> late = nullptr;
  /// May wait for other threads, as a caller's host function may.
  bool mayWait = false;
  /// Makes the operation that a replay of a graph runs, where a copy of this one will not do: what
  /// has state of its own needs a new one each time.
  std::function<Operation()> renew = nullptr;
};

struct Event {
  Clock clock;         // at the last record
  uint64_t issued = 0; // records submitted
  uint64_t done = 0;   // the last record that ran
  bool timed = false;
  std::chrono::steady_clock::time_point time; // of the last record that ran
  std::shared_ptr<Capture> capture;           // where the last record was captured
  std::vector<size_t> captured;               // the nodes it stands for
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
    std::shared_ptr<Event> waitFor; // runs when this has done `target`
    uint64_t target = 0;
    Clock clock = {}; // at submission
  };
  std::deque<Item> queue;
  bool running = false;
  uint64_t blockedAt = ~uint64_t(0); // progress when it was last found blocked
  std::shared_ptr<Capture> capture;  // what is submitted now is recorded there
};

/// Device memory, kept after it is freed so that a later use is found.
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
  /// Prints leaks where the environment asked for devices.
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

  /// Handles that are alive, for leaks and double destruction.
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
  /// Runs one thing that can run.
  void step();
  /// Runs what can run until `finished`, which is called with the lock held, or `device` is broken.
  void await(int device, const std::function<bool()> &finished);
  /// Has blocked work asked again.
  void wakeUp();
  /// The error of device `device` that sticks, or 0.
  int getSticky(int device);

  // Captures and graphs: FakeCapture.cpp.
  int beginCapture(Stream &stream, int mode);
  int endCapture(Stream &stream, std::shared_ptr<Capture> &capture);
  /// The error that call `name` gets for a capture in progress, or 0. Calls that a capture forbids
  /// end it.
  int checkCapture(const char *name, Stream *stream);
  /// Streams that the branches of a graph run on.
  std::vector<Stream *> createBranches(const Capture &capture);
  /// Submits all of a graph behind what `stream` holds.
  void launch(const Capture &capture, const std::vector<Stream *> &branches, Stream &stream);

  // Memory.
  std::byte *allocate(size_t bytes);
  bool release(std::byte *data, Stream *stream, const char *call);
  size_t getFreeBytes(int device);
  /// The memory of the current device that `data` points into; empty where there is none.
  std::pair<std::byte *, std::byte *> findMemory(const void *data);
  /// What is known of the memory that findMemory finds.
  PtxShadow *findShadow(const void *data);
  /// Makes all later calls for `device` fail, as a kernel's fault does.
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
  /// Judges an access; false when it is not within one buffer.
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
  /// Held while device memory is used: planted races are found, and are none of the host's.
  std::mutex execution;
  Options options;
  std::mt19937_64 random;
  uint64_t progress = 0;
  std::vector<std::unique_ptr<Stream>> streams;
  std::map<int, Clock> hostClocks;                // by device: what some host thread waited for
  std::map<std::thread::id, Clock> threadClocks;  // what one thread has seen
  std::map<const std::byte *, Allocation> memory; // by address
  std::map<int, size_t> usedBytes;
  std::map<int, int> sticky;
  int kernelsToFault = 0;
  std::vector<std::weak_ptr<Capture>> captures; // that have begun
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
