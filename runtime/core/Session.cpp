//===- Session.cpp - one rank's loaded plan -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Session.h"

#include "runtime/core/Environment.h"
#include "runtime/core/Error.h"
#include "runtime/core/MemoryNeeds.h"
#include "runtime/core/SessionImpl.h"
#include "support/Draw.h"

#include <algorithm>
#include <array>
#include <cstring>

using namespace gridloom;
using namespace gridloom::rt;

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Session::Impl::Impl(std::shared_ptr<const Plan> givenPlan, Device &device, Transport *transport,
                    SessionOptions givenOptions)
    : plan(std::move(givenPlan)), device(device), transport(transport),
      options(std::move(givenOptions)) {
  int ranks = plan->getMesh().getNumRanks(), size = transport ? transport->getSize() : 1;
  if (size != ranks)
    throw Error(ErrorCode::InvalidArgument, "the plan is for " + std::to_string(ranks) +
                                                " ranks, the job has " + std::to_string(size) +
                                                "; run it with -n " + std::to_string(ranks));
  if (plan->getTargetKind() != device.getKind())
    throw Error(ErrorCode::InvalidArgument,
                "the plan is for " + plan->getTargetKind() + ", the device is " + device.getName());
  rank = transport ? transport->getRank() : 0;
  stageNumber = plan->getMesh().getStage(rank);
  try {
    start();
  } catch (...) {
    device.setErrorHandler({}); // it uses the transport, which may be destroyed first
    throw;
  }
}

void Session::Impl::start() {
  int ranks = plan->getMesh().getNumRanks();
  if (ranks > 1) {
    control = std::make_unique<ControlChannel>(*plan, device, *transport);
    device.setErrorHandler(
        [peers = transport](const std::string &reason) { peers->abort(reason); });
    requireEqualPlans();
  }
  agreeOnWeights("loading the plan", [&] { return load(); });
  if (ranks > 1) {
    communicators = std::make_unique<Communicators>(*plan, rank, *transport);
    communicators->registerMemory(*registered);
  }
  openTuning();
  agree("preparing the programs", [&] { prepare(); });
  closeTuning();
  requireEqualLibraries();
  agreeOnGraphs();
}

/// Each rank's text in rank order, cut to 255 bytes.
std::vector<std::string> Session::Impl::exchangeTexts(const std::string &mine) {
  if (!control)
    return {mine};
  std::array<char, 256> padded = {};
  mine.copy(padded.data(), padded.size() - 1);
  std::vector<std::string> texts;
  for (const std::vector<std::byte> &bytes :
       control->allGather(std::as_bytes(std::span<const char>(padded))))
    texts.emplace_back(reinterpret_cast<const char *>(bytes.data()));
  return texts;
}

/// All ranks use measured algorithms, or none do: replicas computed by different algorithms would
/// differ in their last bits.
void Session::Impl::openTuning() {
  std::string name = device.getTuningName();
  if (name.empty()) {
    if (options.autotune)
      warn("there is nothing to autotune on " + device.getName());
    return;
  }
  tuning = std::make_shared<AutotuneCache>(plan->getFolder() / "autotune", name, options.autotune);
  if (!tuning->getComplaint().empty())
    warn(tuning->getComplaint());
  if (plan->getSignature()) { // nobody has signed them
    tuning->clear();
    remark("measured algorithms are not used: a signature is required, and they have none");
  }
  std::vector<std::string> names = exchangeTexts(name),
                           digests = exchangeTexts(tuning->getDigest());
  auto findOther = [](const std::vector<std::string> &texts) {
    return std::find_if(texts.begin(), texts.end(), [&](auto &text) { return text != texts[0]; }) -
           texts.begin();
  };
  if (size_t other = size_t(findOther(names)); other < names.size()) {
    tuning.reset();
    if (options.autotune)
      warn("nothing is measured: rank " + std::to_string(other) + " runs on " + names[other] +
           ", rank 0 on " + names[0]);
  } else if (other = size_t(findOther(digests)); other < digests.size()) {
    tuning->clear();
    warn("measured algorithms are not used: rank " + std::to_string(other) +
         " has others than rank 0; give all ranks the same folder autotune in the plan");
  }
  device.setTuning(tuning);
}

/// Rank 0 saves the measurements of all ranks in its file.
void Session::Impl::closeTuning() {
  if (!tuning || !options.autotune)
    return;
  std::vector<std::string> measured = gatherText(tuning->getMeasured());
  if (rank != 0)
    return;
  for (size_t other = 1; other < measured.size(); ++other)
    tuning->merge(measured[other]);
  if (tuning->getNumMeasured() == 0)
    return;
  std::string problem = tuning->save();
  if (!problem.empty())
    warn(problem);
  else
    remark("measured " + std::to_string(tuning->getNumMeasured()) +
           " library calls; the best algorithms are used from the next load on");
}

/// If some ranks launched graphs and others single steps, they could deadlock: all do the same.
void Session::Impl::agreeOnGraphs() {
  std::string obstacle;
  if (!options.graphs)
    obstacle = "they are turned off";
  else if (options.trace)
    obstacle = "a trace times every step";
  else if (options.inProcess && transport && transport->getName() == "nccl" &&
           getEnvironment("GRIDLOOM_IN_PROCESS_GRAPHS", "0") != "1")
    obstacle = "NCCL may deadlock in graphs of several GPUs of one process; start a process for "
               "each rank";
  else
    obstacle = device.whyNotCapturable();
  if (obstacle.empty() && control)
    obstacle = transport->whyNotCapturable();
  std::vector<std::string> obstacles = exchangeTexts(obstacle);
  usesGraphs = true;
  for (size_t other = 0; other < obstacles.size() && usesGraphs; ++other) {
    usesGraphs = obstacles[other].empty();
    if (!usesGraphs && !device.hasHostMemory()) // graphs save little on a CPU
      remark("no graphs: " + obstacles[other] +
             (other == 0 ? "" : " (rank " + std::to_string(other) + ")"));
  }
}

/// Captures a program that has run once, on all ranks, or on none if a rank cannot.
void Session::Impl::capture(LoadedProgram &loaded, const ProgramMemory &memory) {
  std::string refusal;
  try {
    loaded.program->capture(memory);
  } catch (const Error &error) {
    // Failed communication is an error, not a refusal to capture.
    if (error.getCode() == ErrorCode::PeerFailed || error.getCode() == ErrorCode::DeadlineExceeded)
      throw;
    refusal = error.what();
  }
  std::vector<std::string> refusals = exchangeTexts(refusal);
  for (size_t other = 0; other < refusals.size() && !loaded.refused; ++other)
    if (!refusals[other].empty()) {
      loaded.refused = true;
      loaded.program->dropGraphs();
      remark("no graphs for entry " + loaded.entry->name + ": rank " + std::to_string(other) +
             " could not capture it: " + refusals[other]);
    }
}

static void drain(Stream &stream) {
  try {
    stream.synchronize();
  } catch (const std::exception &) {
    return; // run reports it
  }
}

Session::Impl::~Impl() {
  if (hostStream) // its copies use memory of programs
    drain(*hostStream);
  programs.clear();
  for (auto &[name, stream] : streams)
    drain(*stream);
  if (control)
    device.setErrorHandler({});
}

void Session::Impl::requireEqualPlans() {
  const std::string &mine = plan->getDigest();
  auto bytes = std::as_bytes(std::span(mine.data(), mine.size()));
  std::vector<std::vector<std::byte>> all = control->allGather(bytes);
  for (size_t other = 0; other < all.size(); ++other)
    if (all[other] != all[0]) {
      auto shorten = [](const std::vector<std::byte> &digest) {
        return std::string(reinterpret_cast<const char *>(digest.data()), 12);
      };
      throw Error(ErrorCode::InvalidPlan, "rank " + std::to_string(other) + " has plan " +
                                              shorten(all[other]) + ", rank 0 has plan " +
                                              shorten(all[0]) + "; give all ranks the same plan");
    }
}

/// Does `work`, which may fail on this rank alone; if it fails on any rank, throws on all.
void Session::Impl::agree(const std::string &what, const std::function<void()> &work) {
  agreeOnWeights(what, [&] {
    work();
    return std::string();
  });
}

/// As agree, where `work` returns the fingerprint of the weights that it used, which must be equal
/// on all ranks.
void Session::Impl::agreeOnWeights(const std::string &what,
                                   const std::function<std::string()> &work) {
  std::exception_ptr failure;
  std::array<char, 65> mine = {}; // success, and a SHA-256
  try {
    work().copy(mine.data() + 1, mine.size() - 1);
    mine[0] = 1;
  } catch (...) {
    failure = std::current_exception();
  }
  std::vector<std::vector<std::byte>> all;
  if (control)
    all = control->allGather(std::as_bytes(std::span<const char>(mine)));
  if (failure)
    std::rethrow_exception(failure);
  for (size_t other = 0; other < all.size(); ++other)
    if (all[other][0] != std::byte(1))
      throw Error(ErrorCode::PeerFailed, what + " failed on rank " + std::to_string(other));
  for (size_t other = 1; other < all.size(); ++other)
    if (all[other] != all[0])
      throw Error(ErrorCode::InvalidArgument,
                  what + ": rank " + std::to_string(other) +
                      " read other weights than rank 0; give all ranks files with equal contents");
}

std::unique_ptr<Memory> Session::Impl::allocateZeroed(size_t bytes) {
  std::unique_ptr<Memory> memory = device.allocate(bytes);
  zero(memory->data, bytes);
  return memory;
}

void Session::Impl::resetStates() {
  for (int i = 0; i < getStage().states_size(); ++i)
    resetState(getStage().states(i), states[size_t(i)]->data);
  if (source)
    source->requireUnchanged();
}

static Draw toDraw(const schema::Draw &draw) {
  Draw::Distribution distribution =
      draw.distribution() == schema::Draw::NORMAL    ? Draw::Distribution::Normal
      : draw.distribution() == schema::Draw::UNIFORM ? Draw::Distribution::Uniform
                                                     : Draw::Distribution::Constant;
  return {distribution, draw.first(), draw.second(), draw.seed(), draw.stream()};
}

/// Draws elements by their index in the whole tensor, independently of the mesh.
std::vector<std::byte> Session::Impl::drawState(const schema::State &state) const {
  Draw draw = toDraw(state.draw());
  draw.seed = options.initSeed.value_or(draw.seed);
  std::vector<int64_t> global(state.global_shape().begin(), state.global_shape().end());
  Shard shard = getShard(plan->getMesh(), rank, state.sharding(), global);
  std::vector<std::byte> local(state.bytes());
  forEachRun(shard, [&](int64_t from, int64_t at, int64_t count) {
    if (state.type() == schema::F32)
      draw.fill(uint64_t(from), size_t(count), reinterpret_cast<float *>(local.data()) + at);
    else
      draw.fill(uint64_t(from), size_t(count), reinterpret_cast<double *>(local.data()) + at);
  });
  return local;
}

/// Cuts shards with one thread: states are small beside their gradients.
void Session::Impl::resetState(const schema::State &state, void *to) {
  if (state.has_draw()) {
    copyIn(to, drawState(state));
    return;
  }
  if (state.init().empty()) {
    zero(to, state.bytes());
    return;
  }
  HostArray whole = source->read(state.init());
  Shard shard = getShard(plan->getMesh(), rank, state.sharding(), whole.getShape());
  std::vector<std::byte> local(state.bytes());
  cutShard(shard, sizeOf(whole.getType()), whole.getData(), local.data());
  copyIn(to, local);
}

void Session::Impl::copyIn(void *to, std::span<const std::byte> from) {
  if (device.hasHostMemory()) {
    if (!from.empty())
      std::memcpy(to, from.data(), from.size());
    return;
  }
  submitCopyIn(to, from);
  hostStream->synchronize();
}

void Session::Impl::zero(void *to, size_t bytes) {
  if (device.hasHostMemory()) {
    std::memset(to, 0, bytes);
    return;
  }
  device.zero(getHostStream(), to, bytes);
  hostStream->synchronize();
}

/// The stream for copies between host and device.
Stream &Session::Impl::getHostStream() {
  if (!hostStream)
    hostStream = device.createStream(StreamKind::Copy, "host");
  return *hostStream;
}

/// Loads weights, kernels and states and allocates memory. Returns the weights' fingerprint.
std::string Session::Impl::load() {
  const schema::Stage &stage = getStage();
  if (std::string line = device.checkTarget(plan->getTargetArch(), plan->getCudaVersion());
      !line.empty())
    remark(line);
  MemoryNeeds needs = computeNeeds(stage);
  if (transport)
    needs.communication = countCommunicators(*plan, rank) * transport->getCommunicatorBytes();
  if (options.cache && transport && transport->sharesDevice() && rank != 0)
    needs.weights = 0; // the ranks of one GPU share equal shards
  requireMemory(*plan, rank, needs, device);
  std::shared_ptr<const WeightSource> opened =
      WeightSource::open(*plan, options.weights, options.verifyModel);
  weights = WeightSet::load(*plan, rank, device, *opened, options.cache.get());
  keepSource(opened);
  kernels = loadKernels(*plan, stage, device);
  for (const schema::State &state : stage.states())
    states.push_back(device.allocate(state.bytes()));
  resetStates();
  if (!options.weights.empty() &&
      std::ranges::any_of(stage.states(), [](const auto &state) { return state.has_draw(); }))
    warn("states that the plan draws (compile --init) begin so, not as '" +
         options.weights.string() + "' has them; --resume continues a checkpoint");
  arena = device.allocate(std::max<uint64_t>(needs.arena, 1));
  uint64_t registeredBytes = std::max<uint64_t>(needs.registered, 1);
  registered =
      transport ? transport->allocate(device, registeredBytes) : device.allocate(registeredBytes);
  return opened->getFingerprint();
}

void Session::Impl::keepSource(const std::shared_ptr<const WeightSource> &opened) {
  if (std::ranges::any_of(getStage().states(),
                          [](const schema::State &state) { return !state.init().empty(); }))
    source = opened;
}

void Session::Impl::prepare() {
  const schema::Stage &stage = getStage();
  ProgramContext context{*plan,         stage,
                         rank,          device,
                         kernels,       communicators.get(),
                         streams,       options.serialize,
                         options.trace, [this] { checkJob(); }};
  for (int e = 0; e < stage.entries_size(); ++e)
    for (int s = 0; s < stage.entries(e).specialisations_size(); ++s) {
      auto loaded = std::make_unique<LoadedProgram>();
      loaded->entry = &plan->getEntries()[size_t(e)];
      loaded->global = &loaded->entry->specialisations[size_t(s)];
      loaded->entryIndex = e;
      loaded->index = s;
      loaded->program = std::make_unique<Program>(context, stage.entries(e).specialisations(s));
      // Not in the first run: the driver may block allocations while peers communicate.
      if (!device.hasHostMemory())
        reserveBindings(*loaded);
      programs.push_back(std::move(loaded));
    }
}

/// Returns once `from` has been read; the copy is done when hostStream is synchronised.
void Session::Impl::submitCopyIn(void *to, std::span<const std::byte> from) {
  device.copyIn(getHostStream(), to, from.data(), from.size());
}

void Session::Impl::copyOut(std::span<std::byte> to, const void *from) {
  if (device.hasHostMemory()) {
    if (!to.empty())
      std::memcpy(to.data(), from, to.size());
    return;
  }
  device.copyOut(getHostStream(), to.data(), from, to.size());
  hostStream->synchronize();
}

void Session::Impl::requireUsable() const {
  if (!failure.empty())
    throw Error(ErrorCode::PeerFailed, "the session failed before: " + failure);
}

const Session::Impl::LoadedProgram &Session::Impl::getLast() const {
  if (!last)
    throw Error(ErrorCode::InvalidArgument, "nothing has run yet");
  return *last;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

void Session::Impl::reserveBindings(LoadedProgram &loaded) {
  if (loaded.reserved)
    return;
  auto reserve = [&](const auto &bindings, std::vector<std::unique_ptr<Memory>> &memory) {
    for (const schema::Binding &binding : bindings)
      memory.push_back(allocateZeroed(getBytes(binding)));
  };
  loaded.placements.clear();
  for (const schema::Binding &binding : loaded.program->getSchema().inputs())
    loaded.placements.push_back(getPlacement(loaded, binding, rank, /*output=*/false));
  loaded.inputs.clear();
  loaded.outputs.clear();
  reserve(loaded.program->getSchema().inputs(), loaded.inputs);
  reserve(loaded.program->getSchema().outputs(), loaded.outputs);
  loaded.reserved = true;
}

void Session::Impl::fillInputs(LoadedProgram &loaded) {
  const schema::Specialisation &program = loaded.program->getSchema();
  for (int i = 0; i < program.inputs_size(); ++i) {
    const schema::Binding &binding = program.inputs(i);
    auto &[array, isShard] = bindings.at(binding.name());
    Memory &memory = *loaded.inputs[size_t(i)];
    const Shard &shard = loaded.placements[size_t(i)];
    bool whole = isShard || shard.isWhole();
    unsigned char fill = options.poisonPadding ? getPoisonByte(array.getType()) : 0;
    if (whole && !device.hasHostMemory()) {
      submitCopyIn(memory.data, {array.getData(), memory.bytes});
    } else if (whole) {
      if (memory.bytes)
        std::memcpy(memory.data, array.getData(), memory.bytes);
    } else if (device.hasHostMemory()) {
      cutShard(shard, sizeOf(array.getType()), array.getData(),
               static_cast<std::byte *>(memory.data), 0, fill);
    } else {
      std::vector<std::byte> staging(memory.bytes);
      cutShard(shard, sizeOf(array.getType()), array.getData(), staging.data(), 0, fill);
      submitCopyIn(memory.data, staging);
    }
  }
  if (hostStream)
    hostStream->synchronize();
}

/// Turns any exception into one Error, after it has aborted the transport so that no peer waits.
[[noreturn]] void Session::Impl::fail(const std::exception_ptr &cause, LoadedProgram *loaded) {
  ErrorCode code = ErrorCode::Internal;
  try {
    std::rethrow_exception(cause);
  } catch (const Error &error) {
    code = error.getCode();
    failure = error.what();
  } catch (const std::bad_alloc &) {
    code = ErrorCode::OutOfMemory;
    failure = "out of host memory";
  } catch (const std::exception &error) {
    failure = error.what();
  }
  if (transport)
    transport->abort(failure);
  if (loaded)
    loaded->program->drain();
  throw Error(code, failure);
}

void Session::Impl::abort(const std::string &reason) {
  {
    std::lock_guard lock(abortMutex);
    if (!isAborted)
      abortReason = reason;
    isAborted = true;
  }
  if (transport)
    transport->abort(reason);
}

void Session::Impl::checkJob() {
  if (isAborted) {
    std::lock_guard lock(abortMutex);
    throw Error(ErrorCode::PeerFailed, abortReason);
  }
  // Asking peers may cost more than an iteration of the loop.
  auto now = std::chrono::steady_clock::now();
  if (!transport || now < nextPeerCheck)
    return;
  nextPeerCheck = now + std::chrono::milliseconds(50);
  transport->check();
}

RunStats Session::Impl::summarize(LoadedProgram &loaded, int64_t begin, int64_t end) {
  const Program::Span &span = loaded.program->getSpan();
  // GPU graphs take no times: use the steps' times of the last run without graphs.
  if (const RunTimes &times = loaded.program->getTimes(); span.graphs == 0 || !times.isEmpty())
    loaded.stepped = times.summarize(begin, end, plan->getNumStages() > 1);
  RunStats result = loaded.stepped;
  result.wall = double(end - begin) * 1e-6;
  result.device = double(span.end - span.begin) * 1e-6;
  result.graphs = double(span.graphs);
  return result;
}

RunStats Session::Impl::run(LoadedProgram &loaded) {
  trace.clear();
  last = nullptr;
  RunStats stats;
  try {
    checkJob();
    weights->requireUnchanged();
    reserveBindings(loaded);
    fillInputs(loaded);
    ProgramMemory memory;
    memory.arena = arena->data;
    memory.registered = registered->data;
    memory.weight = [&](uint32_t index) { return weights->getData(index); };
    memory.state = [&](uint32_t index) { return states[index]->data; };
    memory.input = [&](uint32_t index) { return loaded.inputs[index]->data; };
    memory.output = [&](uint32_t index) { return loaded.outputs[index]->data; };
    if (usesGraphs && loaded.warm && !loaded.refused && !loaded.program->hasGraphs())
      capture(loaded, memory);
    int64_t begin = getMonotonicTime();
    loaded.program->run(memory);
    trace = loaded.program->takeTrace();
    weights->requireUnchanged(); // else the outputs may mix two versions
    stats = summarize(loaded, begin, getMonotonicTime());
    // Libraries have made their own copies of weights; weights that are still read in place come
    // back from the page cache.
    if (!loaded.warm && loaded.program->packsWeights())
      weights->dropPages();
    loaded.warm = true;
  } catch (...) {
    fail(std::current_exception(), &loaded);
  }
  last = &loaded;
  return stats;
}

//===----------------------------------------------------------------------===//
// Outputs
//===----------------------------------------------------------------------===//

/// The binding of an argument in stage `number`'s program for the same specialisation; null if
/// there is none.
const schema::Binding *Session::Impl::findBinding(const LoadedProgram &loaded, int number,
                                                  const std::string &name, bool output) const {
  const schema::Specialisation &program =
      plan->getStage(number).entries(loaded.entryIndex).specialisations(loaded.index);
  for (const schema::Binding &binding : output ? program.outputs() : program.inputs())
    if (binding.name() == name)
      return &binding;
  return nullptr;
}

Shard Session::Impl::getPlacement(const LoadedProgram &loaded, const schema::Binding &binding,
                                  int ofRank, bool output) const {
  const Argument *argument =
      output ? loaded.global->findOutput(binding.name()) : loaded.global->findInput(binding.name());
  return getShard(plan->getMesh(), ofRank, binding.sharding(), argument->shape,
                  {binding.shape().begin(), binding.shape().end()});
}

const Argument &Session::Impl::getOutput(const std::string &name) const {
  const Argument *argument = getLast().global->findOutput(name);
  if (argument)
    return *argument;
  std::string names;
  for (const Argument &output : getLast().global->outputs)
    names += (names.empty() ? "" : ", ") + output.name;
  throw Error(ErrorCode::InvalidArgument, "entry '" + getLast().entry->name + "' has no output '" +
                                              name + "'; its outputs are: " + names);
}

HostArray Session::Impl::readShard(const std::string &name) const {
  const Argument &argument = getOutput(name);
  const schema::Specialisation &program = last->program->getSchema();
  for (int i = 0; i < program.outputs_size(); ++i) {
    const schema::Binding &binding = program.outputs(i);
    if (binding.name() != name)
      continue;
    HostArray local =
        pool.allocate(argument.type, {binding.shape().begin(), binding.shape().end()});
    const_cast<Impl *>(this)->copyOut({local.getMutableData(), local.getNumBytes()},
                                      last->outputs[size_t(i)]->data);
    return local;
  }
  return {};
}

void Session::Impl::updateWeights(const std::filesystem::path &path) {
  requireUsable();
  std::shared_ptr<const WeightSource> opened;
  std::shared_ptr<const WeightSet> updated;
  agreeOnWeights("updating the weights", [&] {
    opened = WeightSource::open(*plan, path);
    updated = WeightSet::load(*plan, rank, device, *opened, options.cache.get());
    return opened->getFingerprint();
  });
  keepSource(opened);
  for (std::unique_ptr<LoadedProgram> &loaded : programs)
    loaded->program->forgetWeights();
  weights = std::move(updated);
}

int Session::Impl::findState(const std::string &name) const {
  for (int i = 0; i < getStage().states_size(); ++i)
    if (getStage().states(i).name() == name)
      return i;
  throw Error(ErrorCode::InvalidArgument,
              "stage " + std::to_string(stageNumber) + " has no state '" + name + "'");
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

Session::Session(std::shared_ptr<const Plan> plan, Device &device, Transport *transport,
                 SessionOptions options)
    : impl(std::make_unique<Impl>(std::move(plan), device, transport, std::move(options))) {}
Session::~Session() = default;

const Plan &Session::getPlan() const { return *impl->plan; }
int Session::getRank() const { return impl->rank; }
int Session::getStage() const { return impl->stageNumber; }

void Session::bind(const std::string &name, const HostArray &global) {
  impl->bind(name, global, /*isShard=*/false);
}
void Session::bindShard(const std::string &name, const HostArray &local) {
  impl->bind(name, local, /*isShard=*/true);
}

void Session::checkRun(const std::string &entry, const std::map<std::string, int64_t> &dims) const {
  impl->requireUsable();
  impl->select(entry, dims);
}

RunStats Session::run(const std::string &entry, const std::map<std::string, int64_t> &dims) {
  impl->requireUsable();
  return impl->run(impl->selectOrFail(entry, dims));
}

void Session::abort(const std::string &reason) { impl->abort(reason); }

const EntrySpecialisation &Session::getLastSpecialisation() const {
  return *impl->getLast().global;
}
HostArray Session::getOutputShard(const std::string &name) const { return impl->readShard(name); }
std::vector<OutputPart> Session::getOutputParts(const std::string &name) const {
  return impl->findParts(name);
}
HostArray Session::gatherOutput(const std::string &name) { return impl->gatherOutput(name, false); }
HostArray Session::gatherOutputToAll(const std::string &name) {
  return impl->gatherOutput(name, true);
}
std::vector<std::string> Session::gatherText(const std::string &text) {
  return impl->gatherText(text);
}
void Session::updateWeights(const std::filesystem::path &path) { impl->updateWeights(path); }

HostArray Session::getState(const std::string &name) const {
  return impl->readState(impl->findState(name));
}

void Session::setState(const std::string &name, const HostArray &local) {
  int index = impl->findState(name);
  const schema::State &state = impl->getStage().states(index);
  std::vector<int64_t> shape(state.shape().begin(), state.shape().end());
  if (local.getType() != DataType(state.type()) || local.getShape() != shape)
    throw Error(ErrorCode::InvalidArgument,
                "state '" + name + "' is " + std::string(nameOf(DataType(state.type()))) +
                    formatShape(shape) + " on this rank, not " +
                    std::string(nameOf(local.getType())) + formatShape(local.getShape()));
  impl->copyIn(impl->states[size_t(index)]->data, {local.getData(), local.getNumBytes()});
}

void Session::resetStates() { impl->resetStates(); }
HostArray Session::gatherState(const std::string &name, HostArray into) {
  return impl->gatherState(name, false, std::move(into));
}
HostArray Session::gatherStateToAll(const std::string &name) {
  return impl->gatherState(name, true, {});
}
void Session::setGlobalState(const std::string &name, const HostArray &whole) {
  impl->setGlobalState(name, whole);
}
std::vector<std::vector<std::byte>> Session::exchange(std::span<const std::byte> mine) {
  return impl->exchange(mine);
}

const std::vector<TraceEvent> &Session::getTrace() const { return impl->trace; }
