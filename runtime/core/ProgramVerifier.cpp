//===- ProgramVerifier.cpp - bounds of one program ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/ProgramVerifier.h"

#include "runtime/core/Error.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/LibraryCalls.h"
#include "runtime/core/Plan.h"

#include <algorithm>

using namespace gridloom;
using namespace gridloom::rt;

static uint64_t getSlots(const schema::Buffer &buffer) { return std::max(1u, buffer.slots()); }

void ProgramVerifier::fail(const std::string &message) const {
  throw Error(ErrorCode::InvalidPlan, file + ": " + what + ": " + message);
}

void ProgramVerifier::verifySpecialisation(const schema::Specialisation &program) {
  buffers = &program.buffers();
  arenaBytes = program.arena_bytes();
  registeredBytes = program.registered_bytes();
  numEvents = program.num_events();
  constexpr int maxStreams = 1024;
  constexpr uint32_t maxEvents = 1 << 20;
  if (program.streams_size() > maxStreams || numEvents > maxEvents)
    fail("has " + std::to_string(program.streams_size()) + " streams and " +
         std::to_string(numEvents) + " events, at most " + std::to_string(maxStreams) + " and " +
         std::to_string(maxEvents) + " are possible");
  std::set<std::string> names;
  for (const schema::Stream &stream : program.streams()) {
    if (stream.kind() < schema::Stream::COMPUTE || stream.kind() > schema::Stream::COMMUNICATION)
      fail("stream '" + stream.name() + "' is of unknown kind " + std::to_string(stream.kind()));
    if (!names.insert(stream.name()).second)
      fail("stream '" + stream.name() + "' is there twice");
    streams.push_back(stream.kind());
  }
  for (int i = 0; i < buffers->size(); ++i)
    verifyBuffer(buffers->Get(i), size_t(i));
  verifyBody(program.body(), 0, 0);
  for (uint32_t event : waitedLater)
    if (!recordedAnywhere.count(event))
      fail("event " + std::to_string(event) + " is waited for but never recorded");
}

void ProgramVerifier::verifyDerived(const schema::Derived &program) {
  isDerived = true;
  buffers = &program.buffers();
  arenaBytes = program.arena_bytes();
  streams = {schema::Stream::COMPUTE};
  for (int i = 0; i < buffers->size(); ++i)
    verifyBuffer(buffers->Get(i), size_t(i));
  verifyBlock(program.block(), false);
}

/// The bytes available for the buffer's slots, counted from its offset.
uint64_t ProgramVerifier::getSpaceBytes(const schema::Buffer &buffer, const std::string &name) {
  auto pick = [&](size_t count, auto bytesOf) -> uint64_t {
    if (buffer.index() >= count)
      fail(name + " is number " + std::to_string(buffer.index()) + " of " + std::to_string(count));
    return bytesOf(buffer.index());
  };
  auto pickBound = [&](const std::vector<Bound> &bounds) {
    return pick(bounds.size(), [&](uint32_t i) {
      if (bounds[i].type != DataType(buffer.type()))
        fail(name + " is " + std::string(nameOf(DataType(buffer.type()))) + ", what it names is " +
             std::string(nameOf(bounds[i].type)));
      return bounds[i].bytes;
    });
  };
  auto withoutOffset = [&](uint64_t space) {
    if (buffer.offset() > space)
      fail(name + " starts at byte " + std::to_string(buffer.offset()) + " of a space of " +
           std::to_string(space));
    return space - buffer.offset();
  };
  auto refusePart = [&](const char *of) {
    if (buffer.offset() != 0)
      fail(name + " starts at byte " + std::to_string(buffer.offset()) + " of a " + of +
           ", which has no parts");
  };
  switch (buffer.space()) {
  case schema::ARENA:
    return withoutOffset(arenaBytes);
  case schema::REGISTERED:
    return withoutOffset(registeredBytes);
  case schema::INPUT:
    return withoutOffset(pickBound(inputs));
  case schema::OUTPUT:
    return withoutOffset(pickBound(outputs));
  case schema::WEIGHT:
    if (isDerived)
      fail(name + " is a weight; a prologue reads its sources");
    return withoutOffset(pick(size_t(stage.weights_size()),
                              [&](uint32_t i) { return stage.weights(int(i)).bytes(); }));
  case schema::STATE:
    if (isDerived)
      fail(name + " is a state; a prologue has none");
    return withoutOffset(pick(size_t(stage.states_size()),
                              [&](uint32_t i) { return stage.states(int(i)).bytes(); }));
  case schema::CONSTANT:
    refusePart("constant");
    return buffer.value().size();
  case schema::RANK_PARAM: {
    refusePart("rank parameter");
    std::vector<std::string> axes(buffer.axes().begin(), buffer.axes().end());
    plan.getMesh().getSize(axes);
    if (isDerived)
      fail(name + " differs per rank; a prologue must not");
    if (buffer.type() != schema::I64)
      fail(name + " is a rank parameter and not i64");
    return sizeof(int64_t);
  }
  default:
    fail(name + " is in unknown space " + std::to_string(int(buffer.space())));
  }
}

void ProgramVerifier::verifyBuffer(const schema::Buffer &buffer, size_t index) {
  std::string name = "buffer " + std::to_string(index);
  if (!isDataType(buffer.type()))
    fail(name + " has unknown element type " + std::to_string(int(buffer.type())));
  size_t elementBytes = sizeOf(DataType(buffer.type()));
  std::vector<int64_t> shape(buffer.shape().begin(), buffer.shape().end());
  uint64_t payload = uint64_t(checkedBytes(shape, elementBytes, what + ": " + name));
  elements.push_back(payload / elementBytes);
  if (buffer.bytes() < payload)
    fail(name + " has " + std::to_string(buffer.bytes()) + " bytes, its shape " +
         formatShape(shape) + " needs " + std::to_string(payload));
  if (buffer.offset() % elementBytes || buffer.bytes() % elementBytes)
    fail(name + " at byte " + std::to_string(buffer.offset()) + " of " +
         std::to_string(buffer.bytes()) + " bytes splits elements of " +
         std::to_string(elementBytes));
  // Slots may start at any offset of memory that the compiler places; in other spaces only a whole
  // buffer has slots.
  bool isPlaced = buffer.space() == schema::ARENA || buffer.space() == schema::REGISTERED;
  if (getSlots(buffer) > 1 && buffer.offset() && !isPlaced)
    fail(name + " is a part from byte " + std::to_string(buffer.offset()) + " on and has " +
         std::to_string(getSlots(buffer)) + " slots; only a whole buffer has several");
  uint64_t room = getSpaceBytes(buffer, name), needed;
  if (__builtin_mul_overflow(buffer.bytes(), getSlots(buffer), &needed) || needed > room)
    fail(name + " needs " + std::to_string(getSlots(buffer)) + " slots of " +
         std::to_string(buffer.bytes()) + " bytes at " + std::to_string(buffer.offset()) + ", " +
         std::to_string(room) + " bytes are left in its space");
}

/// `times` is the number of times that enclosing repeats run the body; 0: there are none.
void ProgramVerifier::verifyBody(const Body &body, uint64_t times, int depth) {
  constexpr int maxDepth = 64;
  constexpr uint64_t maxTimes = uint64_t(1) << 32;
  if (depth > maxDepth)
    fail("control is nested deeper than " + std::to_string(maxDepth));
  if (times > maxTimes)
    fail("repeats steps " + std::to_string(times) + " times, at most " + std::to_string(maxTimes) +
         " are possible");
  bool repeated = times != 0;
  for (const schema::Control &control : body) {
    switch (control.kind_case()) {
    case schema::Control::kBlock:
      verifyBlock(control.block(), repeated);
      break;
    case schema::Control::kRepeat:
      verifyBody(control.repeat().body(),
                 std::max<uint64_t>(times, 1) * std::max(control.repeat().count(), 1u), depth + 1);
      break;
    case schema::Control::kLoop:
      verifyCondition(control.loop().condition());
      verifyBody(control.loop().body(), times, depth + 1);
      break;
    case schema::Control::kBranch:
      verifyCondition(control.branch().condition());
      verifyBody(control.branch().then(), times, depth + 1);
      verifyBody(control.branch().otherwise(), times, depth + 1);
      break;
    case schema::Control::KIND_NOT_SET:
      fail("has a control element that is nothing; a newer runtime may know it");
    }
  }
}

void ProgramVerifier::verifyCondition(uint32_t condition) {
  const schema::Buffer &buffer = getBuffer(condition, "a condition");
  if (buffer.type() != schema::BOOL || elements[condition] != 1)
    fail("a condition is buffer " + std::to_string(condition) + " with " +
         std::to_string(elements[condition]) + " elements of " +
         std::string(nameOf(DataType(buffer.type()))) + ", not one bool");
}

void ProgramVerifier::verifyBlock(const schema::Block &block, bool repeated) {
  for (int i = 0; i < block.steps_size(); ++i)
    verifyStep(block.steps(i), "step " + std::to_string(i), repeated);
}

void ProgramVerifier::verifyStep(const schema::Step &step, const std::string &number,
                                 bool repeated) {
  std::string name = number;
  if (step.origin() < uint32_t(stage.origins_size()))
    name += " (" + stage.origins(int(step.origin())) + ")";
  else if (step.origin())
    fail(name + " has origin " + std::to_string(step.origin()) + " of " +
         std::to_string(stage.origins_size()));
  if (step.stream() >= streams.size())
    fail(name + " is on stream " + std::to_string(step.stream()) + " of " +
         std::to_string(streams.size()));
  switch (step.kind_case()) {
  case schema::Step::kLaunch:
    return verifyLaunch(step.launch(), name);
  case schema::Step::kLibrary:
    return verifyLibrary(step.library(), name);
  case schema::Step::kCopy:
    return verifyCopy(step.copy(), name);
  case schema::Step::kGroup:
    if (isDerived)
      fail(name + " communicates; a prologue must not");
    if (streams[step.stream()] != schema::Stream::COMMUNICATION)
      fail(name + " communicates on stream " + std::to_string(step.stream()) +
           ", which is not a communication stream");
    verifyGroup(step.group(), name);
    return verifyGroupStream(step, name);
  case schema::Step::kRecord:
  case schema::Step::kWait: {
    const schema::Event &event = step.has_record() ? step.record() : step.wait();
    if (event.id() >= numEvents)
      fail(name + " uses event " + std::to_string(event.id()) + " of " + std::to_string(numEvents));
    constexpr uint32_t maxLag = 1 << 10;
    if (event.lag() > maxLag || (event.lag() && (step.has_record() || !repeated)))
      fail(name + " uses event " + std::to_string(event.id()) + " with lag " +
           std::to_string(event.lag()) + "; a lag of 1 to " + std::to_string(maxLag) +
           " is for waits in a repeat");
    if (step.has_record())
      recorded.insert(event.id()), recordedAnywhere.insert(event.id());
    else if (event.lag())
      waitedLater.insert(event.id());
    else if (!recorded.count(event.id()))
      fail(name + " waits for event " + std::to_string(event.id()) +
           ", which no step before it records");
    return;
  }
  case schema::Step::KIND_NOT_SET:
    fail(name + " is nothing; a newer runtime may know it");
  }
}

const schema::Buffer &ProgramVerifier::getBuffer(uint32_t index, const std::string &name) const {
  if (index >= uint32_t(buffers->size()))
    fail(name + " uses buffer " + std::to_string(index) + " of " + std::to_string(buffers->size()));
  return buffers->Get(int(index));
}

const schema::Buffer &ProgramVerifier::getWritable(uint32_t index, const std::string &name) const {
  const schema::Buffer &buffer = getBuffer(index, name);
  switch (buffer.space()) {
  case schema::ARENA:
  case schema::REGISTERED:
  case schema::STATE:
  case schema::OUTPUT:
    return buffer;
  default:
    // Weights are shared between ranks, inputs belong to the caller.
    fail(name + " writes buffer " + std::to_string(index) + ", which is read-only");
  }
}

void ProgramVerifier::requireCount(const Indices &indices, int count, const std::string &name,
                                   const char *side) const {
  if (indices.size() != count)
    fail(name + " has " + std::to_string(indices.size()) + " " + side + ", needs " +
         std::to_string(count));
}

void ProgramVerifier::verifyLaunch(const schema::Launch &launch, const std::string &name) {
  if (launch.kernel() >= uint32_t(stage.kernels_size()))
    fail(name + " launches kernel " + std::to_string(launch.kernel()) + " of " +
         std::to_string(stage.kernels_size()));
  const schema::Kernel &kernel = stage.kernels(int(launch.kernel()));
  int pointers = launch.inputs_size() + launch.outputs_size();
  if (uint32_t(pointers) != kernel.num_pointers())
    fail(name + " gives kernel '" + kernel.symbol() + "' " + std::to_string(pointers) +
         " buffers, it takes " + std::to_string(kernel.num_pointers()));
  for (uint32_t index : launch.inputs())
    getBuffer(index, name);
  for (uint32_t index : launch.outputs())
    getWritable(index, name);
}

/// All elements that sizes and strides reach must be inside one slot of the buffer.
void ProgramVerifier::verifyOperand(const std::vector<int64_t> &extents,
                                    const google::protobuf::RepeatedField<int64_t> &strides,
                                    uint32_t index, const std::string &name) {
  const schema::Buffer &buffer = getBuffer(index, name);
  if (size_t(strides.size()) != extents.size())
    fail(name + " has " + std::to_string(strides.size()) + " strides for " +
         std::to_string(extents.size()) + " dimensions");
  int64_t last = 0, reach;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 0)
      return;
    if (strides.Get(int(i)) < 0 ||
        __builtin_mul_overflow(extents[i] - 1, strides.Get(int(i)), &reach) ||
        __builtin_add_overflow(last, reach, &last))
      fail(name + " has stride " + std::to_string(strides.Get(int(i))) + " over " +
           std::to_string(extents[i]) + " elements");
  }
  uint64_t held = buffer.bytes() / sizeOf(DataType(buffer.type()));
  if (uint64_t(last) >= held)
    fail(name + " reaches element " + std::to_string(last) + " of buffer " + std::to_string(index) +
         ", which has " + std::to_string(held));
}

void ProgramVerifier::verifyMatmul(const schema::Library &call, const std::string &name) {
  const schema::Matmul &matmul = call.matmul();
  int rank = matmul.sizes_size();
  constexpr int maxRank = 16;
  if (rank < 3 || rank > maxRank)
    fail(name + " multiplies over " + std::to_string(rank) + " sizes, needs 3 to " +
         std::to_string(maxRank));
  int64_t work = 1;
  for (int64_t size : matmul.sizes())
    if (size < 0 || __builtin_mul_overflow(work, std::max<int64_t>(size, 1), &work))
      fail(name + " multiplies over a size of " + std::to_string(size));
  const schema::Epilogue &epilogue = matmul.epilogue();
  if (!schema::Epilogue::Activation_IsValid(epilogue.activation()))
    fail(name + " has unknown activation " + std::to_string(int(epilogue.activation())));
  bool bias = epilogue.bias(), activates = epilogue.activation() != schema::Epilogue::NONE;
  if (activates != (call.fallback() != 0) || call.fallback() > uint32_t(stage.kernels_size()))
    fail(name + " falls back to kernel " + std::to_string(int64_t(call.fallback()) - 1) + " of " +
         std::to_string(stage.kernels_size()) + " with activation " +
         schema::Epilogue::Activation_Name(epilogue.activation()));
  if (activates) {
    const schema::Kernel &kernel = stage.kernels(int(call.fallback()) - 1);
    if (kernel.num_pointers() != (bias ? 3u : 2u))
      fail(name + " falls back to kernel " + kernel.symbol() + ", which takes " +
           std::to_string(kernel.num_pointers()) + " pointers, not " + (bias ? "3" : "2"));
  }
  requireCount(call.inputs(), 2 + int(bias) + int(epilogue.residual()), name, "inputs");
  requireCount(call.outputs(), 1, name, "outputs");
  verifyWorkspace(matmul.workspace_limit(), name);
  std::vector<int64_t> batch(matmul.sizes().begin(), matmul.sizes().end() - 3);
  auto with = [&](int first, int second) {
    std::vector<int64_t> extents = batch;
    extents.push_back(matmul.sizes(rank - 3 + first));
    extents.push_back(matmul.sizes(rank - 3 + second));
    return extents;
  };
  if (!isDataType(matmul.type()) || (matmul.out_type() && !isDataType(matmul.out_type())))
    fail(name + " multiplies type " + std::to_string(int(matmul.type())) + " into " +
         std::to_string(int(matmul.out_type())) + "; one of them is unknown");
  auto in = DataType(matmul.type()),
       result = DataType(matmul.out_type() ? matmul.out_type() : matmul.type());
  bool widens = result == DataType::F32 && (in == DataType::F16 || in == DataType::BF16);
  if (result != in && !widens)
    fail(name + " multiplies " + std::string(nameOf(in)) + " into " + std::string(nameOf(result)) +
         "; only f16 and bf16 have a result of another type, f32");
  for (int i = 0; i < call.inputs_size(); ++i) {
    DataType type = DataType(getBuffer(call.inputs(i), name).type()), wanted = i < 2 ? in : result;
    if (type != wanted)
      fail(name + " multiplies " + std::string(nameOf(wanted)) + " and reads " +
           std::string(nameOf(type)));
  }
  if (DataType type = DataType(getWritable(call.outputs(0), name).type()); type != result)
    fail(name + " multiplies " + std::string(nameOf(result)) + " and writes " +
         std::string(nameOf(type)));
  verifyOperand(with(0, 2), matmul.lhs(), call.inputs(0), name + " lhs");
  verifyOperand(with(2, 1), matmul.rhs(), call.inputs(1), name + " rhs");
  std::vector<int64_t> out = with(0, 1);
  verifyOperand(out, matmul.out(), call.outputs(0), name + " out");
  verifyDistinct(out, matmul.out(), name);
  if (bias && uint64_t(matmul.sizes(rank - 2)) > elements[call.inputs(2)])
    fail(name + " adds a bias of " + std::to_string(elements[call.inputs(2)]) + " elements to " +
         std::to_string(matmul.sizes(rank - 2)) + " columns");
  if (epilogue.residual())
    verifyOperand(out, matmul.out(), call.inputs(bias ? 3 : 2), name + " residual");
}

void ProgramVerifier::verifyCopy(const schema::Copy &copy, const std::string &name) {
  const schema::Buffer &from = getBuffer(copy.input(), name),
                       &to = getWritable(copy.output(), name);
  if (from.type() != to.type() || elements[copy.input()] != elements[copy.output()])
    fail(name + " copies " + std::to_string(elements[copy.input()]) + " elements of " +
         std::string(nameOf(DataType(from.type()))) + " to " +
         std::to_string(elements[copy.output()]) + " of " +
         std::string(nameOf(DataType(to.type()))));
}

void ProgramVerifier::verifyGroup(const schema::Group &group, const std::string &name) {
  for (uint32_t index : group.inputs())
    getBuffer(index, name);
  for (uint32_t index : group.outputs())
    getWritable(index, name);
  if (group.kind() == schema::Group::SEND || group.kind() == schema::Group::RECV) {
    bool send = group.kind() == schema::Group::SEND;
    if (group.peer_stage() >= uint32_t(plan.getMesh().getNumStages()) ||
        group.peer_stage() == stage.stage())
      fail(name + " has peer stage " + std::to_string(group.peer_stage()) + " in stage " +
           std::to_string(stage.stage()) + " of " + std::to_string(plan.getMesh().getNumStages()));
    const Indices &used = send ? group.inputs() : group.outputs();
    const Indices &unused = send ? group.outputs() : group.inputs();
    requireCount(unused, 0, name, send ? "outputs" : "inputs");
    if (used.empty())
      fail(name + " transfers nothing");
    return;
  }
  std::vector<std::string> axes(group.axes().begin(), group.axes().end());
  if (axes.empty())
    fail(name + " is a group over no axes");
  std::set<std::string> seen;
  for (const std::string &axis : axes) {
    if (!plan.getMesh().hasAxis(axis))
      fail(name + " is a group over axis '" + axis + "', which is not in the mesh");
    if (axis == plan.getMesh().getStageAxis())
      fail(name + " is a group over the stage axis '" + axis + "'; stages send and receive");
    if (!seen.insert(axis).second)
      fail(name + " is a group over axis '" + axis + "' twice");
  }
  verifyCollective(group, plan.getMesh().getSize(axes), name);
}

/// All calls of a communicator must be on one stream, which gives them the same order on all ranks.
void ProgramVerifier::verifyGroupStream(const schema::Step &step, const std::string &name) {
  const schema::Group &group = step.group();
  bool transfers = group.kind() == schema::Group::SEND || group.kind() == schema::Group::RECV;
  std::vector<std::string> axes(group.axes().begin(), group.axes().end());
  auto key = transfers ? std::tuple(int(group.kind()), group.peer_stage(), decltype(axes)())
                       : std::tuple(-1, 0u, axes);
  uint32_t known = groupStreams.try_emplace(key, step.stream()).first->second;
  if (known != step.stream())
    fail(name + " is on stream " + std::to_string(step.stream()) +
         "; an earlier step of the same group is on stream " + std::to_string(known));
}

void ProgramVerifier::verifyCollective(const schema::Group &group, int64_t members,
                                       const std::string &name) {
  bool reduces =
      group.kind() == schema::Group::ALL_REDUCE || group.kind() == schema::Group::REDUCE_SCATTER;
  if (!schema::Group::Reduction_IsValid(group.reduction()) ||
      reduces != (group.reduction() != schema::Group::NO_REDUCTION))
    fail(name + " is a group of kind " + std::to_string(int(group.kind())) + " with reduction " +
         std::to_string(int(group.reduction())) + (reduces ? "; it needs one" : "; it has none"));
  if (group.kind() == schema::Group::PERMUTE) {
    std::set<int64_t> sources(group.permutation().begin(), group.permutation().end());
    if (group.permutation_size() != members || int64_t(sources.size()) != members ||
        *sources.begin() != 0 || *sources.rbegin() != members - 1)
      fail(name + " permutes " + std::to_string(group.permutation_size()) + " of " +
           std::to_string(members) + " members, or one twice");
  }
  requireCount(group.outputs(), group.inputs_size(), name, "outputs");
  if (group.inputs_size() == 0)
    fail(name + " communicates nothing");
  uint64_t inFactor = 1, outFactor = 1;
  switch (group.kind()) {
  case schema::Group::ALL_GATHER:
    inFactor = uint64_t(members);
    break;
  case schema::Group::REDUCE_SCATTER:
    outFactor = uint64_t(members);
    break;
  case schema::Group::ALL_REDUCE:
  case schema::Group::ALL_TO_ALL:
  case schema::Group::PERMUTE:
    break;
  default:
    fail(name + " is a group of unknown kind " + std::to_string(int(group.kind())));
  }
  for (int i = 0; i < group.inputs_size(); ++i) {
    auto type = static_cast<DataType>(getBuffer(group.inputs(i), name).type());
    if (reduces && isFloat8(type))
      fail(name + " reduces " + std::string(nameOf(type)) +
           ", which no operation computes with; convert it to f32 first");
    uint64_t in = elements[group.inputs(i)], out = elements[group.outputs(i)], left, right;
    if (getBuffer(group.inputs(i), name).type() != getBuffer(group.outputs(i), name).type())
      fail(name + " takes and gives different element types");
    if (__builtin_mul_overflow(in, inFactor, &left) ||
        __builtin_mul_overflow(out, outFactor, &right) || left != right)
      fail(name + " makes " + std::to_string(out) + " elements of " + std::to_string(in) +
           " over " + std::to_string(members) + " members");
    if (group.kind() == schema::Group::ALL_TO_ALL && in % uint64_t(members))
      fail(name + " splits " + std::to_string(in) + " elements among " + std::to_string(members) +
           " members");
  }
}
