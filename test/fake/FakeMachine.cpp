//===- FakeMachine.cpp - streams, memory and their order ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeMachine.h"

#include "test/fake/FakeCapture.h"
#include "test/fake/FakeClock.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace gridloom::fake {

using namespace driver;

static constexpr size_t alignment = 256;
static constexpr size_t guardBytes = 256;
static constexpr std::byte guardByte{0xa5};
static constexpr std::byte poisonByte{0xff}; // NaN in every float type

static thread_local Context *current = nullptr;

static std::atomic<int64_t> &getSpentMicroseconds(int device) {
  static std::array<std::atomic<int64_t>, 64> spent = {};
  return spent[static_cast<size_t>(device) % spent.size()];
}

void spend(int device, std::chrono::microseconds duration) {
  getSpentMicroseconds(device) += duration.count();
}

std::chrono::steady_clock::time_point readClock(int device) {
  return std::chrono::steady_clock::now() + std::chrono::microseconds(getSpentMicroseconds(device));
}

Machine &Machine::get() {
  static Machine machine;
  return machine;
}

/// The numbers in a text such as "1:3:700".
static std::vector<int64_t> readNumbers(const char *text) {
  std::vector<int64_t> numbers;
  for (const char *at = text; *at; at += *at != 0) {
    char *end = nullptr;
    numbers.push_back(std::strtoll(at, &end, 10));
    at = end;
  }
  return numbers;
}

/// The number in an environment variable.
static std::optional<int64_t> readNumber(const char *variable) {
  const char *text = std::getenv(variable);
  std::vector<int64_t> numbers = readNumbers(text ? text : "");
  return numbers.empty() ? std::nullopt : std::optional(numbers.front());
}

/// Environment variables configure the machine for programs that know nothing of the fake:
///   GRIDLOOM_FAKE_DEVICES=2                 number of GPUs; findings and leaks go to stderr
///   GRIDLOOM_FAKE_SEED=1                    Schedule::Random
///   GRIDLOOM_FAKE_ARCHITECTURE=100
///   GRIDLOOM_FAKE_DRIVER_VERSION=12020
///   GRIDLOOM_FAKE_MEMORY=BYTES
///   GRIDLOOM_FAKE_ONE_GPU=1
///   GRIDLOOM_FAKE_NCCL_VERSION=21705
///   GRIDLOOM_FAKE_FAULT=1:3:700             Options::fault: device, kernels, error
///   GRIDLOOM_FAKE_FAIL=cuGraphLaunch:999:0  failCall: name, result, skip
// NOLINTNEXTLINE(bugprone-random-generator-seed): reset seeds it
Machine::Machine() {
  Options given;
  if (auto devices = readNumber("GRIDLOOM_FAKE_DEVICES"))
    given.devices = static_cast<int>(*devices);
  if (auto seed = readNumber("GRIDLOOM_FAKE_SEED")) {
    given.schedule = Schedule::Random;
    given.seed = static_cast<uint64_t>(*seed);
  }
  if (auto architecture = readNumber("GRIDLOOM_FAKE_ARCHITECTURE"))
    given.architecture = static_cast<int>(*architecture);
  if (auto version = readNumber("GRIDLOOM_FAKE_DRIVER_VERSION"))
    given.driverVersion = static_cast<int>(*version);
  if (auto bytes = readNumber("GRIDLOOM_FAKE_MEMORY"))
    given.memoryBytes = static_cast<size_t>(*bytes);
  given.oneGpu = std::getenv("GRIDLOOM_FAKE_ONE_GPU") != nullptr;
  if (const char *fault = std::getenv("GRIDLOOM_FAKE_FAULT")) {
    std::vector<int64_t> numbers = readNumbers(fault);
    numbers.resize(3);
    given.fault = {static_cast<int>(numbers[0]), static_cast<int>(numbers[1]),
                   static_cast<int>(numbers[2])};
  }
  reset(given);
  if (const char *fail = std::getenv("GRIDLOOM_FAKE_FAIL")) {
    std::string_view call = fail;
    size_t end = std::min(call.find(':'), call.size());
    std::vector<int64_t> numbers = readNumbers(fail + std::min(end + 1, call.size()));
    if (numbers.size() == 2)
      plant(std::string(call.substr(0, end)), static_cast<int>(numbers[0]),
            static_cast<int>(numbers[1]));
  }
}

Machine::~Machine() {
  if (!std::getenv("GRIDLOOM_FAKE_DEVICES"))
    return;
  for (const std::string &leak : findLeaks())
    std::fprintf(stderr, "fake GPU: leaked %s\n", leak.c_str());
}

void Machine::reset(const Options &chosen) {
  Lock lock(mutex);
  options = chosen;
  random.seed(options.seed);
  progress = 0;
  streams.clear();
  hostClocks.clear();
  threadClocks.clear();
  memory.clear();
  usedBytes.clear();
  sticky.clear();
  kernelsToFault = options.fault.kernels;
  contexts.clear();
  for (int device = 0; device < options.devices; ++device)
    contexts.push_back(std::make_unique<Context>(device));
  objects.clear();
  kernels.clear();
  calls.clear();
  findings.clear();
  planted.clear();
  captures.clear();
  current = nullptr;
}

//===----------------------------------------------------------------------===//
// Calls, findings, handles
//===----------------------------------------------------------------------===//

int Machine::enter(const char *name, int stream, const std::string &detail) {
  Lock lock(mutex);
  calls.push_back({current ? current->device : -1, stream, name, detail});
  for (auto it = planted.begin(); it != planted.end(); ++it)
    if (it->name == name && it->skip-- == 0) {
      int result = it->result;
      planted.erase(it);
      return result;
    }
  return Success;
}

void Machine::reportLocked(const std::string &finding) {
  if (std::find(findings.begin(), findings.end(), finding) != findings.end())
    return;
  findings.push_back(finding);
  // A separate program has no test that takes findings: print them as they occur.
  if (std::getenv("GRIDLOOM_FAKE_DEVICES"))
    std::fprintf(stderr, "fake GPU: %s\n", finding.c_str());
}

void Machine::report(const std::string &finding) {
  Lock lock(mutex);
  reportLocked(finding);
}

Context *Machine::getCurrent() const { return current; }
int Machine::getCurrentDevice() const { return current ? current->device : -1; }
void Machine::setCurrent(Context *context) { current = context; }

Context *Machine::findContext(int device) {
  Lock lock(mutex);
  bool known = device >= 0 && device < static_cast<int>(contexts.size());
  return known ? contexts[static_cast<size_t>(device)].get() : nullptr;
}

void Machine::track(const void *object, const std::string &what) {
  Lock lock(mutex);
  objects[object] = what;
}

bool Machine::untrack(const void *object, const char *call) {
  Lock lock(mutex);
  if (objects.erase(object))
    return true;
  reportLocked(std::string(call) + " of a handle that does not exist or was destroyed before");
  return false;
}

bool Machine::isTracked(const void *object, const char *call) {
  Lock lock(mutex);
  if (objects.count(object))
    return true;
  reportLocked(std::string(call) + " with a handle that does not exist or was destroyed before");
  return false;
}

std::vector<Call> Machine::getCalls(const std::string &prefix) {
  Lock lock(mutex);
  std::vector<Call> found;
  for (const Call &call : calls)
    if (call.name.starts_with(prefix))
      found.push_back(call);
  return found;
}

std::vector<std::string> Machine::takeFindings() {
  Lock lock(mutex);
  for (auto &[address, allocation] : memory)
    for (size_t i = 0; i < guardBytes; ++i)
      if (allocation.data[allocation.bytes + i] != guardByte) {
        reportLocked("memory of " + std::to_string(allocation.bytes) + " bytes on device " +
                     std::to_string(allocation.device) + " was written behind its end");
        break;
      }
  return std::exchange(findings, {});
}

std::vector<std::string> Machine::findLeaks() {
  Lock lock(mutex);
  std::vector<std::string> leaks;
  for (const auto &[address, allocation] : memory)
    if (!allocation.freed)
      leaks.push_back("memory of " + std::to_string(allocation.bytes) + " bytes on device " +
                      std::to_string(allocation.device));
  for (const auto &[object, what] : objects)
    leaks.push_back(what);
  return leaks;
}

int Machine::getStreamPriority(int stream) {
  Lock lock(mutex);
  return streams.at(static_cast<size_t>(stream))->priority;
}

void Machine::plant(const std::string &name, int result, int skip) {
  Lock lock(mutex);
  planted.push_back({name, result, skip});
}

void Machine::registerKernel(const std::string &symbol, KernelFunction function) {
  Lock lock(mutex);
  kernels[symbol] = std::move(function);
}

std::optional<KernelFunction> Machine::findKernel(const std::string &symbol) {
  Lock lock(mutex);
  auto it = kernels.find(symbol);
  if (it == kernels.end())
    return std::nullopt;
  return it->second;
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

void Machine::learn(Clock &clock, const Clock &more) {
  if (clock.size() < more.size())
    clock.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i)
    clock[i] = std::max(clock[i], more[i]);
}

Clock &Machine::threadClock() { return threadClocks[std::this_thread::get_id()]; }

static std::string nameStream(int stream) { return "stream " + std::to_string(stream); }

Allocation *Machine::find(const void *data) {
  auto *address = static_cast<const std::byte *>(data);
  auto it = memory.upper_bound(address);
  if (it == memory.begin())
    return nullptr;
  Allocation &allocation = std::prev(it)->second;
  return address < allocation.data + allocation.bytes ? &allocation : nullptr;
}

bool Machine::touch(const Stream &stream, const Clock &clock, const Access &access,
                    const std::string &name, bool frees) {
  if (access.bytes == 0)
    return true;
  std::string who = name + " on " + nameStream(stream.number);
  Allocation *allocation = find(access.data);
  auto *begin = static_cast<const std::byte *>(access.data);
  if (!allocation || allocation->device != stream.device ||
      begin + access.bytes > allocation->data + allocation->bytes) {
    reportLocked(who + (access.write ? " writes " : " reads ") + std::to_string(access.bytes) +
                 " bytes that are not all in one buffer of device " +
                 std::to_string(stream.device));
    sticky[stream.device] = IllegalAddress;
    return false;
  }
  if (allocation->freed && !frees)
    reportLocked(who + " uses memory of " + std::to_string(allocation->bytes) +
                 " bytes after it was freed");

  auto offset = static_cast<size_t>(begin - allocation->data);
  auto number = static_cast<size_t>(stream.number);
  Allocation::Touch now{
      offset, offset + access.bytes, access.write, stream.number, clock[number], clock, name};
  auto isBefore = [](const Allocation::Touch &first, const Allocation::Touch &second) {
    auto stream = static_cast<size_t>(first.stream);
    return stream < second.clock.size() && second.clock[stream] >= first.tick;
  };
  for (const Allocation::Touch &past : allocation->touches) {
    bool overlaps = past.begin < now.end && now.begin < past.end;
    // A kernel's accesses are known only after it ran: later ones may be recorded already.
    if (overlaps && (past.write || now.write) && !isBefore(past, now) && !isBefore(now, past))
      reportLocked("race: " + who + (now.write ? " writes" : " reads") + " what " + past.name +
                   " on " + nameStream(past.stream) + (past.write ? " writes" : " reads") +
                   ", and no event orders them");
  }
  std::erase_if(allocation->touches, [&](const Allocation::Touch &past) {
    bool covered = now.begin <= past.begin && past.end <= now.end && isBefore(past, now);
    return covered && (now.write || (past.stream == now.stream && !past.write));
  });
  allocation->touches.push_back(now);
  return true;
}

void Machine::enqueue(Stream &stream, Stream::Item item) {
  auto number = static_cast<size_t>(stream.number);
  learn(stream.clock, hostClocks[stream.device]);
  learn(stream.clock, threadClock());
  if (stream.clock.size() <= number)
    stream.clock.resize(number + 1);
  ++stream.clock[number];
  for (const Access &access : item.operation.accesses)
    if (!touch(stream, stream.clock, access, item.operation.name, false))
      item.operation.run = [] { return Step::Done; };
  if (item.operation.late)
    item.clock = stream.clock;
  stream.queue.push_back(std::move(item));
  stream.blockedAt = ~uint64_t(0);
}

void Machine::submit(Stream &stream, Operation operation) {
  Lock lock(mutex);
  if (captureLocked(stream, operation))
    return;
  enqueue(stream, {std::move(operation), nullptr, 0});
  if (options.schedule == Schedule::Eager)
    while (runOne(lock))
      ;
  changed.notify_all();
}

void Machine::record(Stream &stream, const std::shared_ptr<Event> &event) {
  Lock lock(mutex);
  event->capture = stream.capture;
  if (stream.capture) {
    event->captured = stream.capture->tails[&stream];
    return;
  }
  uint64_t number = ++event->issued;
  enqueue(stream, {{"event record",
                    {},
                    [this, event, number, device = stream.device] {
                      Lock inner(mutex);
                      event->done = std::max(event->done, number);
                      event->time = readClock(device);
                      return Step::Done;
                    }},
                   nullptr,
                   0,
                   {}});
  event->clock = stream.clock;
  if (options.schedule == Schedule::Eager)
    while (runOne(lock))
      ;
  changed.notify_all();
}

int Machine::wait(Stream &stream, const std::shared_ptr<Event> &event) {
  Lock lock(mutex);
  if (stream.capture || event->capture)
    return waitCaptured(stream, *event);
  enqueue(stream, {{"event wait", {}, [] { return Step::Done; }}, event, event->issued});
  learn(stream.clock, event->clock);
  if (options.schedule == Schedule::Eager)
    while (runOne(lock))
      ;
  changed.notify_all();
  return Success;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Stream *Machine::choose() {
  std::vector<Stream *> ready;
  for (const auto &stream : streams) {
    if (stream->queue.empty() || stream->running || stream->blockedAt == progress)
      continue;
    const Stream::Item &item = stream->queue.front();
    if (!item.waitFor || item.waitFor->done >= item.target)
      ready.push_back(stream.get());
  }
  if (ready.empty())
    return nullptr;
  switch (options.schedule) {
  case Schedule::Eager:
  case Schedule::OldestFirst:
    return ready.front();
  case Schedule::NewestFirst:
    return ready.back();
  case Schedule::Random:
    return ready[random() % ready.size()];
  }
  return nullptr;
}

/// Whether the device of `stream` is broken or fails now: then `operation` does not run.
bool Machine::breaksAt(const Stream &stream, const Operation &operation) {
  if (sticky.count(stream.device))
    return true;
  if (stream.device != options.fault.device || !operation.name.starts_with("kernel ") ||
      kernelsToFault-- != 0)
    return false;
  sticky[stream.device] = options.fault.error;
  return true;
}

/// Checks for reads of unwritten bytes, after earlier work of the stream has run.
void Machine::noteDone(const Stream &stream, const Operation &operation) {
  for (const Access &access : operation.accesses) {
    Allocation *allocation = find(access.data);
    if (!allocation || access.bytes == 0)
      continue;
    auto begin =
        static_cast<size_t>(static_cast<const std::byte *>(access.data) - allocation->data);
    size_t bytes = std::min(access.bytes, allocation->bytes - begin);
    if (access.write)
      allocation->shadow->markWritten(begin, bytes);
    else if (!allocation->shadow->isWritten(begin, bytes))
      reportLocked(operation.name + " on " + nameStream(stream.number) +
                   " reads memory that was never written");
  }
}

bool Machine::runOne(Lock &lock) {
  Stream *stream = choose();
  if (!stream)
    return false;
  stream->running = true;
  uint64_t before = progress;
  Operation &operation = stream->queue.front().operation;
  bool broken = breaksAt(*stream, operation);
  lock.unlock();
  std::unique_lock running(execution, std::defer_lock);
  if (!operation.mayWait)
    running.lock();
  Step step = broken && operation.name != "event record" ? Step::Done : operation.run();
  if (running)
    running.unlock();
  lock.lock();
  stream->running = false;
  if (step == Step::Done) {
    const Stream::Item &item = stream->queue.front();
    if (!broken)
      noteDone(*stream, item.operation);
    if (item.operation.late)
      for (const Access &access : *item.operation.late)
        touch(*stream, item.clock, access, item.operation.name, false);
    stream->queue.pop_front();
    ++progress;
  } else {
    stream->blockedAt = before;
  }
  changed.notify_all();
  return true;
}

template <typename Predicate> int Machine::drive(Lock &lock, Predicate finished) {
  using namespace std::chrono;
  uint64_t seen = progress;
  auto deadline = steady_clock::now() + milliseconds(options.hangMilliseconds);
  while (!finished()) {
    if (runOne(lock))
      continue;
    if (progress != seen) {
      seen = progress;
      deadline = steady_clock::now() + milliseconds(options.hangMilliseconds);
    }
    if (finished())
      break;
    if (steady_clock::now() > deadline) {
      reportLocked("hang: nothing can run, and a thread waits");
      return Timeout;
    }
    changed.wait_for(lock, milliseconds(20));
  }
  return Success;
}

void Machine::step() {
  Lock lock(mutex);
  runOne(lock);
}

void Machine::await(int device, const std::function<bool()> &finished) {
  Lock lock(mutex);
  drive(lock, [&] { return sticky.count(device) || finished(); });
}

void Machine::wakeUp() {
  Lock lock(mutex);
  ++progress;
  changed.notify_all();
}

int Machine::getSticky(int device) {
  Lock lock(mutex);
  auto it = sticky.find(device);
  return it == sticky.end() ? int(Success) : it->second;
}

int Machine::synchronize(Stream &stream) {
  Lock lock(mutex);
  Clock clock = stream.clock;
  if (int result = drive(lock, [&] { return stream.queue.empty(); }))
    return result;
  learn(hostClocks[stream.device], clock);
  auto it = sticky.find(stream.device);
  return it == sticky.end() ? int(Success) : it->second;
}

int Machine::query(Stream &stream) {
  Lock lock(mutex);
  if (!stream.queue.empty())
    runOne(lock);
  if (auto broken = sticky.find(stream.device); broken != sticky.end())
    return broken->second;
  if (!stream.queue.empty())
    return NotReady;
  learn(threadClock(), stream.clock);
  return Success;
}

int Machine::synchronize(Event &event) {
  Lock lock(mutex);
  Clock clock = event.clock;
  uint64_t target = event.issued;
  if (int result = drive(lock, [&] { return event.done >= target; }))
    return result;
  if (current)
    learn(hostClocks[current->device], clock);
  return Success;
}

int Machine::query(Event &event) {
  Lock lock(mutex);
  if (event.done < event.issued)
    runOne(lock);
  if (event.done < event.issued)
    return NotReady;
  learn(threadClock(), event.clock);
  return Success;
}

//===----------------------------------------------------------------------===//
// Streams and memory
//===----------------------------------------------------------------------===//

Stream *Machine::createStream(int priority) {
  Lock lock(mutex);
  auto stream = std::make_unique<Stream>();
  stream->number = static_cast<int>(streams.size());
  stream->device = getCurrentDevice();
  stream->priority = priority;
  objects[stream.get()] = nameStream(stream->number);
  streams.push_back(std::move(stream));
  return streams.back().get();
}

bool Machine::destroyStream(Stream *stream) {
  if (!untrack(stream, "cuStreamDestroy"))
    return false;
  Lock lock(mutex);
  stream->destroyed = true;
  return true;
}

Stream *Machine::checkStream(void *stream, const char *call) {
  if (!stream) {
    report(std::string(call) + " on the default stream, which waits for every other stream");
    return nullptr;
  }
  return isTracked(stream, call) ? static_cast<Stream *>(stream) : nullptr;
}

std::byte *Machine::allocate(size_t bytes) {
  Lock lock(mutex);
  int device = getCurrentDevice();
  size_t &used = usedBytes[device];
  if (bytes == 0 || bytes > options.memoryBytes - used)
    return nullptr;
  used += bytes;
  Allocation allocation;
  allocation.storage = std::make_unique<std::byte[]>(bytes + guardBytes + alignment);
  auto address = reinterpret_cast<uintptr_t>(allocation.storage.get());
  allocation.data = allocation.storage.get() + (alignment - address % alignment) % alignment;
  allocation.bytes = bytes;
  allocation.device = device;
  allocation.shadow = std::make_unique<PtxShadow>(bytes);
  std::memset(allocation.data, static_cast<int>(poisonByte), bytes);
  std::memset(allocation.data + bytes, static_cast<int>(guardByte), guardBytes);
  std::byte *data = allocation.data;
  memory[data] = std::move(allocation);
  return data;
}

bool Machine::release(std::byte *data, Stream *stream, const char *call) {
  Lock lock(mutex);
  auto it = memory.find(data);
  if (it == memory.end() || it->second.freed) {
    reportLocked(std::string(call) + (it == memory.end()
                                          ? " of memory that was never allocated"
                                          : " of memory that was freed before (double free)"));
    return false;
  }
  Allocation &allocation = it->second;
  if (stream) {
    enqueue(*stream, {{"memory free", {}, [] { return Step::Done; }}, nullptr, 0});
    touch(*stream, stream->clock, {data, allocation.bytes, true}, "memory free", true);
  } else {
    Clock known = hostClocks[allocation.device];
    learn(known, threadClock());
    for (const Allocation::Touch &past : allocation.touches) {
      auto other = static_cast<size_t>(past.stream);
      if (other >= known.size() || known[other] < past.tick)
        reportLocked(std::string(call) + " of memory that " + past.name + " on " +
                     nameStream(past.stream) + " may still use");
    }
  }
  allocation.freed = true;
  usedBytes[allocation.device] -= allocation.bytes;
  changed.notify_all();
  return true;
}

std::pair<std::byte *, std::byte *> Machine::findMemory(const void *data) {
  Lock lock(mutex);
  Allocation *allocation = find(data);
  if (!allocation || allocation->freed || allocation->device != getCurrentDevice())
    return {};
  return {allocation->data, allocation->data + allocation->bytes};
}

PtxShadow *Machine::findShadow(const void *data) {
  Lock lock(mutex);
  Allocation *allocation = find(data);
  return allocation ? allocation->shadow.get() : nullptr;
}

void Machine::breakDevice(int device, int error) {
  Lock lock(mutex);
  sticky.try_emplace(device, error);
}

size_t Machine::getFreeBytes(int device) {
  Lock lock(mutex);
  return options.memoryBytes - usedBytes[device];
}

} // namespace gridloom::fake
