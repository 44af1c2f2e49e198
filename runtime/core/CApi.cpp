//===- CApi.cpp - the C interface -----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/include/gridloom.h"

#include "runtime/core/Error.h"
#include "runtime/core/SessionRunner.h"
#include "runtime/core/plan.pb.h"
#include "runtime/device/cuda/CallerContext.h"
#include "runtime/launch/Launcher.h"
#include "runtime/train/EventLog.h"
#include "runtime/train/SampleOrder.h"
#include "runtime/train/Schedule.h"

#include <atomic>
#include <cstring>
#include <future>
#include <list>
#include <set>
#include <thread>

using namespace gridloom::rt;

struct gridloom_plan {
  std::shared_ptr<const Plan> plan;
};

struct gridloom_memory {
  explicit gridloom_memory(HostArray array) : array(std::move(array)) {}
  HostArray array;
};

struct gridloom_session {
  ForkGuard origin;
  std::unique_ptr<SessionRunner> runner;
  RunStats stats;
  const EntrySpecialisation *last = nullptr;
  std::list<HostArray> outputs; // handed out since the last run
  struct Outcome {
    gridloom_status status;
    std::string message;
  };
  std::future<Outcome> pending;
  std::atomic<std::thread::id> caller; // the thread that a call is in progress on, or none
};

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

namespace {
/// The last error of a thread. `isLost`: its text could not be stored for lack of memory.
struct LastError {
  std::string text;
  bool isLost = false;
};
} // namespace

static LastError &lastError() {
  static thread_local LastError error;
  return error;
}

static gridloom_status report(gridloom_status status, const char *message) noexcept {
  LastError &error = lastError();
  try {
    error.text = message;
    error.isLost = false;
  } catch (const std::bad_alloc &) {
    error.isLost = true;
  }
  return status;
}

/// Runs `work` and converts exceptions to a status: none crosses the C interface.
template <typename Work> static gridloom_status guard(Work work) noexcept {
  try {
    CallerContext context;
    work();
    return GRIDLOOM_OK;
  } catch (const Error &error) {
    return report(gridloom_status(error.getCode()), error.what());
  } catch (const std::bad_alloc &) {
    return report(GRIDLOOM_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception &error) {
    return report(GRIDLOOM_INTERNAL, error.what());
  } catch (...) {
    return report(GRIDLOOM_INTERNAL, "an exception of unknown type was thrown");
  }
}

static void require(bool condition, const char *message) {
  if (!condition)
    throw Error(ErrorCode::InvalidArgument, message);
}

/// Throws in a call that is_interrupted makes: it would take the ranks' threads from the call that
/// waits for them.
static void requireOutsideCalls(const gridloom_session *session) {
  session->origin.check("the session");
  require(session->caller.load() != std::this_thread::get_id(),
          "a call is in progress on this thread; is_interrupted and signal handlers may make no "
          "other call of this session than abort");
}

static void requireOneCaller(bool isIdle) {
  require(isIdle,
          "a call is in progress on another thread; a session is used by one thread at a time");
}

static void requireIdle(const gridloom_session *session) {
  require(session, "the session is NULL");
  requireOutsideCalls(session);
  require(!session->pending.valid(), "a run is in progress; call gridloom_session_wait first");
  requireOneCaller(session->caller.load() == std::thread::id());
}

namespace {

/// Marks that a call is in progress on this thread, unless one is on another.
class Calling {
public:
  explicit Calling(gridloom_session &session) : session(session) {
    std::thread::id none;
    requireOneCaller(session.caller.compare_exchange_strong(none, std::this_thread::get_id()));
  }
  Calling(const Calling &) = delete;
  Calling &operator=(const Calling &) = delete;
  ~Calling() { session.caller = std::thread::id(); }

private:
  gridloom_session &session;
};

} // namespace

[[nodiscard]] static Calling enter(gridloom_session *session) {
  requireIdle(session);
  return Calling(*session);
}

const char *gridloom_version(void) { return GRIDLOOM_VERSION; }
const char *gridloom_last_error(void) {
  const LastError &error = lastError();
  return error.isLost ? "out of host memory" : error.text.c_str();
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

gridloom_status gridloom_plan_open(const char *path, gridloom_plan **plan) {
  return guard([&] {
    require(path && plan, "path or plan is NULL");
    *plan = new gridloom_plan{Plan::load(path)};
  });
}

gridloom_status gridloom_plan_open_signed(const char *path, const char *const *keys,
                                          int32_t num_keys, gridloom_plan **plan) {
  return guard([&] {
    require(path && plan, "path or plan is NULL");
    require(keys && num_keys > 0, "there are no keys; name the file of a public key");
    PlanOptions options;
    for (int32_t i = 0; i < num_keys; ++i) {
      require(keys[i], "a key is NULL");
      options.requireSignature.emplace_back(keys[i]);
    }
    *plan = new gridloom_plan{Plan::load(path, options)};
  });
}

void gridloom_plan_destroy(gridloom_plan *plan) { delete plan; }

int32_t gridloom_plan_num_ranks(const gridloom_plan *plan) {
  return plan ? plan->plan->getMesh().getNumRanks() : 0;
}

int32_t gridloom_plan_num_entries(const gridloom_plan *plan) {
  return plan ? int32_t(plan->plan->getEntries().size()) : 0;
}

static const Entry *findEntry(const gridloom_plan *plan, int32_t entry) {
  if (entry < 0 || entry >= gridloom_plan_num_entries(plan))
    return nullptr;
  return &plan->plan->getEntries()[size_t(entry)];
}

static const EntrySpecialisation *findSpecialisation(const gridloom_plan *plan, int32_t entry,
                                                     int32_t index) {
  const Entry *found = findEntry(plan, entry);
  if (!found || index < 0 || size_t(index) >= found->specialisations.size())
    return nullptr;
  return &found->specialisations[size_t(index)];
}

const char *gridloom_plan_entry_name(const gridloom_plan *plan, int32_t entry) {
  const Entry *found = findEntry(plan, entry);
  return found ? found->name.c_str() : nullptr;
}

int32_t gridloom_plan_num_specialisations(const gridloom_plan *plan, int32_t entry) {
  const Entry *found = findEntry(plan, entry);
  return found ? int32_t(found->specialisations.size()) : 0;
}

int32_t gridloom_plan_num_inputs(const gridloom_plan *plan, int32_t entry, int32_t specialisation) {
  const EntrySpecialisation *found = findSpecialisation(plan, entry, specialisation);
  return found ? int32_t(found->inputs.size()) : 0;
}

int32_t gridloom_plan_num_outputs(const gridloom_plan *plan, int32_t entry,
                                  int32_t specialisation) {
  const EntrySpecialisation *found = findSpecialisation(plan, entry, specialisation);
  return found ? int32_t(found->outputs.size()) : 0;
}

static gridloom_status describe(const gridloom_plan *plan, int32_t entry, int32_t specialisation,
                                int32_t index, bool output, gridloom_argument *argument) {
  return guard([&] {
    const EntrySpecialisation *found = findSpecialisation(plan, entry, specialisation);
    require(found && argument, "there is no such entry or specialisation, or argument is NULL");
    const std::vector<Argument> &list = output ? found->outputs : found->inputs;
    require(index >= 0 && size_t(index) < list.size(), "there is no such input or output");
    const Argument &from = list[size_t(index)];
    *argument = {from.name.c_str(), gridloom_type(from.type), int32_t(from.shape.size()),
                 from.shape.data()};
  });
}

gridloom_status gridloom_plan_input(const gridloom_plan *plan, int32_t entry,
                                    int32_t specialisation, int32_t index,
                                    gridloom_argument *argument) {
  return describe(plan, entry, specialisation, index, /*output=*/false, argument);
}

gridloom_status gridloom_plan_output(const gridloom_plan *plan, int32_t entry,
                                     int32_t specialisation, int32_t index,
                                     gridloom_argument *argument) {
  return describe(plan, entry, specialisation, index, /*output=*/true, argument);
}

/// The states of a plan, each once, in stage order.
static std::vector<const gridloom::schema::State *> listStates(const Plan &plan) {
  std::vector<const gridloom::schema::State *> states;
  std::set<std::string> names;
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    for (const gridloom::schema::State &state : plan.getStage(stage).states())
      if (names.insert(state.name()).second)
        states.push_back(&state);
  return states;
}

int32_t gridloom_plan_num_states(const gridloom_plan *plan) {
  return plan ? int32_t(listStates(*plan->plan).size()) : 0;
}

gridloom_status gridloom_plan_state(const gridloom_plan *plan, int32_t index,
                                    gridloom_argument *argument) {
  return guard([&] {
    require(plan, "the plan is NULL");
    std::vector<const gridloom::schema::State *> states = listStates(*plan->plan);
    require(argument && index >= 0 && size_t(index) < states.size(),
            "there is no such state, or argument is NULL");
    const gridloom::schema::State &state = *states[size_t(index)];
    *argument = {state.name().c_str(), gridloom_type(state.type()), state.global_shape_size(),
                 state.global_shape().data()};
  });
}

const char *gridloom_plan_state_role(const gridloom_plan *plan, int32_t index) {
  if (!plan || index < 0)
    return "";
  std::vector<const gridloom::schema::State *> states = listStates(*plan->plan);
  if (size_t(index) >= states.size())
    return "";
  return nameOf(getRole(*states[size_t(index)])).data();
}

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

gridloom_status gridloom_session_create(const gridloom_plan *plan,
                                        const gridloom_session_options *given,
                                        gridloom_session **session) {
  return guard([&] {
    require(plan && session, "plan or session is NULL");
    // A caller built against an older header passes a shorter struct; missing fields are zero.
    gridloom_session_options read = {};
    if (given) {
      require(given->size >= offsetof(gridloom_session_options, threads) &&
                  given->size <= sizeof(read),
              "options.size is not sizeof(gridloom_session_options)");
      std::memcpy(&read, given, given->size);
    }
    int ranks = 0; // a caller may put any number there
    static_assert(sizeof ranks == sizeof read.ranks);
    std::memcpy(&ranks, &read.ranks, sizeof ranks);
    require(ranks == GRIDLOOM_RANKS_IN_PROCESS || ranks == GRIDLOOM_RANK_FROM_ENVIRONMENT,
            "options.ranks is neither GRIDLOOM_RANKS_IN_PROCESS nor "
            "GRIDLOOM_RANK_FROM_ENVIRONMENT; how many ranks there are, the plan says");
    InProcessOptions options;
    options.placement.threads = read.threads;
    options.session.weights = read.weights ? read.weights : "";
    options.session.verifyModel = read.verify_model;
    options.session.trace = read.trace;
    options.session.serialize = read.serialize;
    options.session.graphs = !read.no_graphs;
    options.session.autotune = read.autotune;
    options.session.checkIndices = read.check_indices;
    if (read.init_seed) {
      require(plan->plan->drawsStates(),
              "the plan draws no states, which init_seed is for; compile "
              "it with --init");
      options.session.initSeed = *read.init_seed;
    }
    options.placement.transport = read.transport ? read.transport : "";
    if (read.is_interrupted)
      options.isInterrupted = [ask = read.is_interrupted, data = read.interrupt_data] {
        return ask(data) != 0;
      };
    if (read.deadline_ms)
      options.placement.limits.deadline = std::chrono::milliseconds(read.deadline_ms);
    auto made = std::make_unique<gridloom_session>();
    if (ranks == GRIDLOOM_RANK_FROM_ENVIRONMENT)
      made->runner = makeRankRunner(plan->plan, options);
    else
      made->runner = makeJobRunner(plan->plan, options);
    *session = made.release();
  });
}

gridloom_status gridloom_job_abort(const char *reason) {
  return guard([&] {
    require(reason, "the reason is NULL");
    if (std::optional<World> world = detectWorld(getProcessEnvironment()))
      abortJob(*world, reason);
  });
}

gridloom_status gridloom_session_abort(gridloom_session *session, const char *reason) {
  return guard([&] {
    require(session && reason, "the session or the reason is NULL");
    session->origin.check("the session");
    session->runner->abort(reason);
  });
}

void gridloom_session_destroy(gridloom_session *session) {
  if (session && session->origin.isForked())
    return; // its threads and memory belong to the parent process
  if (session && session->caller.load() == std::this_thread::get_id())
    return; // is_interrupted calls: the call that asks it goes on
  if (session && session->pending.valid())
    session->pending.wait();
  CallerContext context;
  delete session;
}

/// Borrows the tensor's data.
static HostArray toArray(const gridloom_tensor *tensor) {
  require(tensor && tensor->rank >= 0 && tensor->rank <= 64 && (tensor->shape || !tensor->rank),
          "the tensor is NULL or has no shape");
  require(isDataType(tensor->type), "the tensor has an unknown element type");
  std::vector<int64_t> shape;
  for (int32_t i = 0; i < tensor->rank; ++i)
    shape.push_back(tensor->shape[i]);
  HostArray array = HostArray::borrow(DataType(tensor->type), std::move(shape), tensor->data);
  require(tensor->data || !array.getNumElements(), "the tensor's data is NULL");
  return array;
}

gridloom_status gridloom_session_bind(gridloom_session *session, const char *name,
                                      const gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name, "the name is NULL");
    session->runner->bind(name, toArray(tensor));
  });
}

gridloom_status gridloom_session_bind_shard(gridloom_session *session, int32_t rank,
                                            const char *name, const gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && rank >= 0, "the name is NULL or the rank negative");
    session->runner->getSession(rank).bindShard(name, toArray(tensor));
  });
}

static void run(gridloom_session *session, const std::string &entry,
                const std::map<std::string, int64_t> &dims) {
  session->outputs.clear();
  session->last = nullptr;
  session->stats = session->runner->run(entry, dims);
  session->last = &session->runner->getSession(-1).getLastSpecialisation();
}

static std::map<std::string, int64_t> readDims(const char *const *dims, const int64_t *values,
                                               int32_t count) {
  require(count <= 0 || (dims && values), "dims or values is NULL");
  std::map<std::string, int64_t> result;
  for (int32_t i = 0; i < count; ++i) {
    require(dims[i], "a dim's name is NULL");
    result[dims[i]] = values[i];
  }
  return result;
}

gridloom_status gridloom_session_run(gridloom_session *session, const char *entry,
                                     const char *const *dims, const int64_t *values,
                                     int32_t count) {
  return guard([&] {
    Calling calling = enter(session);
    run(session, entry ? entry : "main", readDims(dims, values, count));
  });
}

gridloom_status gridloom_session_run_async(gridloom_session *session, const char *entry,
                                           const char *const *dims, const int64_t *values,
                                           int32_t count) {
  return guard([&] {
    requireIdle(session);
    session->pending =
        std::async(std::launch::async,
                   [session, entry = std::string(entry ? entry : "main"),
                    dims = readDims(dims, values, count)]() -> gridloom_session::Outcome {
                     gridloom_status status = guard([&] {
                       Calling calling(*session);
                       run(session, entry, dims);
                     });
                     return {status, status == GRIDLOOM_OK ? "" : gridloom_last_error()};
                   });
  });
}

gridloom_status gridloom_session_wait(gridloom_session *session) {
  if (!session)
    return report(GRIDLOOM_INVALID_ARGUMENT, "the session is NULL");
  gridloom_status status = GRIDLOOM_OK;
  gridloom_status waited = guard([&] {
    requireOutsideCalls(session);
    if (!session->pending.valid())
      return;
    gridloom_session::Outcome outcome = session->pending.get();
    status = outcome.status == GRIDLOOM_OK ? GRIDLOOM_OK
                                           : report(outcome.status, outcome.message.c_str());
  });
  return waited == GRIDLOOM_OK ? status : waited;
}

int32_t gridloom_session_num_outputs(const gridloom_session *session) {
  if (!session || session->pending.valid() || !session->last)
    return 0;
  return int32_t(session->last->outputs.size());
}

const char *gridloom_session_output_name(const gridloom_session *session, int32_t index) {
  if (index < 0 || index >= gridloom_session_num_outputs(session))
    return nullptr;
  return session->last->outputs[size_t(index)].name.c_str();
}

/// All states of the session's plan.
static std::map<std::string, Checkpoint::Wanted> listWanted(const gridloom_session &session) {
  const Plan &plan = session.runner->getSession(-1).getPlan();
  std::map<std::string, Checkpoint::Wanted> wanted;
  for (const gridloom::schema::State *state : listStates(plan))
    wanted[state->name()] = {DataType(state->type()),
                             {state->global_shape().begin(), state->global_shape().end()}};
  return wanted;
}

static gridloom_tensor show(HostArray &array) {
  return {gridloom_type(array.getType()), int32_t(array.getShape().size()), array.getShape().data(),
          array.getMutableData()};
}

/// Shows the array to the caller, who keeps it; null if there is none.
static void handOver(HostArray array, gridloom_tensor *tensor, gridloom_memory **memory) {
  auto taken = std::make_unique<gridloom_memory>(std::move(array));
  *tensor = show(taken->array);
  *memory = taken->array.isNull() ? nullptr : taken.release();
}

/// Keeps the array until the next run and shows it to the caller.
static void handOut(gridloom_session *session, HostArray array, gridloom_tensor *tensor) {
  session->outputs.push_back(std::move(array));
  *tensor = show(session->outputs.back());
}

gridloom_status gridloom_session_take_output(gridloom_session *session, const char *name,
                                             gridloom_tensor *tensor, gridloom_memory **memory) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && tensor && memory, "the name, the tensor or the memory is NULL");
    handOver(session->runner->getOutput(name), tensor, memory);
  });
}

void gridloom_memory_release(gridloom_memory *memory) { delete memory; }

gridloom_status gridloom_session_output(gridloom_session *session, const char *name,
                                        gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && tensor, "the name or the tensor is NULL");
    handOut(session, session->runner->getOutput(name), tensor);
  });
}

gridloom_status gridloom_session_output_shard(gridloom_session *session, int32_t rank,
                                              const char *name, gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && tensor && rank >= 0, "the name or the tensor is NULL, or the rank negative");
    handOut(session, session->runner->getSession(rank).getOutputShard(name), tensor);
  });
}

gridloom_status gridloom_session_update_weights(gridloom_session *session, const char *path) {
  return guard([&] {
    Calling calling = enter(session);
    require(path, "the path is NULL");
    session->runner->updateWeights(path);
  });
}

gridloom_status gridloom_session_reset_states(gridloom_session *session) {
  return guard([&] {
    Calling calling = enter(session);
    session->runner->resetStates();
  });
}

gridloom_status gridloom_session_get_state(gridloom_session *session, const char *name,
                                           gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && tensor, "the name or the tensor is NULL");
    handOut(session, session->runner->getState(name), tensor);
  });
}

gridloom_status gridloom_session_take_state(gridloom_session *session, const char *name,
                                            gridloom_tensor *tensor, gridloom_memory **memory) {
  return guard([&] {
    Calling calling = enter(session);
    require(name && tensor && memory, "the name, the tensor or the memory is NULL");
    handOver(session->runner->getState(name), tensor, memory);
  });
}

gridloom_status gridloom_session_set_state(gridloom_session *session, const char *name,
                                           const gridloom_tensor *tensor) {
  return guard([&] {
    Calling calling = enter(session);
    require(name, "the name is NULL");
    session->runner->setState(name, toArray(tensor));
  });
}

gridloom_status gridloom_session_save(gridloom_session *session, const char *path,
                                      const gridloom_progress *progress) {
  return guard([&] {
    Calling calling = enter(session);
    require(path && progress, "the path or the progress is NULL");
    require(progress->step >= 0 && progress->cursor >= 0 && progress->samples >= 0,
            "the progress is negative");
    Checkpoint checkpoint;
    checkpoint.progress = {progress->step, progress->cursor, progress->samples, progress->seed};
    checkpoint.roles = getRoles(session->runner->getSession(-1).getPlan());
    checkpoint.ties = getTiedWeights(session->runner->getSession(-1).getPlan());
    for (const auto &[name, wanted] : listWanted(*session))
      checkpoint.states[name] = session->runner->getState(name);
    session->runner->agree("saving the checkpoint", [&] {
      if (const Session &here = session->runner->getSession(-1); here.getRank() == 0) {
        here.getPlan().requireOutside("checkpoint", path);
        checkpoint.write(path);
      }
      return checkpoint.progress;
    });
  });
}

gridloom_status gridloom_session_restore(gridloom_session *session, const char *path,
                                         gridloom_progress *progress) {
  return guard([&] {
    Calling calling = enter(session);
    require(path, "the path is NULL");
    Checkpoint checkpoint;
    session->runner->agree("restoring the checkpoint", [&] {
      checkpoint = Checkpoint::read(findCheckpoint(path));
      checkpoint.requireFits(listWanted(*session));
      return checkpoint.progress;
    });
    for (const auto &[name, array] : checkpoint.states)
      session->runner->setState(name, array);
    checkpoint.requireUnchanged();
    const TrainingProgress &read = checkpoint.progress;
    if (progress)
      *progress = {read.step, read.cursor, read.numSamples, read.seed};
  });
}

gridloom_status gridloom_schedule_factor(const char *schedule, int64_t steps, int64_t step,
                                         double *factor) {
  return guard([&] {
    require(schedule && factor, "the schedule or the factor is NULL");
    require(steps >= 0 && step >= 0, "the steps or the step is negative");
    *factor = Schedule::parse(schedule, steps).getFactor(step);
  });
}

gridloom_status gridloom_sample_order(int64_t samples, uint64_t seed, int64_t cursor, int64_t count,
                                      int64_t *indices) {
  return guard([&] {
    require(samples > 0 && cursor >= 0 && count >= 0 && (indices || !count),
            "there are no samples, the cursor or the count is negative, or indices is NULL");
    require(cursor <= INT64_MAX - count, "the cursor is too large");
    std::vector<int64_t> order = SampleOrder(samples, seed).getBatch(cursor, count);
    std::copy(order.begin(), order.end(), indices);
  });
}

struct gridloom_events {
  EventLog log;
};

gridloom_status gridloom_events_create(const char *folder, int64_t step, gridloom_events **events) {
  return guard([&] {
    require(folder && events, "the folder or the events are NULL");
    std::optional<EventPlace> place;
    if (step == 0)
      EventLog::moveEarlier(folder);
    else if (step > 0)
      place = EventPlace{step, false};
    *events = new gridloom_events{EventLog(folder, place)};
  });
}

gridloom_status gridloom_events_scalars(gridloom_events *events, int64_t step,
                                        const char *const *tags, const double *values,
                                        int32_t count) {
  return guard([&] {
    require(events && count >= 0 && ((tags && values) || !count),
            "the events, tags or values are NULL");
    std::map<std::string, double> scalars;
    for (int32_t i = 0; i < count; ++i)
      scalars[tags[i]] = values[i];
    events->log.add(step, scalars);
  });
}

gridloom_status gridloom_events_histogram(gridloom_events *events, int64_t step, const char *tag,
                                          const gridloom_tensor *tensor) {
  return guard([&] {
    require(events && tag, "the events or the tag are NULL");
    events->log.add(step, tag, Histogram::of(toArray(tensor)));
  });
}

gridloom_status gridloom_events_sync(gridloom_events *events) {
  return guard([&] {
    require(events, "the events are NULL");
    events->log.flush();
    events->log.sync();
  });
}

void gridloom_events_destroy(gridloom_events *events) { delete events; }

gridloom_status gridloom_session_stats(const gridloom_session *session, gridloom_stats *stats) {
  return guard([&] {
    requireIdle(session);
    require(stats, "stats is NULL");
    require(session->last, "nothing has run yet");
    *stats = {session->stats.wall,    session->stats.compute, session->stats.communication,
              session->stats.exposed, session->stats.overlap, session->stats.bubble};
  });
}

gridloom_status gridloom_session_write_trace(gridloom_session *session, const char *path) {
  return guard([&] {
    Calling calling = enter(session);
    require(path, "the path is NULL");
    session->runner->writeTrace(path);
  });
}
