//===- StageBuilder.cpp - one stage's program as protobuf -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/emit/StageBuilder.h"

#include "compiler/emit/LibraryMessages.h"
#include "dialects/dist/Sharding.h"
#include "dialects/loom/DrawAttr.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;

static constexpr uint64_t kAlignment = 64;

schema::DataType gridloom::toSchemaType(Type element) {
  if (element.isF32())
    return schema::F32;
  if (element.isF64())
    return schema::F64;
  if (element.isF16())
    return schema::F16;
  if (element.isBF16())
    return schema::BF16;
  if (isa<Float8E4M3FNType>(element))
    return schema::F8E4M3FN;
  if (isa<Float8E5M2Type>(element))
    return schema::F8E5M2;
  if (isa<Float8E4M3FNUZType>(element))
    return schema::F8E4M3FNUZ;
  if (isa<Float8E5M2FNUZType>(element))
    return schema::F8E5M2FNUZ;
  if (element.isUnsignedInteger(8))
    return schema::U8;
  if (element.isUnsignedInteger(16))
    return schema::U16;
  if (element.isUnsignedInteger(32))
    return schema::U32;
  if (element.isUnsignedInteger(64))
    return schema::U64;
  if (auto integer = dyn_cast<IntegerType>(element))
    switch (integer.getWidth()) {
    case 1:
      return schema::BOOL;
    case 8:
      return schema::I8;
    case 16:
      return schema::I16;
    case 32:
      return schema::I32;
    case 64:
      return schema::I64;
    default:
      break;
    }
  return schema::DATA_TYPE_UNSPECIFIED;
}

StringRef gridloom::toManifestType(Type element) {
  switch (toSchemaType(element)) {
  case schema::F32:
    return "f32";
  case schema::F64:
    return "f64";
  case schema::F16:
    return "f16";
  case schema::BF16:
    return "bf16";
  case schema::F8E4M3FN:
    return "f8e4m3fn";
  case schema::F8E5M2:
    return "f8e5m2";
  case schema::F8E4M3FNUZ:
    return "f8e4m3fnuz";
  case schema::F8E5M2FNUZ:
    return "f8e5m2fnuz";
  case schema::I8:
    return "i8";
  case schema::I16:
    return "i16";
  case schema::I32:
    return "i32";
  case schema::I64:
    return "i64";
  case schema::U8:
    return "u8";
  case schema::U16:
    return "u16";
  case schema::U32:
    return "u32";
  case schema::U64:
    return "u64";
  case schema::BOOL:
    return "bool";
  default:
    return "";
  }
}

static schema::Space toSchemaSpace(plan::Space space) { return static_cast<schema::Space>(space); }

static RankedTensorType getTensor(Value buffer) {
  return cast<plan::BufferType>(buffer.getType()).getTensor();
}

static void fillShape(RankedTensorType type, google::protobuf::RepeatedField<int64_t> &shape) {
  for (int64_t size : type.getShape())
    shape.Add(size);
}

/// Leaves out the micro-batch axis, for which buffers have slots.
static void fillSharding(dist::ShardingAttr attr, schema::Sharding &sharding) {
  for (dist::DimShardingAttr dim : attr.getDims()) {
    schema::DimSharding *proto = sharding.add_dims();
    for (StringAttr axis : dim.getAxes())
      if (axis.getValue() != dist::MeshOp::kMicroAxis)
        proto->add_axes(axis.str());
    proto->set_granule(dim.getGranule());
  }
}

/// Little-endian bytes of a constant, with a byte for an i1.
static std::string getRawBytes(ElementsAttr value) {
  FailureOr<loom::HostTensor> tensor = loom::HostTensor::fromAttribute(value);
  return succeeded(tensor) ? std::string(tensor->getData(), tensor->getNumBytes()) : std::string();
}

StageBuilder::StageBuilder(ModuleOp module, const llvm::StringMap<schema::Kernel> &kernels)
    : module(module), kernels(kernels) {}

FailureOr<uint32_t> StageBuilder::getKernel(Operation *op, StringRef name) {
  auto [it, inserted] = kernelIndex.insert({name.str(), stage.kernels_size()});
  if (inserted) {
    auto found = kernels.find(name);
    if (found == kernels.end()) {
      op->emitOpError("launches '") << name << "', which was not compiled";
      return failure();
    }
    *stage.add_kernels() = found->second;
  }
  return it->second;
}

uint32_t StageBuilder::getStream(plan::StreamAttr stream, Scope &scope) {
  auto [it, inserted] = scope.streams.try_emplace(stream, scope.streams.size());
  if (inserted) {
    schema::Stream *proto = scope.specialisation->add_streams();
    proto->set_name(stream.getName());
    proto->set_kind(stream.getKind() == plan::StreamKind::Compute ? schema::Stream::COMPUTE
                                                                  : schema::Stream::COMMUNICATION);
  }
  return it->second;
}

uint32_t StageBuilder::getOrigin(Location loc) {
  std::string name = loom::getNodeName(loc);
  auto [it, inserted] = originIndex.insert({name, stage.origins_size()});
  if (inserted)
    stage.add_origins(name);
  return it->second;
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

FailureOr<uint32_t> StageBuilder::addWeight(plan::BufferOp op) {
  std::string name = op.getName()->str();
  MLIRContext *context = op.getContext();
  Attribute layout = op.getLayout() ? Attribute(*op.getLayout()) : UnitAttr::get(context);
  Attribute sharding = op.getSharding() ? Attribute(*op.getSharding()) : UnitAttr::get(context);
  Attribute key = ArrayAttr::get(context, {op.getNameAttr(), layout, sharding});
  auto [it, inserted] = weightIndex.insert({key, stage.weights_size()});
  if (!inserted)
    return it->second;
  RankedTensorType type = getTensor(op.getBuffer());
  schema::Weight *weight = stage.add_weights();
  weight->set_name(name);
  weight->set_type(toSchemaType(type.getElementType()));
  fillShape(type, *weight->mutable_shape());
  if (op.getSharding())
    fillSharding(*op.getSharding(), *weight->mutable_sharding());
  int64_t pad = op.getLayout() ? op.getLayout()->getPad() : 0;
  weight->set_row_pad(pad);
  int64_t row = type.getRank() ? type.getShape().back() : 1;
  int64_t rows = row ? type.getNumElements() / row : 0;
  weight->set_bytes(static_cast<uint64_t>(rows) * (row + pad) *
                    loom::getByteSize(RankedTensorType::get({1}, type.getElementType())));

  Operation *symbol = SymbolTable::lookupSymbolIn(module, name);
  if (isa_and_nonnull<loom::WeightOp>(symbol)) {
    sources.insert(name);
  } else if (auto derived = dyn_cast_or_null<loom::DerivedOp>(symbol)) {
    if (derivedNames.insert(name).second && failed(addDerived(derived)))
      return failure();
  } else {
    op.emitOpError("reads '") << name << "', which is not a weight";
    return failure();
  }
  return it->second;
}

static schema::StateRole toSchemaRole(StringRef role) {
  return llvm::StringSwitch<schema::StateRole>(role)
      .Case(loom::kParameter, schema::PARAMETER)
      .Case(loom::kMoment, schema::MOMENT)
      .Case(loom::kStatistic, schema::STATISTIC)
      .Case(loom::kCounter, schema::COUNTER)
      .Default(schema::NO_ROLE);
}

static void fillDraw(const Draw &draw, schema::Draw &made) {
  made.set_distribution(draw.distribution == Draw::Distribution::Constant  ? schema::Draw::CONSTANT
                        : draw.distribution == Draw::Distribution::Uniform ? schema::Draw::UNIFORM
                                                                           : schema::Draw::NORMAL);
  made.set_first(draw.first);
  made.set_second(draw.second);
  made.set_seed(draw.seed);
  made.set_stream(draw.stream);
}

FailureOr<uint32_t> StageBuilder::addState(plan::BufferOp op, const schema::Buffer &buffer) {
  schema::State state;
  state.set_name(op.getName()->str());
  state.set_type(buffer.type());
  *state.mutable_shape() = buffer.shape();
  state.set_bytes(buffer.bytes());
  state.set_checkpoint(true);
  if (op.getSharding())
    fillSharding(*op.getSharding(), *state.mutable_sharding());
  auto global = op->getAttrOfType<TypeAttr>(loom::kGlobalType);
  fillShape(global ? cast<RankedTensorType>(global.getValue()) : getTensor(op.getBuffer()),
            *state.mutable_global_shape());
  if (auto init = op->getAttrOfType<StringAttr>(loom::kInit)) {
    state.set_init(init.str());
    sources.insert(init.str());
  }
  if (Attribute drawn = op->getAttr(loom::kDraw)) {
    std::optional<Draw> draw = loom::readDraw(drawn);
    if (!draw)
      return op.emitOpError("draws state '") << state.name() << "' as " << drawn;
    fillDraw(*draw, *state.mutable_draw());
  }
  if (auto ties = op->getAttrOfType<ArrayAttr>(loom::kTied))
    for (auto tie : ties.getAsRange<DictionaryAttr>()) {
      schema::TiedWeight *made = state.add_tied();
      made->set_name(tie.getAs<StringAttr>("name").str());
      made->set_transposed(tie.getAs<BoolAttr>("transposed").getValue());
    }
  if (auto role = op->getAttrOfType<StringAttr>(loom::kRole))
    state.set_role(toSchemaRole(role.getValue()));
  for (int i = 0; i < stage.states_size(); ++i) {
    if (stage.states(i).name() != state.name())
      continue;
    if (stage.states(i).SerializeAsString() != state.SerializeAsString())
      return op.emitOpError("declares state '")
             << state.name() << "' with another type or sharding than an earlier specialisation; "
             << "bind the dimensions of a state to one size";
    return static_cast<uint32_t>(i);
  }
  *stage.add_states() = std::move(state);
  return static_cast<uint32_t>(stage.states_size() - 1);
}

LogicalResult StageBuilder::addBuffer(plan::BufferOp op, Scope &scope) {
  RankedTensorType type = getTensor(op.getBuffer());
  scope.indices[op.getBuffer()] = scope.buffers->size();
  schema::Buffer *buffer = scope.buffers->Add();
  buffer->set_space(toSchemaSpace(op.getSpace()));
  buffer->set_type(toSchemaType(type.getElementType()));
  if (buffer->type() == schema::DATA_TYPE_UNSPECIFIED)
    return op.emitOpError("has element type ")
           << type.getElementType() << ", which plans do not have";
  fillShape(type, *buffer->mutable_shape());
  buffer->set_slots(op.getSlots());
  buffer->set_bytes(op.getBytes() ? *op.getBytes() : loom::getByteSize(type));
  if (op.getOffset())
    buffer->set_offset(*op.getOffset());
  schema::Specialisation &specialisation = *scope.specialisation;
  switch (op.getSpace()) {
  case plan::Space::Weight: {
    FailureOr<uint32_t> index = addWeight(op);
    if (failed(index))
      return failure();
    buffer->set_index(*index);
    buffer->set_bytes(stage.weights(*index).bytes());
    return success();
  }
  case plan::Space::Input:
  case plan::Space::Output: {
    bool input = op.getSpace() == plan::Space::Input;
    buffer->set_index(input ? specialisation.inputs_size() : specialisation.outputs_size());
    schema::Binding *binding = input ? specialisation.add_inputs() : specialisation.add_outputs();
    binding->set_name(op.getName()->str());
    binding->set_type(buffer->type());
    SmallVector<int64_t> shape(type.getShape());
    if (!shape.empty())
      shape[0] *= op.getSlots();
    for (int64_t size : shape)
      binding->add_shape(size);
    if (op.getSharding())
      fillSharding(*op.getSharding(), *binding->mutable_sharding());
    return success();
  }
  case plan::Space::State: {
    FailureOr<uint32_t> index = addState(op, *buffer);
    if (failed(index))
      return failure();
    buffer->set_index(*index);
    return success();
  }
  case plan::Space::Constant:
    buffer->set_value(getRawBytes(*op.getValue()));
    return success();
  default:
    return success();
  }
}

/// An alias with another shape shares the source's buffer, since readers know their shapes. A part
/// gets a buffer of its own, up to the end of its source.
void StageBuilder::addAlias(plan::AliasOp op, Scope &scope) {
  uint32_t source = scope.indices.lookup(op.getSource());
  RankedTensorType type = getTensor(op.getBuffer());
  bool isWhole = type.getNumElements() == getTensor(op.getSource()).getNumElements();
  if (op.getOffset() == 0 && isWhole) {
    scope.indices[op.getBuffer()] = source;
    return;
  }
  uint64_t skipped =
      op.getOffset() * loom::getByteSize(RankedTensorType::get({}, type.getElementType()));
  schema::Buffer buffer = scope.buffers->Get(int(source));
  assert((buffer.slots() <= 1 || skipped == 0) && "slots are as far apart as a buffer is long");
  buffer.set_offset(buffer.offset() + skipped);
  buffer.set_bytes(buffer.bytes() - skipped);
  buffer.clear_shape();
  fillShape(type, *buffer.mutable_shape());
  scope.indices[op.getBuffer()] = scope.buffers->size();
  *scope.buffers->Add() = std::move(buffer);
}

//===----------------------------------------------------------------------===//
// The prologue
//===----------------------------------------------------------------------===//

uint32_t StageBuilder::addDerivedBuffer(Value value, Scope &scope, schema::Derived &derived) {
  auto type = cast<RankedTensorType>(value.getType());
  schema::Buffer *buffer = scope.buffers->Add();
  buffer->set_type(toSchemaType(type.getElementType()));
  fillShape(type, *buffer->mutable_shape());
  buffer->set_bytes(loom::getByteSize(type));
  uint32_t index = scope.buffers->size() - 1;
  scope.indices[value] = index;
  return index;
}

LogicalResult StageBuilder::addDerivedStep(Operation &op, Scope &scope, schema::Derived &derived) {
  if (auto weight = dyn_cast<loom::GetWeightOp>(op)) {
    if (!isa_and_nonnull<loom::WeightOp>(SymbolTable::lookupSymbolIn(module, weight.getNameAttr())))
      return op.emitOpError("reads ")
             << weight.getNameAttr() << "; a derived tensor is made of weights alone";
    schema::Buffer &buffer =
        *scope.buffers->Mutable(addDerivedBuffer(weight.getOutput(), scope, derived));
    buffer.set_space(schema::INPUT);
    buffer.set_index(derived.sources_size());
    derived.add_sources(weight.getName().str());
    sources.insert(weight.getName().str());
    return success();
  }
  if (auto constant = dyn_cast<loom::ConstantOp>(op)) {
    schema::Buffer &buffer =
        *scope.buffers->Mutable(addDerivedBuffer(constant.getOutput(), scope, derived));
    buffer.set_space(schema::CONSTANT);
    buffer.set_value(getRawBytes(constant.getValue()));
    return success();
  }
  if (auto reshape = dyn_cast<loom::ReshapeOp>(op)) {
    scope.indices[reshape.getOutput()] = scope.indices.lookup(reshape.getInput());
    return success();
  }
  auto call = dyn_cast<plan::CallOp>(op);
  if (!call)
    return op.emitOpError("cannot be in a prologue");
  FailureOr<uint32_t> kernel = getKernel(&op, call.getKernel());
  if (failed(kernel))
    return failure();
  schema::Step *step = derived.mutable_block()->add_steps();
  step->set_origin(getOrigin(op.getLoc()));
  schema::Launch *launch = step->mutable_launch();
  launch->set_kernel(*kernel);
  for (Value input : call.getInputs())
    launch->add_inputs(scope.indices.lookup(input));
  for (Value output : call.getOutputs()) {
    uint32_t index = addDerivedBuffer(output, scope, derived);
    schema::Buffer &buffer = *scope.buffers->Mutable(index);
    buffer.set_space(schema::ARENA);
    buffer.set_offset(derived.arena_bytes());
    derived.set_arena_bytes(llvm::alignTo(derived.arena_bytes() + buffer.bytes(), kAlignment));
    launch->add_outputs(index);
  }
  return success();
}

LogicalResult StageBuilder::addDerived(loom::DerivedOp op) {
  schema::Derived &derived = *stage.add_derived();
  derived.set_name(op.getSymName().str());
  derived.set_type(toSchemaType(op.getTensorType().getElementType()));
  fillShape(op.getTensorType(), *derived.mutable_shape());
  Scope scope;
  scope.buffers = derived.mutable_buffers();
  for (Operation &inner : op.getBody().front().without_terminator())
    if (failed(addDerivedStep(inner, scope, derived)))
      return failure();
  // The loader reads the result from OUTPUT 0.
  Value result = op.getBody().front().getTerminator()->getOperand(0);
  uint32_t source = scope.indices.lookup(result);
  schema::Buffer &produced = *derived.mutable_buffers(source);
  if (produced.space() == schema::ARENA) {
    produced.set_space(schema::OUTPUT);
    produced.set_offset(0);
    produced.set_index(0);
    return success();
  }
  schema::Buffer copy = produced;
  copy.set_space(schema::OUTPUT);
  copy.set_index(0);
  copy.clear_value();
  *derived.add_buffers() = copy;
  schema::Step *step = derived.mutable_block()->add_steps();
  step->set_origin(getOrigin(op.getLoc()));
  step->mutable_copy()->set_input(source);
  step->mutable_copy()->set_output(derived.buffers_size() - 1);
  return success();
}

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

static schema::Group::Kind toSchemaKind(plan::GroupKind kind) {
  switch (kind) {
  case plan::GroupKind::AllReduce:
    return schema::Group::ALL_REDUCE;
  case plan::GroupKind::AllGather:
    return schema::Group::ALL_GATHER;
  case plan::GroupKind::ReduceScatter:
    return schema::Group::REDUCE_SCATTER;
  case plan::GroupKind::AllToAll:
    return schema::Group::ALL_TO_ALL;
  case plan::GroupKind::Permute:
    return schema::Group::PERMUTE;
  case plan::GroupKind::Send:
    return schema::Group::SEND;
  case plan::GroupKind::Recv:
    return schema::Group::RECV;
  }
  llvm_unreachable("a group of no kind");
}

static schema::Group::Reduction toSchemaReduction(dist::ReductionKind reduction) {
  switch (reduction) {
  case dist::ReductionKind::Sum:
    return schema::Group::SUM;
  case dist::ReductionKind::Max:
    return schema::Group::MAX;
  case dist::ReductionKind::Min:
    return schema::Group::MIN;
  case dist::ReductionKind::Prod:
    return schema::Group::PROD;
  }
  llvm_unreachable("a reduction of no kind");
}

void StageBuilder::fillGroup(plan::GroupOp op, Scope &scope, schema::Group &group) {
  group.set_kind(toSchemaKind(op.getKind()));
  for (auto axis : op.getAxes().getAsRange<StringAttr>())
    group.add_axes(axis.str());
  if (op.getReduction())
    group.set_reduction(toSchemaReduction(*op.getReduction()));
  group.set_sequence(op.getSequence());
  if (auto because = op->getAttrOfType<StringAttr>(dist::kBecause)) {
    auto [it, inserted] = causeIndex.insert({because.str(), stage.causes_size() + 1});
    if (inserted)
      stage.add_causes(because.str());
    group.set_cause(it->second);
  }
  if (op.getStage())
    group.set_peer_stage(*op.getStage());
  if (op.getChannel())
    group.set_channel(*op.getChannel());
  if (std::optional<ArrayRef<int64_t>> permutation = op.getPermutation())
    for (int64_t source : *permutation)
      group.add_permutation(source);
  for (Value input : op.getInputs())
    group.add_inputs(scope.indices.lookup(input));
  for (Value output : op.getOutputs())
    group.add_outputs(scope.indices.lookup(output));
}

LogicalResult StageBuilder::addStep(Operation &op, Scope &scope, schema::Block &block) {
  if (auto alias = dyn_cast<plan::AliasOp>(op)) {
    addAlias(alias, scope);
    return success();
  }
  schema::Step step;
  step.set_origin(getOrigin(op.getLoc()));
  if (auto stream = op.getAttrOfType<plan::StreamAttr>("stream"))
    step.set_stream(getStream(stream, scope));
  auto fill = [&](auto &proto, auto inputs, auto outputs) {
    for (Value input : inputs)
      proto.add_inputs(scope.indices.lookup(input));
    for (Value output : outputs)
      proto.add_outputs(scope.indices.lookup(output));
  };
  if (auto launch = dyn_cast<plan::LaunchOp>(op)) {
    FailureOr<uint32_t> kernel = getKernel(&op, launch.getKernel());
    if (failed(kernel))
      return failure();
    step.mutable_launch()->set_kernel(*kernel);
    fill(*step.mutable_launch(), launch.getInputs(), launch.getOutputs());
  } else if (auto library = dyn_cast<plan::LibraryOp>(op)) {
    fillLibrary(library, *step.mutable_library());
    if (std::optional<StringRef> fallback = library.getFallback()) {
      FailureOr<uint32_t> kernel = getKernel(&op, *fallback);
      if (failed(kernel))
        return failure();
      step.mutable_library()->set_fallback(*kernel + 1);
    }
    fill(*step.mutable_library(), library.getInputs(), library.getOutputs());
  } else if (auto copy = dyn_cast<plan::CopyOp>(op)) {
    step.mutable_copy()->set_input(scope.indices.lookup(copy.getInputs()[0]));
    step.mutable_copy()->set_output(scope.indices.lookup(copy.getOutputs()[0]));
  } else if (auto group = dyn_cast<plan::GroupOp>(op)) {
    fillGroup(group, scope, *step.mutable_group());
  } else if (auto record = dyn_cast<plan::RecordOp>(op)) {
    step.mutable_record()->set_id(record.getEvent());
    scope.numEvents = std::max<uint32_t>(scope.numEvents, record.getEvent() + 1);
  } else if (auto wait = dyn_cast<plan::WaitOp>(op)) {
    step.mutable_wait()->set_id(wait.getEvent());
    step.mutable_wait()->set_lag(wait.getLag());
    scope.numEvents = std::max<uint32_t>(scope.numEvents, wait.getEvent() + 1);
  } else {
    return op.emitOpError("is not a step of a plan");
  }
  *block.add_steps() = std::move(step);
  return success();
}

LogicalResult StageBuilder::addControl(Block &block, Scope &scope,
                                       google::protobuf::RepeatedPtrField<schema::Control> &body) {
  for (Operation &op : block) {
    if (auto buffer = dyn_cast<plan::BufferOp>(op)) {
      if (failed(addBuffer(buffer, scope)))
        return failure();
    } else if (auto alias = dyn_cast<plan::AliasOp>(op)) {
      addAlias(alias, scope);
    } else if (auto parameter = dyn_cast<plan::RankParamOp>(op)) {
      scope.indices[parameter.getBuffer()] = scope.buffers->size();
      schema::Buffer *buffer = scope.buffers->Add();
      buffer->set_space(schema::RANK_PARAM);
      buffer->set_type(schema::I64);
      fillShape(getTensor(parameter.getBuffer()), *buffer->mutable_shape());
      buffer->set_bytes(sizeof(int64_t));
      for (auto axis : parameter.getAxes().getAsRange<StringAttr>())
        buffer->add_axes(axis.str());
    } else if (auto steps = dyn_cast<plan::BlockOp>(op)) {
      schema::Block &proto = *body.Add()->mutable_block();
      for (Operation &step : steps.getBody().front())
        if (failed(addStep(step, scope, proto)))
          return failure();
    } else if (auto repeat = dyn_cast<plan::RepeatOp>(op)) {
      schema::Repeat &proto = *body.Add()->mutable_repeat();
      proto.set_count(repeat.getCount());
      if (failed(addControl(repeat.getBody().front(), scope, *proto.mutable_body())))
        return failure();
    } else if (auto loop = dyn_cast<plan::WhileOp>(op)) {
      schema::While &proto = *body.Add()->mutable_loop();
      proto.set_condition(scope.indices.lookup(loop.getCondition()));
      if (failed(addControl(loop.getBody().front(), scope, *proto.mutable_body())))
        return failure();
    } else if (auto branch = dyn_cast<plan::IfOp>(op)) {
      schema::If &proto = *body.Add()->mutable_branch();
      proto.set_condition(scope.indices.lookup(branch.getCondition()));
      if (failed(addControl(branch.getThenBody().front(), scope, *proto.mutable_then())) ||
          failed(addControl(branch.getElseBody().front(), scope, *proto.mutable_otherwise())))
        return failure();
    } else {
      return op.emitOpError("cannot stand in a plan");
    }
  }
  return success();
}

LogicalResult StageBuilder::add(plan::ProgramOp program) {
  stage.set_stage(program.getStage());
  schema::Entry *entry = nullptr;
  for (schema::Entry &candidate : *stage.mutable_entries())
    if (candidate.name() == program.getEntry())
      entry = &candidate;
  if (!entry) {
    entry = stage.add_entries();
    entry->set_name(program.getEntry().str());
  }
  schema::Specialisation &specialisation = *entry->add_specialisations();
  specialisation.set_arena_bytes(program.getArenaBytes());
  specialisation.set_registered_bytes(program.getRegisteredBytes());
  Scope scope;
  scope.specialisation = &specialisation;
  scope.buffers = specialisation.mutable_buffers();
  getStream(plan::StreamAttr::getCompute(program.getContext()), scope); // stream 0
  if (failed(addControl(program.getBody().front(), scope, *specialisation.mutable_body())))
    return failure();
  specialisation.set_num_events(scope.numEvents);
  return success();
}
