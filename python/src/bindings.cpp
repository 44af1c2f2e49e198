//===- bindings.cpp - sessions for Python -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Wraps the C interface for Python. Tensors are passed as flat bytes with a type number and a
// shape; gridloom/session.py converts them to numpy types, so that types that numpy lacks need no
// code here.
//
//===----------------------------------------------------------------------===//
#include "runtime/include/gridloom.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace nb = nanobind;

namespace {

using InputBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutputBytes = nb::ndarray<uint8_t, nb::numpy, nb::ndim<1>, nb::c_contig>;

/// A failed call; converted to gridloom.Error.
struct Failure {
  gridloom_status status;
  std::string message;
};

void check(gridloom_status status) {
  if (status != GRIDLOOM_OK)
    throw Failure{status, gridloom_last_error()};
}

//===----------------------------------------------------------------------===//
// The end of the interpreter
//===----------------------------------------------------------------------===//
//
// A daemon thread may be in a call when the interpreter ends. Until Python 3.14 a thread that takes
// the GIL then is ended by pthread_exit, which aborts the process where it meets C++ that catches
// or throws nothing. So other threads than the one that ends the interpreter keep away from the GIL
// from atexit on.

std::atomic<bool> isEnding = false;
std::atomic<int> numTaking = 0; // threads that are about to take the GIL
std::thread::id endingThread;   // set before isEnding

/// Whether this thread may take the GIL. If so, endTaking is to be called once it has it.
bool beginTaking() {
  ++numTaking;
  if (!isEnding || std::this_thread::get_id() == endingThread)
    return true;
  --numTaking;
  return false;
}
void endTaking() { --numTaking; }

/// Called at exit, by what importing gridloom registers: after the functions that a program
/// registers, which may wait for its threads.
void keepThreadsAway() {
  endingThread = std::this_thread::get_id();
  isEnding = true;
  if (nb::cast<int>(nb::module_::import_("threading").attr("active_count")()) > 1)
    nb::set_leak_warnings(false); // daemon threads, which do not go on, keep what they use
  // Those that are taking it get it. A forked process waits in vain for its parent's threads.
  nb::gil_scoped_release release;
  for (int i = 0; i < 1000 && numTaking > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Releases the GIL. Its end takes it again, or waits for the end of the process.
class Unlocked {
public:
  Unlocked() : state(PyEval_SaveThread()) {}
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;
  ~Unlocked() {
    while (!beginTaking())
      pause();
    PyEval_RestoreThread(state);
    endTaking();
  }

private:
  PyThreadState *state;
};

/// Makes a call of the C interface without the GIL. Throws what Python's signal handlers raised
/// meanwhile (KeyboardInterrupt), else the call's failure.
template <typename Call> void callUnlocked(Call call) {
  gridloom_status status;
  {
    Unlocked unlocked;
    status = call();
  }
  // A signal that came after the last poll is handled before the failure becomes an exception.
  if (PyErr_Occurred() || PyErr_CheckSignals() != 0)
    throw nb::python_error();
  check(status);
}

/// Runs Python's signal handlers, which happens only on its main thread.
int isInterrupted(void *) {
  if (!beginTaking())
    return 0;
  nb::gil_scoped_acquire acquire;
  endTaking();
  return PyErr_CheckSignals();
}

size_t sizeOf(gridloom_type type) {
  switch (type) {
  case GRIDLOOM_F64:
  case GRIDLOOM_I64:
  case GRIDLOOM_U64:
    return 8;
  case GRIDLOOM_F32:
  case GRIDLOOM_I32:
  case GRIDLOOM_U32:
    return 4;
  case GRIDLOOM_F16:
  case GRIDLOOM_BF16:
  case GRIDLOOM_I16:
  case GRIDLOOM_U16:
    return 2;
  case GRIDLOOM_I8:
  case GRIDLOOM_U8:
  case GRIDLOOM_BOOL:
  case GRIDLOOM_F8E4M3FN:
  case GRIDLOOM_F8E5M2:
  case GRIDLOOM_F8E4M3FNUZ:
  case GRIDLOOM_F8E5M2FNUZ:
    return 1;
  }
  throw Failure{GRIDLOOM_INTERNAL, "unknown element type " + std::to_string(int(type))};
}

/// Releases the GIL, since destroying a session waits for its run.
struct SessionDeleter {
  void operator()(gridloom_session *session) const {
    Unlocked unlocked;
    gridloom_session_destroy(session);
  }
};
struct MemoryDeleter {
  void operator()(gridloom_memory *memory) const { gridloom_memory_release(memory); }
};
struct PlanDeleter {
  void operator()(gridloom_plan *plan) const { gridloom_plan_destroy(plan); }
};

gridloom_tensor view(int type, const std::vector<int64_t> &shape, const InputBytes &bytes) {
  return {gridloom_type(type), int32_t(shape.size()), shape.data(),
          const_cast<uint8_t *>(bytes.data())};
}

/// A session and the arrays bound to it. One Python thread at a time may call it: session.py locks.
class Session {
public:
  Session(const std::string &path, bool fromEnvironment, uint32_t threads,
          const std::optional<std::string> &weights, bool trace, uint32_t deadlineMs, bool graphs,
          const std::string &transport, bool autotune, bool checkIndices,
          std::optional<uint64_t> initSeed, const std::vector<std::string> &requireSignature) {
    gridloom_session_options options = {};
    options.size = sizeof(options);
    options.ranks = fromEnvironment ? GRIDLOOM_RANK_FROM_ENVIRONMENT : GRIDLOOM_RANKS_IN_PROCESS;
    options.threads = threads;
    options.weights = weights ? weights->c_str() : nullptr;
    options.trace = trace;
    options.deadline_ms = deadlineMs;
    options.no_graphs = !graphs;
    options.autotune = autotune;
    options.check_indices = checkIndices;
    options.init_seed = initSeed ? &*initSeed : nullptr;
    options.transport = transport.empty() ? nullptr : transport.c_str();
    options.is_interrupted = &isInterrupted;
    gridloom_plan *openedPlan = nullptr;
    gridloom_session *created = nullptr;
    std::vector<const char *> keys;
    for (const std::string &key : requireSignature)
      keys.push_back(key.c_str());
    auto create = [&] {
      gridloom_status status = keys.empty()
                                   ? gridloom_plan_open(path.c_str(), &openedPlan)
                                   : gridloom_plan_open_signed(path.c_str(), keys.data(),
                                                               int32_t(keys.size()), &openedPlan);
      if (status != GRIDLOOM_OK) {
        std::string reason = gridloom_last_error();
        if (fromEnvironment)
          gridloom_job_abort(reason.c_str()); // the other ranks may have opened the plan
        throw Failure{status, reason};
      }
      plan.reset(openedPlan);
      status = gridloom_session_create(openedPlan, &options, &created);
      session.reset(created); // keep it even if an interrupt is thrown
      return status;
    };
    callUnlocked(create);
  }

  void bind(const std::string &name, int type, const std::vector<int64_t> &shape,
            InputBytes bytes) {
    gridloom_tensor tensor = view(type, shape, bytes);
    check(gridloom_session_bind(session.get(), name.c_str(), &tensor));
    bound.insert_or_assign(name, std::move(bytes));
  }

  void run(const std::string &entry, const std::map<std::string, int64_t> &dims) {
    std::vector<const char *> names;
    std::vector<int64_t> values;
    for (const auto &[name, value] : dims) {
      names.push_back(name.c_str());
      values.push_back(value);
    }
    callUnlocked([&] {
      return gridloom_session_run(session.get(), entry.c_str(), names.data(), values.data(),
                                  int32_t(names.size()));
    });
  }

  /// The last run's outputs as (type, shape, bytes); None for outputs in another process.
  nb::dict outputs() {
    nb::dict result;
    for (int32_t i = 0; i < gridloom_session_num_outputs(session.get()); ++i) {
      const char *name = gridloom_session_output_name(session.get(), i);
      result[name] = take(&gridloom_session_take_output, name);
    }
    return result;
  }

  void updateWeights(const std::string &path) {
    callUnlocked([&] { return gridloom_session_update_weights(session.get(), path.c_str()); });
  }

  void resetStates() {
    callUnlocked([&] { return gridloom_session_reset_states(session.get()); });
  }

  /// Names, types, global shapes and roles of the states.
  nb::list states() {
    nb::list result;
    for (int32_t i = 0; i < gridloom_plan_num_states(plan.get()); ++i) {
      gridloom_argument state = {nullptr, GRIDLOOM_F32, 0, nullptr};
      check(gridloom_plan_state(plan.get(), i, &state));
      std::vector<int64_t> shape(state.shape, state.shape + state.rank);
      const char *role = gridloom_plan_state_role(plan.get(), i);
      result.append(nb::make_tuple(state.name, int(state.type), shape, role));
    }
    return result;
  }

  /// A state as (type, shape, bytes); None if it is in another process.
  nb::object getState(const std::string &name) {
    return take(&gridloom_session_take_state, name.c_str());
  }

  void setState(const std::string &name, int type, const std::vector<int64_t> &shape,
                const InputBytes &bytes) {
    gridloom_tensor tensor = view(type, shape, bytes);
    callUnlocked([&] { return gridloom_session_set_state(session.get(), name.c_str(), &tensor); });
  }

  void save(const std::string &path, int64_t step, int64_t cursor, int64_t samples, uint64_t seed) {
    gridloom_progress progress{step, cursor, samples, seed};
    callUnlocked([&] { return gridloom_session_save(session.get(), path.c_str(), &progress); });
  }

  /// Returns step, cursor, samples, seed.
  nb::tuple restore(const std::string &path) {
    gridloom_progress progress = {};
    callUnlocked([&] { return gridloom_session_restore(session.get(), path.c_str(), &progress); });
    return nb::make_tuple(progress.step, progress.cursor, progress.samples, progress.seed);
  }

  std::map<std::string, double> stats() {
    gridloom_stats stats = {};
    check(gridloom_session_stats(session.get(), &stats));
    return {{"wall_ms", stats.wall_ms},       {"compute_ms", stats.compute_ms},
            {"exposed_ms", stats.exposed_ms}, {"communication_ms", stats.communication_ms},
            {"overlap", stats.overlap},       {"bubble", stats.bubble}};
  }

  void writeTrace(const std::string &path) {
    callUnlocked([&] { return gridloom_session_write_trace(session.get(), path.c_str()); });
  }

  void abort(const std::string &reason) {
    callUnlocked([&] { return gridloom_session_abort(session.get(), reason.c_str()); });
  }

  int numRanks() { return gridloom_plan_num_ranks(plan.get()); }

private:
  static size_t countBytes(const gridloom_tensor &tensor) {
    size_t size = sizeOf(tensor.type);
    for (int32_t i = 0; i < tensor.rank; ++i)
      size *= size_t(tensor.shape[i]);
    return size;
  }

  /// An output or state as (type, shape, bytes), in memory that the bytes own; None if it is in
  /// another process.
  nb::object take(decltype(&gridloom_session_take_output) takeFrom, const char *name) {
    gridloom_tensor tensor = {GRIDLOOM_F32, 0, nullptr, nullptr};
    std::unique_ptr<gridloom_memory, MemoryDeleter> memory;
    callUnlocked([&] {
      gridloom_memory *taken = nullptr;
      gridloom_status status = takeFrom(session.get(), name, &tensor, &taken);
      memory.reset(taken); // keep it even if an interrupt is thrown
      return status;
    });
    if (!memory)
      return nb::none();
    std::vector<int64_t> shape(tensor.shape, tensor.shape + tensor.rank);
    auto *data = static_cast<uint8_t *>(tensor.data);
    nb::capsule owner(memory.release(), [](void *p) noexcept {
      gridloom_memory_release(static_cast<gridloom_memory *>(p));
    });
    return nb::make_tuple(int(tensor.type), shape, OutputBytes(data, {countBytes(tensor)}, owner));
  }

  std::unique_ptr<gridloom_plan, PlanDeleter> plan;
  /// Declared before the session, so that it is destroyed after it: runs read these arrays.
  std::map<std::string, InputBytes> bound;
  std::unique_ptr<gridloom_session, SessionDeleter> session;
};

/// A TensorBoard event file.
class Events {
public:
  Events(const std::string &folder, int64_t step) {
    gridloom_events *created = nullptr;
    check(gridloom_events_create(folder.c_str(), step, &created));
    events.reset(created);
  }

  void scalars(int64_t step, const std::map<std::string, double> &numbers) {
    std::vector<const char *> tags;
    std::vector<double> values;
    for (const auto &[tag, value] : numbers) {
      tags.push_back(tag.c_str());
      values.push_back(value);
    }
    check(gridloom_events_scalars(events.get(), step, tags.data(), values.data(),
                                  int32_t(tags.size())));
  }

  void histogram(int64_t step, const std::string &tag, int type, const std::vector<int64_t> &shape,
                 const InputBytes &bytes) {
    gridloom_tensor tensor = view(type, shape, bytes);
    check(gridloom_events_histogram(events.get(), step, tag.c_str(), &tensor));
  }

  void sync() { check(gridloom_events_sync(events.get())); }

private:
  struct Deleter {
    void operator()(gridloom_events *events) const { gridloom_events_destroy(events); }
  };
  std::unique_ptr<gridloom_events, Deleter> events;
};

double getScheduleFactor(const std::string &schedule, int64_t steps, int64_t step) {
  double factor = 0;
  check(gridloom_schedule_factor(schedule.c_str(), steps, step, &factor));
  return factor;
}

std::vector<int64_t> getSampleOrder(int64_t samples, uint64_t seed, int64_t cursor, int64_t count) {
  std::vector<int64_t> indices(size_t(std::max<int64_t>(count, 0)));
  check(gridloom_sample_order(samples, seed, cursor, count, indices.data()));
  return indices;
}

} // namespace

NB_MODULE(_native, module) {
  module.def("version", &gridloom_version);
  module.def("schedule_factor", &getScheduleFactor);
  module.def("sample_order", &getSampleOrder);
  nb::register_exception_translator([](const std::exception_ptr &pointer, void *) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Failure &failure) {
      try {
        nb::object type = nb::module_::import_("gridloom.errors").attr("Error");
        nb::object error = type(failure.message, int(failure.status));
        PyErr_SetObject(type.ptr(), error.ptr());
      } catch (nb::python_error &raised) { // by a signal handler
        raised.restore();
      }
    }
  });
  module.def("keep_threads_away", &keepThreadsAway);
  nb::class_<Events>(module, "Events")
      .def(nb::init<const std::string &, int64_t>())
      .def("scalars", &Events::scalars)
      .def("histogram", &Events::histogram)
      .def("sync", &Events::sync);
  nb::class_<Session>(module, "Session")
      .def(nb::init<const std::string &, bool, uint32_t, const std::optional<std::string> &, bool,
                    uint32_t, bool, const std::string &, bool, bool, std::optional<uint64_t>,
                    const std::vector<std::string> &>())
      .def("bind", &Session::bind)
      .def("run", &Session::run)
      .def("outputs", &Session::outputs)
      .def("states", &Session::states)
      .def("get_state", &Session::getState)
      .def("set_state", &Session::setState)
      .def("save", &Session::save)
      .def("restore", &Session::restore)
      .def("reset_states", &Session::resetStates)
      .def("update_weights", &Session::updateWeights)
      .def("stats", &Session::stats)
      .def("abort", &Session::abort)
      .def("write_trace", &Session::writeTrace)
      .def("num_ranks", &Session::numRanks);
}
