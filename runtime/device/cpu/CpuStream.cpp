//===- CpuStream.cpp - streams and events on the CPU ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/CpuStream.h"

#include "runtime/device/cpu/CpuGraph.h"
#include "runtime/device/cpu/CpuMatmul.h"

#include <pthread.h>

using namespace gridloom::rt;

void CpuErrorSink::report(const std::exception_ptr &failure) {
  std::function<void(const std::string &)> call;
  {
    std::lock_guard lock(mutex);
    if (reported)
      return;
    reported = true;
    call = handler;
  }
  if (!call)
    return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception &error) {
    call(error.what());
  } catch (...) {
    call("unknown error");
  }
}

CpuStream::CpuStream(std::string name, std::shared_ptr<CpuErrorSink> errors)
    : name(std::move(name)), errors(std::move(errors)), thread([this] { runLoop(); }) {}

CpuStream::~CpuStream() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  thread.join();
}

void CpuStream::submit(Task task) {
  {
    std::lock_guard lock(mutex);
    queue.push_back(std::move(task));
  }
  wake.notify_one();
}

void CpuStream::enqueueHost(std::function<void()> work) {
  if (captured)
    return captured->addWork(capturedList, std::move(work));
  submit({std::move(work), nullptr, 0});
}

void CpuStream::launch(ThreadPool &pool, CpuLaunch launch) {
  if (captured)
    return captured->addLaunch(capturedList, std::move(launch));
  submit({[&pool, launch = std::move(launch)] { launch.run(pool); }, nullptr, 0});
}

void CpuStream::record(Event &event) {
  std::shared_ptr<CpuEvent::State> state = static_cast<CpuEvent &>(event).state;
  if (captured)
    return captured->addRecord(capturedList, state.get());
  uint64_t recording;
  {
    std::lock_guard lock(state->mutex);
    recording = ++state->submitted;
  }
  submit({nullptr, std::move(state), recording});
}

void CpuStream::wait(Event &event) {
  std::shared_ptr<CpuEvent::State> state = static_cast<CpuEvent &>(event).state;
  if (captured)
    return captured->addWait(capturedList, state.get());
  uint64_t recording;
  {
    std::lock_guard lock(state->mutex);
    recording = state->submitted;
  }
  enqueueHost([state = std::move(state), recording] {
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->completed >= recording; });
    if (state->failure)
      std::rethrow_exception(state->failure);
  });
}

void CpuStream::synchronize() {
  std::unique_lock lock(mutex);
  idle.wait(lock, [&] { return queue.empty() && !busy; });
  if (failure)
    std::rethrow_exception(failure);
}

void CpuStream::runTask(Task &task) {
  if (task.record) {
    {
      std::lock_guard lock(task.record->mutex);
      if (failure)
        task.record->failure = failure;
      task.record->completed = std::max(task.record->completed, task.recording);
    }
    task.record->changed.notify_all();
    return;
  }
  if (failure)
    return;
  try {
    task.work();
  } catch (...) {
    {
      std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
    errors->report(failure);
  }
}

void CpuStream::runLoop() {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  useOneLibraryThread();
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stopping || !queue.empty(); });
    if (queue.empty())
      return;
    Task task = std::move(queue.front());
    queue.pop_front();
    busy = true;
    lock.unlock();
    runTask(task);
    task = {}; // releases what the work refers to before the stream counts as idle
    lock.lock();
    busy = false;
    if (queue.empty())
      idle.notify_all();
  }
}
