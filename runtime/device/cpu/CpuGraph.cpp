//===- CpuGraph.cpp - captured work of CPU streams ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The protocol: the thread that has claimed a list runs it. Claims, bells and the events' run
// numbers are sequentially consistent, and a thread reads a list's bell before it looks for work
// and sleeps. So that no wake-up is lost:
// - A thread that records an event rings the lists that wait for it, after it has set `done`.
// - A thread that releases a list then checks whether its next step can run, and if so rings it:
//   either this check sees the event, or the recorder's ring finds the list unclaimed.
// - A thread that cannot claim a list that it waits for rings it: the thread that has claimed it
// may
//   have checked an event before this thread recorded it without a ring (handsOver).
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuGraph.h"

#include "runtime/device/cpu/ThreadPool.h"

#include <algorithm>
#include <utility>

using namespace gridloom::rt;

void CpuLaunch::run(ThreadPool &pool) const {
  if (rows <= part)
    return function(pointers.data(), 0, rows);
  pool.parallelFor((rows + part - 1) / part, [&](int64_t index) {
    function(pointers.data(), index * part, std::min(rows, (index + 1) * part));
  });
}

CpuGraph::CpuGraph(ThreadPool &pool, std::span<Stream *const> streams) : pool(pool) {
  for (Stream *stream : streams)
    lists.emplace_back().stream = static_cast<CpuStream *>(stream);
}

//===----------------------------------------------------------------------===//
// Capture
//===----------------------------------------------------------------------===//

void CpuGraph::addLaunch(uint32_t list, CpuLaunch launch) {
  List &to = lists[list];
  to.steps.push_back({StepKind::Launch, uint32_t(to.launches.size())});
  to.launches.push_back(std::move(launch));
}

void CpuGraph::addWork(uint32_t list, std::function<void()> work) {
  List &to = lists[list];
  to.steps.push_back({StepKind::Work, uint32_t(to.works.size())});
  to.works.push_back(std::move(work));
}

void CpuGraph::addRecord(uint32_t list, const CpuEvent::State *event) {
  auto index = uint32_t(events.size());
  events.emplace_back().list = list;
  recorded[event] = index;
  lists[list].steps.push_back({StepKind::Record, index});
}

void CpuGraph::addWait(uint32_t list, const CpuEvent::State *event) {
  auto found = recorded.find(event);
  if (found == recorded.end() || events[found->second].list == list)
    return;
  std::vector<uint32_t> &waiters = events[found->second].waiters;
  if (std::find(waiters.begin(), waiters.end(), list) == waiters.end())
    waiters.push_back(list);
  lists[list].steps.push_back({StepKind::Wait, found->second});
}

void CpuGraph::finishCapture() {
  for (List &list : lists)
    for (auto step = list.steps.begin(); step != list.steps.end(); ++step) {
      if (step->kind != StepKind::Record)
        continue;
      auto next = std::find_if(step, list.steps.end(),
                               [](const Step &other) { return other.kind != StepKind::Record; });
      const std::vector<uint32_t> &waiters = events[step->index].waiters;
      if (next != list.steps.end() && next->kind == StepKind::Wait && waiters.size() == 1 &&
          waiters.front() == events[next->index].list)
        step->handsOver = waiters.front();
    }
  recorded.clear();
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

bool CpuGraph::tryClaim(List &list) { return !list.claimed.exchange(true); }

void CpuGraph::ring(List &list) {
  ++list.bell;
  list.bell.notify_all();
}

void CpuGraph::release(List &list, uint64_t run) {
  EventIndex awaited;
  bool hasMore = list.next < list.steps.size();
  if (hasMore && list.steps[list.next].kind == StepKind::Wait)
    awaited = list.steps[list.next].index;
  list.claimed = false;
  if (hasMore && (!awaited || isDone(*awaited, run)))
    ring(list);
}

void CpuGraph::fail(std::exception_ptr cause) {
  {
    std::lock_guard lock(mutex);
    if (!failure)
      failure = std::move(cause);
  }
  hasFailed = true;
  for (List &list : lists)
    ring(list);
}

void CpuGraph::checkFailure() {
  if (!hasFailed)
    return;
  std::lock_guard lock(mutex);
  std::rethrow_exception(failure);
}

/// `owed` is a list that was not rung because this thread is about to help it.
void CpuGraph::record(const Step &step, uint64_t run, std::optional<uint32_t> &owed) {
  Event &event = events[step.index];
  event.done = run;
  if (step.handsOver)
    owed = step.handsOver;
  else
    for (uint32_t waiter : event.waiters)
      ring(lists[waiter]);
}

void CpuGraph::advance(List &list, uint64_t run, EventIndex until) {
  std::optional<uint32_t> owed;
  for (; list.next < list.steps.size(); ++list.next) {
    const Step &step = list.steps[list.next];
    if (until && isDone(*until, run))
      break;
    if (step.kind == StepKind::Wait && !isDone(step.index, run)) {
      owed.reset(); // help rings it if it is claimed
      help(step.index, run);
      if (!isDone(step.index, run))
        return;
    }
    if (step.kind == StepKind::Launch)
      list.launches[step.index].run(pool);
    else if (step.kind == StepKind::Work)
      list.works[step.index]();
    else if (step.kind == StepKind::Record)
      record(step, run, owed);
    else if (owed)
      ring(lists[*std::exchange(owed, std::nullopt)]);
  }
  if (owed)
    ring(lists[*owed]);
  if (list.next < list.steps.size())
    return;
  list.finished = run;
  ring(list); // wakes a thread in `complete`
}

void CpuGraph::help(uint32_t event, uint64_t run) {
  List &list = lists[events[event].list];
  if (!tryClaim(list))
    return ring(list);
  advance(list, run, event);
  release(list, run);
}

void CpuGraph::complete(List &list, uint64_t run) {
  while (list.finished < run) {
    checkFailure();
    uint32_t heard = list.bell;
    if (tryClaim(list)) {
      try {
        if (list.finished < run) // else it may already be in the next run
          advance(list, run, std::nullopt);
        release(list, run);
      } catch (...) {
        fail(std::current_exception()); // the list stays claimed: no thread repeats the failed step
      }
    }
    if (list.finished < run && !hasFailed)
      list.bell.wait(heard);
  }
}

void CpuGraph::begin(uint64_t run) {
  for (List &list : lists) {
    while (!tryClaim(list)) // a thread of the last run may still be releasing it
      std::this_thread::yield();
    list.next = 0;
    if (list.steps.empty())
      list.finished = run;
    list.claimed = false;
  }
}

void CpuGraph::run() {
  checkFailure();
  uint64_t run = ++runs;
  begin(run);
  for (size_t i = 1; i < lists.size(); ++i)
    if (!lists[i].steps.empty())
      lists[i].stream->enqueueHost(
          [graph = shared_from_this(), i, run] { graph->complete(graph->lists[i], run); });
  for (List &list : lists)
    complete(list, run);
}
