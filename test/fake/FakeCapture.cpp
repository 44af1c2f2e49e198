//===- FakeCapture.cpp - stream capture and graphs ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A captured graph keeps only the order that streams and events gave it. A launch runs each branch
// on its own stream, so that the machine's schedule can draw any order that the graph allows, and
// its vector clocks check the accesses of one replay, of two, and of work beside them.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeCapture.h"

#include <algorithm>
#include <cstring>

namespace gridloom::fake {

using namespace driver;

namespace {

enum : int { GlobalMode = 0, ThreadLocalMode = 1, RelaxedMode = 2 };

/// Set by cuThreadExchangeStreamCaptureMode.
thread_local int threadMode = GlobalMode;

/// Calls that synchronise, or may do so implicitly.
constexpr const char *unsafeCalls[] = {
    "cuMemAlloc_v2",       "cuMemFree_v2",       "cuMemHostAlloc", "cuMemFreeHost",
    "cuEventSynchronize",  "cuEventQuery",       "cuModuleUnload", "cuModuleLoadDataEx",
    "cuStreamSynchronize", "cuStreamDestroy_v2", "cuMemGetInfo_v2"};

bool isOneOf(const char *name, auto &calls) {
  return std::any_of(std::begin(calls), std::end(calls),
                     [&](const char *call) { return !std::strcmp(call, name); });
}

} // namespace

bool Capture::isBefore(size_t node, const std::vector<size_t> &from) const {
  std::vector<bool> seen(nodes.size());
  std::vector<size_t> open = from;
  while (!open.empty()) {
    size_t next = open.back();
    open.pop_back();
    if (next == node)
      return true;
    if (next < node || seen[next])
      continue;
    seen[next] = true;
    open.insert(open.end(), nodes[next].after.begin(), nodes[next].after.end());
  }
  return false;
}

int Machine::checkCapture(const char *name, Stream *stream) {
  Lock lock(mutex);
  if (stream && stream->capture) {
    constexpr const char *neverOnIt[] = {"cuStreamSynchronize", "cuStreamQuery", "cuMemAllocAsync",
                                         "cuStreamDestroy_v2"};
    bool ends = !std::strcmp(name, "cuStreamEndCapture");
    if (!stream->capture->valid && !ends)
      return CaptureInvalidated;
    if (isOneOf(name, neverOnIt)) {
      stream->capture->valid = false;
      return CaptureUnsupported;
    }
  }
  if (threadMode == RelaxedMode || !isOneOf(name, unsafeCalls))
    return Success;
  int result = Success;
  for (const auto &known : captures) {
    std::shared_ptr<Capture> capture = known.lock();
    if (!capture || !capture->open || capture->mode == RelaxedMode)
      continue;
    bool mine = capture->thread == std::this_thread::get_id();
    if (mine || (capture->mode == GlobalMode && threadMode == GlobalMode)) {
      capture->valid = false;
      result = CaptureUnsupported;
    }
  }
  return result;
}

int Machine::beginCapture(Stream &stream, int mode) {
  Lock lock(mutex);
  if (stream.capture)
    return CaptureUnmatched;
  auto capture = std::make_shared<Capture>();
  capture->device = stream.device;
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->tails[&stream];
  stream.capture = capture;
  std::erase_if(captures, [](const auto &known) { return known.expired(); });
  captures.push_back(capture);
  return Success;
}

int Machine::endCapture(Stream &stream, std::shared_ptr<Capture> &capture) {
  Lock lock(mutex);
  capture = nullptr;
  if (!stream.capture || stream.capture->origin != &stream)
    return CaptureUnmatched;
  if (stream.capture->mode != RelaxedMode && stream.capture->thread != std::this_thread::get_id())
    return CaptureWrongThread;
  std::shared_ptr<Capture> ended = stream.capture;
  bool joined = true;
  for (const auto &[other, tail] : ended->tails) {
    for (size_t node : tail)
      joined &= ended->isBefore(node, ended->tails[&stream]);
    other->capture = nullptr;
  }
  // Events recorded in the capture still refer to it, but its nodes belong to the graph now.
  auto graph = std::make_shared<Capture>(std::move(*ended));
  ended->nodes.clear();
  ended->tails.clear();
  ended->open = graph->open = false;
  if (!graph->valid)
    return CaptureInvalidated;
  if (!joined)
    return CaptureUnjoined;
  capture = std::move(graph);
  return Success;
}

/// Records `operation` if `stream` is capturing. Call with the lock held.
bool Machine::captureLocked(Stream &stream, Operation &operation) {
  if (!stream.capture)
    return false;
  Capture &capture = *stream.capture;
  std::vector<size_t> &tail = capture.tails[&stream];
  capture.nodes.push_back({&stream, std::move(operation), tail});
  tail = {capture.nodes.size() - 1};
  return true;
}

/// A wait in a capture, of the stream or of the event. Call with the lock held.
int Machine::waitCaptured(Stream &stream, Event &event) {
  if (!event.capture) {
    if (event.issued == 0)
      return Success;
    stream.capture->valid = false;
    return CaptureIsolation;
  }
  if (!event.capture->open)
    return CapturedEvent;
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->valid = event.capture->valid = false;
    return CaptureMerge;
  }
  stream.capture = event.capture;
  std::vector<size_t> &tail = stream.capture->tails[&stream];
  for (size_t node : event.captured)
    if (std::find(tail.begin(), tail.end(), node) == tail.end())
      tail.push_back(node);
  return Success;
}

std::vector<Stream *> Machine::createBranches(const Capture &capture) {
  Lock lock(mutex);
  std::vector<Stream *> branches;
  for (const auto &[captured, tail] : capture.tails) {
    auto stream = std::make_unique<Stream>();
    stream->number = static_cast<int>(streams.size());
    stream->device = capture.device;
    stream->priority = captured->priority;
    branches.push_back(stream.get());
    streams.push_back(std::move(stream));
  }
  return branches;
}

void Machine::launch(const Capture &capture, const std::vector<Stream *> &branches,
                     Stream &stream) {
  std::map<Stream *, Stream *> branchOf;
  for (const auto &[captured, tail] : capture.tails)
    branchOf[captured] = branches[branchOf.size()];
  std::vector<std::shared_ptr<Event>> done(capture.nodes.size());
  for (const Capture::Node &node : capture.nodes)
    for (size_t before : node.after)
      if (capture.nodes[before].stream != node.stream && !done[before])
        done[before] = std::make_shared<Event>();

  auto begin = std::make_shared<Event>();
  record(stream, begin);
  for (Stream *branch : branches)
    wait(*branch, begin);
  for (size_t i = 0; i < capture.nodes.size(); ++i) {
    const Capture::Node &node = capture.nodes[i];
    Stream &branch = *branchOf[node.stream];
    for (size_t before : node.after)
      if (capture.nodes[before].stream != node.stream)
        wait(branch, done[before]);
    submit(branch, node.operation.renew ? node.operation.renew() : node.operation);
    if (done[i])
      record(branch, done[i]);
  }
  for (Stream *branch : branches) {
    auto end = std::make_shared<Event>();
    record(*branch, end);
    wait(stream, end);
  }
}

} // namespace gridloom::fake

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

using namespace gridloom::fake;

namespace {

using Graph = std::shared_ptr<Capture>;

struct Executable {
  Graph graph;
  std::vector<Stream *> branches;
};

Machine &machine() { return Machine::get(); }

/// Without its flag, all nodes of a graph run at the priority of the stream it is launched on.
std::string findLostPriority(const Capture &graph) {
  for (const Capture::Node &node : graph.nodes)
    if (node.stream->priority != graph.origin->priority)
      return "cuGraphInstantiateWithFlags without USE_NODE_PRIORITY: " + node.operation.name +
             " was captured with priority " + std::to_string(node.stream->priority) +
             " and runs with " + std::to_string(graph.origin->priority);
  return "";
}

/// Logs a call, as every entry point does; returns a planted error, the device's, the capture's, or
/// 0.
int enter(const char *name, Stream *stream, const std::string &detail = "") {
  if (int result = machine().enter(name, stream ? stream->number : -1, detail))
    return result;
  if (int result = machine().getSticky(machine().getCurrentDevice()))
    return result;
  return machine().checkCapture(name, stream);
}

} // namespace

extern "C" {

#define EXPORT GRIDLOOM_FAKE_EXPORT

EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) {
  Stream *stream = machine().checkStream(handle, "cuStreamBeginCapture");
  if (!stream)
    return InvalidHandle;
  if (int result = enter("cuStreamBeginCapture_v2", stream, std::to_string(mode)))
    return result;
  return mode < 0 || mode > 2 ? InvalidValue : machine().beginCapture(*stream, mode);
}

EXPORT int cuStreamEndCapture(void *handle, Graph **made) {
  *made = nullptr;
  Stream *stream = machine().checkStream(handle, "cuStreamEndCapture");
  if (!stream)
    return InvalidHandle;
  int planted = enter("cuStreamEndCapture", stream);
  Graph graph;
  int result = machine().endCapture(*stream, graph);
  if (planted || result)
    return planted ? planted : result;
  *made = new Graph(std::move(graph));
  machine().track(*made, "graph");
  return 0;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  if (int result = machine().enter("cuThreadExchangeStreamCaptureMode"))
    return result;
  std::swap(*mode, threadMode);
  return 0;
}

EXPORT int cuGraphInstantiateWithFlags(Executable **made, Graph *graph, unsigned long long flags) {
  constexpr unsigned long long useNodePriority = 8;
  constexpr int firstNodePriority = 11070;
  if (!machine().isTracked(graph, "cuGraphInstantiateWithFlags"))
    return InvalidHandle;
  if (int result = enter("cuGraphInstantiateWithFlags", nullptr, std::to_string(flags)))
    return result;
  bool isKnown = machine().getOptions().driverVersion >= firstNodePriority;
  if (flags & ~(isKnown ? useNodePriority : 0))
    return InvalidValue;
  if (std::string fault = findLostPriority(**graph); isKnown && !flags && !fault.empty())
    machine().report(fault);
  *made = new Executable{*graph, machine().createBranches(**graph)};
  machine().track(*made, "executable graph");
  return 0;
}

EXPORT int cuGraphLaunch(Executable *executable, void *handle) {
  Stream *stream = machine().checkStream(handle, "cuGraphLaunch");
  if (!stream || !machine().isTracked(executable, "cuGraphLaunch"))
    return InvalidHandle;
  size_t nodes = executable->graph->nodes.size();
  if (int result = enter("cuGraphLaunch", stream, std::to_string(nodes) + " nodes"))
    return result;
  if (stream->capture || stream->device != executable->graph->device)
    return InvalidValue;
  machine().launch(*executable->graph, executable->branches, *stream);
  return 0;
}

EXPORT int cuGraphExecDestroy(Executable *executable) {
  machine().enter("cuGraphExecDestroy");
  if (!machine().untrack(executable, "cuGraphExecDestroy"))
    return InvalidHandle;
  delete executable; // running work continues, as on a GPU
  return 0;
}

EXPORT int cuGraphDestroy(Graph *graph) {
  machine().enter("cuGraphDestroy");
  if (!machine().untrack(graph, "cuGraphDestroy"))
    return InvalidHandle;
  delete graph;
  return 0;
}

} // extern "C"
