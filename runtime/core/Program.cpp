//===- Program.cpp - running one program ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/Program.h"

#include "runtime/core/Error.h"
#include "runtime/core/LibraryCalls.h"
#include "runtime/core/PlanQueries.h"

#include <algorithm>
#include <cstring>
#include <exception>

using namespace gridloom;
using namespace gridloom::rt;

/// From the best file that loads here. Where none does, the first one's error is the one to report.
static std::unique_ptr<Kernel> loadKernel(const Plan &plan, const schema::Kernel &kernel,
                                          Device &device) {
  std::exception_ptr cause;
  for (const std::string &library : device.listLibraries(kernel.library())) {
    if (!plan.hasKernelCode(library))
      continue;
    try {
      return device.loadKernel(library, plan.getKernelCode(library), kernel.symbol());
    } catch (const Error &error) {
      if (!cause)
        cause = std::current_exception();
      if (error.getCode() != ErrorCode::InvalidPlan)
        break;
    }
  }
  std::rethrow_exception(cause);
}

std::vector<std::unique_ptr<Kernel>>
gridloom::rt::loadKernels(const Plan &plan, const schema::Stage &stage, Device &device) {
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const schema::Kernel &kernel : stage.kernels())
    kernels.push_back(loadKernel(plan, kernel, device));
  return kernels;
}

StreamKind Program::getKind(const schema::Stream &stream) {
  return stream.kind() == schema::Stream::COMMUNICATION ? StreamKind::Communication
                                                        : StreamKind::Compute;
}

//===----------------------------------------------------------------------===//
// Resolving
//===----------------------------------------------------------------------===//

Program::Program(const ProgramContext &context, const schema::Specialisation &program)
    : context(context), program(program) {
  for (const schema::Stream &stream : program.streams()) {
    std::unique_ptr<Stream> &owner = context.streams[stream.name()];
    if (!owner)
      owner = context.device.createStream(getKind(stream), stream.name());
    streams.push_back(owner.get());
    meetings.push_back(context.device.createEvent());
  }
  maxLag.resize(program.num_events());
  prepareConstants();
  countWeightReads(program.body(), /*isRepeated=*/false);
  prepareBody(program.body());
  if (context.device.hasHostMemory())
    stretches.resize(streams.size());
  events.resize(program.num_events());
  for (size_t id = 0; id < events.size(); ++id)
    for (uint32_t i = 0; i <= maxLag[id]; ++i)
      events[id].push_back(context.device.createEvent());
}

Program::~Program() { drain(); }

void Program::prepareConstants() {
  std::unique_ptr<Stream> stream;
  auto place = [&](const void *data, size_t bytes) {
    std::unique_ptr<Memory> memory = context.device.allocate(bytes);
    if (context.device.hasHostMemory()) {
      std::memcpy(memory->data, data, bytes);
    } else {
      if (!stream)
        stream = context.device.createStream(StreamKind::Copy, "constants");
      context.device.copyIn(*stream, memory->data, data, bytes);
      stream->synchronize();
    }
    return memory;
  };
  constants.resize(size_t(program.buffers_size()));
  for (int i = 0; i < program.buffers_size(); ++i) {
    const schema::Buffer &buffer = program.buffers(i);
    if (buffer.space() == schema::CONSTANT)
      constants[size_t(i)] = place(buffer.value().data(), buffer.value().size());
    if (buffer.space() == schema::RANK_PARAM) {
      std::vector<std::string> axes(buffer.axes().begin(), buffer.axes().end());
      int64_t index = context.plan.getMesh().getIndex(context.rank, axes);
      constants[size_t(i)] = place(&index, sizeof(index));
    }
  }
}

void Program::countWeightReads(const Body &body, bool isRepeated) {
  for (const schema::Control &control : body) {
    for (const Body *loop : {&control.repeat().body(), &control.loop().body()})
      countWeightReads(*loop, /*isRepeated=*/true);
    for (const Body *branch : {&control.branch().then(), &control.branch().otherwise()})
      countWeightReads(*branch, isRepeated);
    for (const schema::Step &step : control.block().steps())
      if (step.library().has_matmul())
        weightReads[step.library().inputs(1)] += isRepeated ? 2 : 1;
  }
}

/// Returns whether ranks communicate in `body`.
bool Program::prepareBody(const Body &body) {
  bool communicates = false;
  for (const schema::Control &control : body) {
    bool inside = false;
    for (const Body *inner : {&control.repeat().body(), &control.loop().body(),
                              &control.branch().then(), &control.branch().otherwise()})
      inside |= prepareBody(*inner);
    if (inside)
      guards.insert(&control);
    communicates |= inside;
    for (const schema::Step &step : control.block().steps()) {
      if (step.has_library())
        prepareLibrary(step);
      if (step.has_group())
        prepareGroup(step);
      communicates |= step.has_group();
      if (step.has_wait())
        maxLag[step.wait().id()] = std::max(maxLag[step.wait().id()], step.wait().lag());
    }
  }
  return communicates;
}

void Program::prepareLibrary(const schema::Step &step) {
  const schema::Library &call = step.library();
  try {
    if (call.has_convolution())
      prepareConvolution(step);
    else if (call.has_attention())
      calls[&step] = context.device.createAttention(toProblem(call.attention()));
    else
      prepareMatmul(step);
  } catch (const Error &error) {
    if (step.origin() >= uint32_t(context.stage.origins_size()))
      throw;
    throw Error(error.getCode(), std::string(error.what()) + " (onnx node " +
                                     context.stage.origins(int(step.origin())) + ")");
  }
}

void Program::prepareConvolution(const schema::Step &step) {
  ConvolutionProblem problem = toProblem(step.library().convolution());
  problem.constantWeight = program.buffers(int(step.library().inputs(1))).space() == schema::WEIGHT;
  calls[&step] = context.device.createConvolution(problem);
}

void Program::prepareMatmul(const schema::Step &step) {
  MatmulProblem problem = toProblem(step.library().matmul());
  uint32_t weight = step.library().inputs(1);
  problem.mayPack = context.device.hasHostMemory() && weightReads[weight] > 1 &&
                    program.buffers(int(weight)).space() == schema::WEIGHT;
  std::shared_ptr<MatmulPlan> none;
  auto &known = problem.mayPack
                    ? repeatedProducts[{weight, step.library().matmul().SerializeAsString()}]
                    : none;
  try {
    if (!known)
      known = context.device.createMatmul(problem);
    matmuls[&step] = known;
  } catch (const Error &error) {
    // A library may lack an algorithm with this epilogue; without any it says why.
    if (problem.epilogue.activation == Activation::None)
      throw;
    problem.epilogue.activation = Activation::None;
    problem.epilogue.bias = false;
    matmuls[&step] = context.device.createMatmul(problem);
    products[&step] =
        context.device.allocate(program.buffers(int(step.library().outputs(0))).bytes());
  }
}

void Program::prepareGroup(const schema::Step &step) {
  const schema::Group &group = step.group();
  PreparedGroup &prepared = groups[&step];
  bool send = group.kind() == schema::Group::SEND;
  if (send || group.kind() == schema::Group::RECV) {
    prepared.members = context.communicators->getPair(int(group.peer_stage()), send);
    return;
  }
  std::vector<std::string> axes(group.axes().begin(), group.axes().end());
  if (context.communicators)
    prepared.members = context.communicators->getGroup(axes);
  for (int i = 0; prepared.members && group.reduction() && i < group.inputs_size(); ++i)
    prepared.members->reserveReduction(getElements(group.inputs(i)), getElements(group.outputs(i)),
                                       DataType(program.buffers(int(group.inputs(i))).type()),
                                       toReduction(group.reduction()));
  if (!prepared.members || group.kind() == schema::Group::ALL_REDUCE)
    return;
  std::vector<int> byPlace = context.plan.getMesh().getGroup(context.rank, axes), byRank = byPlace;
  std::sort(byRank.begin(), byRank.end());
  if (byPlace == byRank)
    return;
  for (int rank : byRank)
    prepared.places.push_back(
        size_t(std::find(byPlace.begin(), byPlace.end(), rank) - byPlace.begin()));
  size_t bytes = 0;
  for (const Indices *indices : {&group.inputs(), &group.outputs()})
    for (uint32_t buffer : *indices)
      bytes = std::max<size_t>(bytes, program.buffers(int(buffer)).bytes());
  prepared.sent = context.device.allocate(bytes);
  prepared.received = context.device.allocate(bytes);
}

/// The member whose part is at `place`.
int Program::PreparedGroup::getMember(int64_t place) const {
  if (places.empty())
    return int(place);
  return int(std::find(places.begin(), places.end(), size_t(place)) - places.begin());
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

void Program::resolveBuffers(const ProgramMemory &memory) {
  bases.assign(size_t(program.buffers_size()), nullptr);
  for (int i = 0; i < program.buffers_size(); ++i) {
    const schema::Buffer &buffer = program.buffers(i);
    auto at = [&](const void *space) {
      return const_cast<char *>(static_cast<const char *>(space)) + buffer.offset();
    };
    switch (buffer.space()) {
    case schema::ARENA:
      bases[i] = at(memory.arena);
      break;
    case schema::REGISTERED:
      bases[i] = at(memory.registered);
      break;
    case schema::WEIGHT:
      bases[i] = at(memory.weight(buffer.index()));
      break;
    case schema::STATE:
      bases[i] = at(memory.state(buffer.index()));
      break;
    case schema::INPUT:
      bases[i] = at(memory.input(buffer.index()));
      break;
    case schema::OUTPUT:
      bases[i] = at(memory.output(buffer.index()));
      break;
    default:
      bases[i] = constants[size_t(i)]->data;
    }
  }
}

void *Program::getPointer(uint32_t index, int64_t iteration) const {
  const schema::Buffer &buffer = program.buffers(int(index));
  uint64_t slot = uint64_t(iteration) % std::max(1u, buffer.slots());
  return static_cast<char *>(bases[index]) + slot * buffer.bytes();
}

uint64_t Program::getElements(uint32_t index) const {
  uint64_t elements = 1;
  for (int64_t size : program.buffers(int(index)).shape())
    elements *= uint64_t(size);
  return elements;
}

void Program::run(const ProgramMemory &memory) {
  timeline.clear();
  trace.clear();
  added = {};
  for (StretchTimes &stretch : stretches)
    stretch.done.clear();
  span = {};
  resolveBuffers(memory);
  mode = isCaptured ? Mode::Replay : Mode::Plain;
  if (mode == Mode::Replay && bases != capturedBases)
    throw Error(ErrorCode::Internal, "memory has moved since the graphs were captured");
  try {
    // Streams may write these after this call has thrown, until they are drained.
    bool isTimed = mode == Mode::Replay && !streams.empty();
    if (isTimed)
      getOrigin().recordTime(&span.begin);
    runBody(program.body(), 0);
    if (isTimed)
      getOrigin().recordTime(&span.end);
    synchronize();
  } catch (const Error &error) {
    explain(error);
  }
  addTimes();
}

void Program::synchronize() {
  for (Stream *stream : streams)
    stream->synchronize();
}

void Program::drain() {
  for (Stream *stream : streams)
    try {
      stream->synchronize();
    } catch (const std::exception &) {
      continue; // thrown before, by run
    }
}

/// Whether nothing in `control` asks for a condition.
static bool isStraight(const schema::Control &control) {
  const auto &repeated = control.repeat().body();
  return !control.has_loop() && !control.has_branch() &&
         std::all_of(repeated.begin(), repeated.end(), isStraight);
}

void Program::runBody(const Body &body, int64_t iteration) {
  for (int i = 0; i < body.size();) {
    int end = i;
    while (end < body.size() && isStraight(body[end]))
      ++end;
    if (end == i) {
      runGuarded(body[i++], iteration);
      continue;
    }
    runSegment({body, i, end, iteration});
    i = end;
  }
}

void Program::runGuarded(const schema::Control &control, int64_t iteration) {
  if (control.has_repeat())
    for (uint32_t i = 0; i < control.repeat().count(); ++i)
      runBody(control.repeat().body(), i);
  if (control.has_loop()) {
    const schema::While &loop = control.loop();
    if (mode == Mode::Capture)
      return runBody(loop.body(), iteration);
    while (readCondition(loop.condition(), guards.count(&control), iteration)) {
      if (context.checkJob)
        context.checkJob();
      runBody(loop.body(), iteration);
    }
  }
  if (control.has_branch()) {
    const schema::If &branch = control.branch();
    if (mode == Mode::Capture) {
      runBody(branch.then(), iteration);
      return runBody(branch.otherwise(), iteration);
    }
    bool taken = readCondition(branch.condition(), guards.count(&control), iteration);
    runBody(taken ? branch.then() : branch.otherwise(), iteration);
    // No event orders what follows after streams that only one of the bodies uses.
    synchronize();
  }
}

/// Straight controls, repeats unrolled.
void Program::submitAll(const Body &body, int begin, int end, int64_t iteration) {
  for (int i = begin; i < end; ++i) {
    for (const schema::Step &step : body[i].block().steps())
      submit(step, iteration);
    const schema::Repeat &repeat = body[i].repeat();
    for (uint32_t turn = 0; turn < repeat.count(); ++turn)
      submitAll(repeat.body(), 0, repeat.body_size(), turn);
  }
}

void Program::runSegment(const Segment &segment) {
  if (mode == Mode::Plain)
    return submitAll(segment.body, segment.begin, segment.end, segment.iteration);
  if (mode == Mode::Capture)
    return captureSegment(segment);
  auto known = graphs.find({&segment.body[segment.begin], segment.iteration});
  if (known == graphs.end()) // nothing but events
    return;
  context.device.replay(getOrigin(), *known->second);
  ++span.graphs;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

/// The streams that steps of `body` are on; whether any of the steps works.
static bool findStreams(const google::protobuf::RepeatedPtrField<schema::Control> &body, int begin,
                        int end, std::set<uint32_t> &streams) {
  bool works = false;
  for (int i = begin; i < end; ++i) {
    for (const schema::Step &step : body[i].block().steps()) {
      streams.insert(step.stream());
      works |= !step.has_record() && !step.has_wait();
    }
    const auto &repeated = body[i].repeat().body();
    works |= findStreams(repeated, 0, repeated.size(), streams);
  }
  return works;
}

/// The stream that all graphs are submitted to, so that each begins when the one before has ended.
Stream &Program::getOrigin() const {
  for (int i = 0; i < program.streams_size(); ++i)
    if (program.streams(i).kind() == schema::Stream::COMPUTE)
      return *streams[size_t(i)];
  return *streams.front();
}

void Program::capture(const ProgramMemory &memory) {
  dropGraphs();
  resolveBuffers(memory);
  mode = Mode::Capture;
  try {
    runBody(program.body(), 0);
  } catch (...) {
    graphs.clear();
    throw;
  }
  capturedBases = bases;
  isCaptured = true;
}

void Program::captureSegment(const Segment &segment) {
  std::set<uint32_t> used;
  if (!findStreams(segment.body, segment.begin, segment.end, used))
    return;
  std::vector<Stream *> captured = {&getOrigin()};
  for (size_t i = 0; i < streams.size(); ++i) // to serialise is to have all of them meet
    if ((context.serialize || used.count(uint32_t(i))) && streams[i] != captured.front())
      captured.push_back(streams[i]);
  recorded.clear();
  try {
    context.device.beginCapture(captured);
    submitAll(segment.body, segment.begin, segment.end, segment.iteration);
    for (uint32_t i = 0; i < stretches.size(); ++i)
      closeStretch(i);
    graphs[{&segment.body[segment.begin], segment.iteration}] = context.device.endCapture();
  } catch (...) {
    context.device.cancelCapture();
    for (StretchTimes &times : stretches)
      times.isOpen = false;
    throw;
  }
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// A condition that guards communication is decided by the stage's first rank, so that all ranks
/// agree even if their values differ in the last bit.
bool Program::readCondition(uint32_t buffer, bool guards, int64_t iteration) {
  synchronize();
  addTimesIfMany();
  if (!conditionStream) {
    conditionStream = context.device.createStream(StreamKind::Communication, "condition");
    conditionScratch = context.device.allocate(1);
  }
  const void *from = getPointer(buffer, iteration);
  Communicator *stage = context.communicators ? context.communicators->getStage() : nullptr;
  if (guards && stage) {
    stage->broadcast(*conditionStream, from, conditionScratch->data, 1, DataType::Bool, 0,
                     {"broadcast", 0, "condition"});
    from = conditionScratch->data;
  }
  char value = 0;
  context.device.copyOut(*conditionStream, &value, from, 1);
  conditionStream->synchronize();
  return value != 0;
}

Event &Program::getEvent(uint32_t id, int64_t iteration) {
  return *events[id][uint64_t(iteration) % events[id].size()];
}

void Program::submit(const schema::Step &step, int64_t iteration) {
  Stream &stream = *streams[step.stream()];
  if (step.has_record()) {
    closeStretch(step.stream());
    Event &event = getEvent(step.record().id(), iteration);
    recorded.insert(&event);
    return stream.record(event);
  }
  if (step.has_wait()) {
    int64_t from = iteration - int64_t(step.wait().lag());
    if (from < 0)
      return;
    Event &event = getEvent(step.wait().id(), from);
    // A graph begins when all before it is done.
    if (mode == Mode::Capture && !recorded.count(&event))
      return;
    closeStretch(step.stream());
    return stream.wait(event);
  }
  bool alone = context.serialize && step.has_group();
  if (alone)
    meet(stream, /*others=*/false);
  if (mode == Mode::Capture) {
    captureWork(step, stream, iteration);
  } else {
    Timed &timed = timeline.emplace_back(Timed{&step, iteration});
    stream.recordTime(&timed.begin);
    submitNamed(step, stream, iteration);
    stream.recordTime(&timed.end);
    timed.mark = stream.mark();
  }
  if (alone)
    meet(stream, /*others=*/true);
}

void Program::captureWork(const schema::Step &step, Stream &stream, int64_t iteration) {
  if (stretches.empty())
    return submitWork(step, stream, iteration);
  if (step.has_group())
    closeStretch(step.stream());
  StretchTimes &times = stretches[step.stream()];
  if (!times.isOpen) {
    times.isOpen = true;
    stream.enqueueHost([&times, &step, iteration] {
      times.done.push_back({&step, iteration, getMonotonicTime()});
    });
  }
  submitWork(step, stream, iteration);
  if (step.has_group())
    closeStretch(step.stream());
}

/// In a capture that takes times.
void Program::closeStretch(uint32_t stream) {
  if (stream >= stretches.size() || !stretches[stream].isOpen)
    return;
  StretchTimes &times = stretches[stream];
  times.isOpen = false;
  streams[stream]->enqueueHost([&times] { times.done.back().end = getMonotonicTime(); });
}

/// The ONNX node that a step computes, or empty.
std::string Program::getNode(const schema::Step &step) const {
  bool isKnown = step.origin() < uint32_t(context.stage.origins_size());
  return isKnown ? context.stage.origins(int(step.origin())) : "";
}

std::string Program::describeOrigin(const schema::Step &step) const {
  std::string node = getNode(step);
  return describe(step) + (node.empty() ? "" : " (onnx node " + node + ")");
}

/// Submits work and says of an error which step it is.
void Program::submitNamed(const schema::Step &step, Stream &stream, int64_t iteration) {
  try {
    submitWork(step, stream, iteration);
  } catch (const Error &error) {
    if (step.has_group()) // says so itself
      throw;
    throw Error(error.getCode(), error.what(), {context.rank, describe(step), getNode(step)});
  }
}

/// Adds to an error that streams reported late which steps were running then. Called where that
/// error is caught.
[[noreturn]] void Program::explain(const Error &error) const {
  bool isDevices =
      error.getCode() == ErrorCode::Internal || error.getCode() == ErrorCode::Unavailable;
  std::string text = error.what();
  if (!isDevices || context.device.hasHostMemory() || error.getPlace())
    throw;
  text += ", on rank " + std::to_string(context.rank) + ", " + context.device.getName();
  if (mode == Mode::Replay)
    throw Error(error.getCode(), text + ", in a graph: run without graphs to see in which step");
  std::string running;
  bool isMarked = std::any_of(streams.begin(), streams.end(),
                              [](Stream *stream) { return stream->readMark().has_value(); });
  for (size_t i = 0; i < streams.size() && isMarked; ++i) {
    uint32_t reached = streams[i]->readMark().value_or(0);
    auto isNext = [&](const Timed &timed) {
      // A step that failed during submission has no mark yet.
      return timed.step->stream() == i && (timed.mark == 0 || timed.mark > reached);
    };
    auto next = std::find_if(timeline.begin(), timeline.end(), isNext);
    if (next != timeline.end())
      running += (running.empty() ? ", in step " : " or ") + describeOrigin(*next->step);
  }
  throw Error(error.getCode(), text + running);
}

void Program::meet(Stream &stream, bool others) {
  for (size_t i = 0; i < streams.size(); ++i) {
    closeStretch(uint32_t(i));
    if (streams[i] == &stream)
      continue;
    (others ? stream : *streams[i]).record(*meetings[i]);
    (others ? *streams[i] : stream).wait(*meetings[i]);
  }
}

void Program::submitWork(const schema::Step &step, Stream &stream, int64_t iteration) {
  switch (step.kind_case()) {
  case schema::Step::kLaunch: {
    std::vector<void *> pointers;
    for (uint32_t buffer : step.launch().inputs())
      pointers.push_back(getPointer(buffer, iteration));
    for (uint32_t buffer : step.launch().outputs())
      pointers.push_back(getPointer(buffer, iteration));
    return launch(step.launch().kernel(), stream, pointers);
  }
  case schema::Step::kLibrary:
    return submitLibrary(step, stream, iteration);
  case schema::Step::kCopy: {
    uint32_t to = step.copy().output(), from = step.copy().input();
    size_t bytes = getElements(from) * sizeOf(DataType(program.buffers(int(from)).type()));
    return context.device.copy(stream, getPointer(to, iteration), getPointer(from, iteration),
                               bytes);
  }
  case schema::Step::kGroup:
    return submitGroup(step, stream, iteration);
  default:
    break;
  }
}

void Program::launch(uint32_t number, Stream &stream, std::span<void *const> pointers) {
  const schema::Kernel &kernel = context.stage.kernels(int(number));
  LaunchShape shape;
  shape.rows = kernel.rows();
  shape.grain = kernel.grain();
  std::copy(kernel.grid().begin(), kernel.grid().end(), shape.grid);
  std::copy(kernel.block().begin(), kernel.block().end(), shape.block);
  shape.sharedBytes = kernel.shared_bytes();
  context.device.launch(stream, *context.kernels[number], shape, pointers);
}

void Program::submitLibrary(const schema::Step &step, Stream &stream, int64_t iteration) {
  const schema::Library &call = step.library();
  std::vector<void *> inputs;
  for (uint32_t buffer : call.inputs())
    inputs.push_back(getPointer(buffer, iteration));
  void *out = getPointer(call.outputs(0), iteration);
  if (!call.has_matmul())
    return context.device.call(stream, *calls[&step], {inputs.data(), inputs.size()}, out);
  MatmulOperands operands{inputs[0], inputs[1]};
  size_t next = 2;
  if (call.matmul().epilogue().bias())
    operands.bias = inputs[next++];
  if (call.matmul().epilogue().residual())
    operands.residual = inputs[next];
  auto product = products.find(&step);
  if (product == products.end())
    return context.device.matmul(stream, *matmuls[&step], operands, out);
  void *between = product->second->data;
  context.device.matmul(stream, *matmuls[&step],
                        {operands.lhs, operands.rhs, nullptr, operands.residual}, between);
  std::vector<void *> pointers{between};
  if (operands.bias)
    pointers.push_back(inputs[2]);
  pointers.push_back(out);
  launch(call.fallback() - 1, stream, pointers);
}

static const char *getName(schema::Group::Kind kind) {
  static constexpr const char *names[] = {
      "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "", "permute", "send", "recv"};
  return names[kind];
}

void Program::submitGroup(const schema::Step &step, Stream &stream, int64_t iteration) {
  const schema::Group &group = step.group();
  std::string_view origin;
  if (step.origin() < uint32_t(context.stage.origins_size()))
    origin = context.stage.origins(int(step.origin()));
  OpContext op{getName(group.kind()), group.sequence(), origin};
  if (group.kind() == schema::Group::SEND || group.kind() == schema::Group::RECV) {
    bool send = group.kind() == schema::Group::SEND;
    Communicator &pair = *groups[&step].members;
    int peer = 1 - pair.getRank();
    for (uint32_t buffer : send ? group.inputs() : group.outputs()) {
      void *data = getPointer(buffer, iteration);
      DataType type = DataType(program.buffers(int(buffer)).type());
      if (send)
        pair.send(stream, data, getElements(buffer), type, peer, op);
      else
        pair.recv(stream, data, getElements(buffer), type, peer, op);
    }
    return;
  }
  const PreparedGroup &prepared = groups[&step];
  if (group.kind() == schema::Group::ALL_GATHER && group.inputs_size() > 1 && prepared.members &&
      prepared.places.empty()) {
    std::vector<GatheredValue> values;
    for (int i = 0; i < group.inputs_size(); ++i) {
      uint32_t in = group.inputs(i);
      values.push_back({getPointer(in, iteration), getPointer(group.outputs(i), iteration),
                        getElements(in) * sizeOf(DataType(program.buffers(int(in)).type()))});
    }
    return prepared.members->allGatherMany(stream, values, op);
  }
  for (int i = 0; i < group.inputs_size(); ++i)
    submitCollective(step, stream, getPointer(group.inputs(i), iteration),
                     getPointer(group.outputs(i), iteration), group.inputs(i), op);
}

void Program::submitCollective(const schema::Step &step, Stream &stream, const void *in, void *out,
                               uint32_t buffer, OpContext op) {
  const schema::Group &group = step.group();
  PreparedGroup &prepared = groups[&step];
  Communicator *members = prepared.members;
  uint64_t count = getElements(buffer);
  DataType type = DataType(program.buffers(int(buffer)).type());
  // A group of one has nothing to say to itself.
  if (!members)
    return context.device.copy(stream, out, in, count * sizeOf(type));
  uint64_t part = count / uint64_t(members->getSize());
  /// Copies part by part, from places to members' order or back.
  auto reorder = [&](void *to, const void *from, bool toMembers, uint64_t elements) {
    size_t bytes = elements * sizeOf(type);
    for (size_t i = 0; i < prepared.places.size(); ++i) {
      size_t source = toMembers ? prepared.places[i] : i;
      size_t target = toMembers ? i : prepared.places[i];
      context.device.copy(stream, static_cast<char *>(to) + target * bytes,
                          static_cast<const char *>(from) + source * bytes, bytes);
    }
  };
  bool ordered = prepared.places.empty();
  void *sent = ordered ? out : prepared.sent->data;
  void *received = ordered ? out : prepared.received->data;
  switch (group.kind()) {
  case schema::Group::ALL_REDUCE:
    return members->allReduce(stream, in, out, count, type, toReduction(group.reduction()), op);
  case schema::Group::ALL_GATHER:
    members->allGather(stream, in, received, count, type, op);
    return reorder(out, received, /*toMembers=*/false, count);
  case schema::Group::REDUCE_SCATTER:
    reorder(sent, in, /*toMembers=*/true, part);
    return members->reduceScatter(stream, ordered ? in : sent, out, part, type,
                                  toReduction(group.reduction()), op);
  case schema::Group::ALL_TO_ALL:
    reorder(sent, in, /*toMembers=*/true, part);
    members->allToAll(stream, ordered ? in : sent, received, part, type, op);
    return reorder(out, received, /*toMembers=*/false, part);
  default:
    return submitPermute(step, stream, in, out, count, type, op);
  }
}

/// The member at place i receives from the one at permutation[i].
void Program::submitPermute(const schema::Step &step, Stream &stream, const void *in, void *out,
                            uint64_t count, DataType type, OpContext op) {
  const auto &permutation = step.group().permutation();
  PreparedGroup &prepared = groups[&step];
  int member = prepared.members->getRank();
  int mine = prepared.places.empty() ? member : int(prepared.places[size_t(member)]);
  int source = int(permutation[mine]), target = mine, lowest = mine;
  if (source == mine)
    return context.device.copy(stream, out, in, count * sizeOf(type));
  for (int place = source; place != mine; place = int(permutation[place])) {
    lowest = std::min(lowest, place);
    target = place; // the last before `mine` receives from it
  }
  prepared.members->sendRecv(stream, in, prepared.getMember(target), out,
                             prepared.getMember(source), count, type,
                             /*receiveFirst=*/lowest == mine, op);
}

std::string Program::describe(const schema::Step &step) const {
  switch (step.kind_case()) {
  case schema::Step::kLaunch:
    return context.stage.kernels(int(step.launch().kernel())).symbol();
  case schema::Step::kLibrary:
    return rt::describe(step.library());
  case schema::Step::kGroup:
    return std::string(getName(step.group().kind())) + " #" +
           std::to_string(step.group().sequence());
  default:
    return "copy";
  }
}
