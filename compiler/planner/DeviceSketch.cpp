//===- DeviceSketch.cpp - what a device will compute, roughly -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/DeviceSketch.h"

#include "dialects/dist/Splits.h"
#include "dialects/loom/Control.h"
#include "passes/fuse/ExpandContractions.h"
#include "passes/fuse/StridedView.h"
#include "passes/partition/KeptSharding.h"
#include "passes/partition/Resharder.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

DeviceSketch::DeviceSketch(func::FuncOp given, const Mesh &mesh, const MemoryOptions &options)
    : mesh(mesh), options(options), stageAxes(getStageAxes(given->getParentOfType<ModuleOp>())),
      holder(ModuleOp::create(given.getLoc())) {
  IRMapping mapping;
  OpBuilder builder = OpBuilder::atBlockEnd(holder->getBody());
  func = cast<func::FuncOp>(builder.clone(*given, mapping));
  for (auto [source, copy] : llvm::zip_equal(given.front(), func.front()))
    sources[&copy] = &source;
  decompose();
  reshard();
  addTransfers();
  findRightOperands();
  if (options.layout.convolutionLibrary)
    transposeChannels();
  if (options.layout.mergeMatmuls)
    mergeProducts();
  formCalls();
  eraseDead();
  findCommunicated();
  for (FusionGroup &group : formFusionGroups(func.front(), /*hasProducts=*/true))
    kernels.try_emplace(group.root, group);
}

std::optional<DeviceSketch::Mark> DeviceSketch::getMark(Operation *op) const {
  auto it = marks.find(op);
  return it == marks.end() ? std::nullopt : std::optional(it->second);
}

int64_t DeviceSketch::getStage(Operation *op) const {
  if (auto it = stages.find(op); it != stages.end())
    return it->second;
  auto stage = op->getAttrOfType<IntegerAttr>(kStage);
  return stage ? stage.getInt() : 0;
}

void DeviceSketch::setLocal(Value value, RankedTensorType local) {
  types[value] = local;
  bytes[value] = loom::getByteSize(local);
}

//===----------------------------------------------------------------------===//
// Convolutions and windows without a library
//===----------------------------------------------------------------------===//

/// Shardings of operations that another is made of follow from those of their operands.
void DeviceSketch::shardParts(Operation *first, Operation *end) {
  for (Operation *op = first; op != end; op = op->getNextNode()) {
    auto ruled = dyn_cast<ShardingRuleInterface>(op);
    if (!ruled || op->getNumResults() != 1)
      continue;
    SmallVector<Sharding> declared;
    for (Value operand : op->getOperands())
      declared.push_back(Sharding(dist::getSharding(operand)));
    auto type = cast<RankedTensorType>(op->getResult(0).getType());
    declared.push_back(Sharding::replicated(type.getRank(), /*open=*/true));
    ShardingRule rule = ruled.getShardingRule();
    FactorSplits splits = mergeFactors(rule, declared, getTensorTypes(op), mesh);
    Sharding result = project(rule, op->getNumOperands(), splits, mesh);
    dist::setSharding(op->getResult(0), result.getAttr(mesh), OriginAttr());
  }
}

/// A library has no convolutions that put zeros between elements of the input.
static bool isInConvolutionLibrary(Operation *op) {
  auto convolution = dyn_cast<loom::ConvolutionOp>(op);
  return convolution && llvm::all_of(convolution.getInputDilations(),
                                     [](int64_t dilation) { return dilation == 1; });
}

void DeviceSketch::decompose() {
  SmallVector<loom::DecomposeInterface> composites;
  for (Operation &op : func.front())
    if (isa<loom::ReduceWindowOp, loom::ConvolutionOp>(op) &&
        !(options.layout.convolutionLibrary && isInConvolutionLibrary(&op)))
      composites.push_back(cast<loom::DecomposeInterface>(op));
  for (loom::DecomposeInterface op : composites) {
    Operation *before = op->getPrevNode();
    OpBuilder builder(op);
    SmallVector<Value> results = op.decompose(builder);
    Operation *first = before ? before->getNextNode() : &func.front().front();
    for (Operation *part = first; part != op.getOperation(); part = part->getNextNode())
      stages[part] = getStage(op);
    shardParts(first, op);
    for (auto [old, now] : llvm::zip_equal(op->getResults(), results))
      if (now.getDefiningOp())
        dist::setSharding(now, dist::getSharding(old), OriginAttr());
    op->replaceAllUsesWith(results);
    op->erase();
  }
}

//===----------------------------------------------------------------------===//
// Reshards, as partitioning will make them
//===----------------------------------------------------------------------===//

Value DeviceSketch::addMark(OpBuilder &builder, Mark mark, ValueRange operands, Type type,
                            RankedTensorType local, int64_t stage) {
  auto op = UnrealizedConversionCastOp::create(builder, func.getLoc(), type, operands);
  marks[op] = mark;
  stages[op] = stage;
  setLocal(op.getResult(0), local);
  return op.getResult(0);
}

/// Collectives split and join the first dimension: parts of another are moved there or back.
Value DeviceSketch::move(OpBuilder &builder, Value value, int64_t dim, int64_t parts,
                         bool toFront) {
  auto type = cast<RankedTensorType>(value.getType());
  if (dim == 0 || type.getDimSize(dim) % parts != 0)
    return value;
  RankedTensorType local = types.lookup(value);
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] /= parts;
  shape.insert(shape.begin() + dim, parts);
  SmallVector<int64_t> front(shape);
  front.erase(front.begin() + dim);
  front.insert(front.begin(), parts);
  SmallVector<int64_t> permutation = llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  permutation.erase(permutation.begin() + (toFront ? dim : 0));
  permutation.insert(permutation.begin() + (toFront ? 0 : dim), toFront ? dim : 0);
  auto typeOf = [&](ArrayRef<int64_t> of) {
    return RankedTensorType::get(of, type.getElementType());
  };
  Location loc = func.getLoc();
  Value split = loom::ReshapeOp::create(builder, loc, typeOf(toFront ? shape : front), value);
  Value moved =
      loom::TransposeOp::create(builder, loc, typeOf(toFront ? front : shape), split, permutation);
  Value joined = loom::ReshapeOp::create(builder, loc, type, moved);
  for (Value each : {split, moved, joined}) {
    stages[each.getDefiningOp()] = getStage(value.getDefiningOp());
    setLocal(each, local);
  }
  return joined;
}

Value DeviceSketch::emit(OpBuilder &builder, const Version &from, const ReshardStep &step,
                         Value value, RankedTensorType after, int64_t stage) {
  int64_t parts = mesh.getSize(step.axes);
  Type type = from.value.getType();
  if (step.kind == ReshardStep::Slice)
    return addMark(builder, Mark::Slice, value, type, after, stage);
  bool scatters = step.kind == ReshardStep::ReduceScatter;
  bool exchanges = step.kind == ReshardStep::AllToAll;
  if ((scatters || exchanges) && value.getDefiningOp())
    value = move(builder, value, scatters ? step.dim : step.splitDim, parts, /*toFront=*/true);
  int64_t most = std::max(getBytes(value), loom::getByteSize(after));
  value = addMark(builder, Mark::Collective, value, type, after, stage);
  communications[value.getDefiningOp()] = {
      mesh.getSeconds(*getCollective(step.kind), static_cast<double>(most), step.axes),
      builder.getArrayAttr(SmallVector<Attribute>(step.axes.begin(), step.axes.end()))};
  if (exchanges || step.kind == ReshardStep::AllGather)
    value = move(builder, value, step.dim, parts, /*toFront=*/false);
  return value;
}

Value DeviceSketch::request(Value global, const Sharding &sharding, Operation *user) {
  SmallVector<Version, 2> &available = versions[global];
  auto type = cast<RankedTensorType>(global.getType());
  Operation *producer = global.getDefiningOp();
  int64_t stage = getStage(producer ? producer : user);
  const Version *source = nullptr;
  SmallVector<ReshardStep> steps;
  double least = std::numeric_limits<double>::infinity();
  for (const Version &version : available) {
    if (version.stage > stage)
      continue;
    FailureOr<SmallVector<ReshardStep>> plan = planReshard(version.sharding, sharding, type, mesh);
    if (failed(plan))
      continue;
    double seconds = getReshardCost(*plan, types.lookup(version.value), mesh).seconds;
    if (seconds < least) {
      least = seconds;
      source = &version;
      steps = std::move(*plan);
    }
  }
  if (!source || steps.empty())
    return source ? source->value : global; // partitioning reports what cannot be resharded
  OpBuilder builder(user);
  Value value = source->value;
  SmallVector<RankedTensorType> after = getStepTypes(steps, types.lookup(value), mesh);
  for (auto [step, local] : llvm::zip_equal(steps, after))
    value = emit(builder, *source, step, value, local, stage);
  available.push_back({sharding, value, stage});
  return value;
}

void DeviceSketch::visit(Operation *op) {
  auto ruled = dyn_cast<ShardingRuleInterface>(op);
  if (!ruled)
    return;
  ShardingRule rule = ruled.getShardingRule();
  OpSplits splits;
  if (op->hasAttr(kSplits)) {
    FailureOr<OpSplits> given = readSplits(op, rule, mesh);
    if (failed(given))
      return;
    splits = std::move(*given);
  } else { // a part of another operation
    SmallVector<Sharding> declared;
    for (Value operand : op->getOperands())
      declared.push_back(Sharding(dist::getSharding(operand)));
    for (Value result : op->getResults())
      declared.push_back(Sharding(dist::getSharding(result)));
    splits.factors = mergeFactors(rule, declared, getTensorTypes(op), mesh);
  }
  SmallVector<Sharding> used = getSplitShardings(op, rule, splits, mesh);
  SmallVector<Value> operands;
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    operands.push_back(request(operand, used[i], op));
  for (auto [i, result] : llvm::enumerate(op->getResults())) {
    Sharding sharding = used[op->getNumOperands() + i];
    if (isa<loom::GetWeightOp>(op))
      sharding = Sharding(getGivenSharding(result));
    setLocal(result, dist::getLocalType(cast<RankedTensorType>(result.getType()), sharding, mesh));
    shardings[result] = sharding.getAttr(mesh);
    versions[result].push_back({sharding, result, getStage(op)});
    if (std::optional<Sharding> kept = findKept(result, sharding, mesh))
      request(result, *kept, op->getNextNode());
  }
  replacements.push_back({op, operands});
}

void DeviceSketch::reshard() {
  for (BlockArgument argument : func.getArguments()) {
    Sharding sharding(getGivenSharding(argument));
    setLocal(argument,
             dist::getLocalType(cast<RankedTensorType>(argument.getType()), sharding, mesh));
    shardings[argument] = getGivenSharding(argument);
    versions[argument].push_back({sharding, argument, 0});
  }
  Operation *terminator = func.front().getTerminator();
  SmallVector<Operation *> ops =
      llvm::map_to_vector(func.front().without_terminator(), [](Operation &op) { return &op; });
  for (Operation *op : ops)
    visit(op);
  SmallVector<Value> results;
  for (auto [i, operand] : llvm::enumerate(terminator->getOperands()))
    results.push_back(request(
        operand, Sharding(func.getResultAttrOfType<ShardingAttr>(i, kSharding)), terminator));
  replacements.push_back({terminator, results});
  for (auto &[op, operands] : replacements)
    op->setOperands(operands);
  replacements.clear();
}

//===----------------------------------------------------------------------===//
// Stages, library calls, kernels
//===----------------------------------------------------------------------===//

/// True for the result of a convolution, and for what is computed from one element by element.
bool DeviceSketch::isConvolved(Value value) const {
  while (Operation *op = value.getDefiningOp()) {
    if (isa<loom::ConvolutionOp>(op) || convolved.contains(value))
      return true;
    if (!isa<loom::KernelBodyInterface>(op) || op->getNumOperands() == 0)
      return false;
    value = op->getOperand(0);
  }
  return false;
}

/// Convolutions of 16-bit numbers read channels last: what does not come from one is
/// transposed for it.
void DeviceSketch::transposeChannels() {
  for (auto op : llvm::to_vector(func.front().getOps<loom::ConvolutionOp>())) {
    Value input = op.getInput();
    auto type = cast<RankedTensorType>(input.getType());
    if (type.getElementTypeBitWidth() != 16 || isConvolved(input))
      continue;
    SmallVector<int64_t> permutation{0}, shape{type.getDimSize(0)};
    for (int64_t dim = 2; dim < type.getRank(); ++dim) {
      permutation.push_back(dim);
      shape.push_back(type.getDimSize(dim));
    }
    permutation.push_back(1);
    shape.push_back(type.getDimSize(1));
    OpBuilder builder(op);
    auto last = RankedTensorType::get(shape, type.getElementType());
    Value moved = loom::TransposeOp::create(builder, op.getLoc(), last, input, permutation);
    setLocal(moved, types.lookup(input));
    stages[moved.getDefiningOp()] = getStage(op);
    SmallVector<Value> operands(op->getOperands());
    operands.front() = moved;
    Value call = addMark(builder, Mark::Call, operands, op.getType(), types.lookup(op.getOutput()),
                         getStage(op));
    convolved.insert(call);
    op.getOutput().replaceAllUsesWith(call);
  }
}

/// What another stage made is received, all at the beginning.
void DeviceSketch::addTransfers() {
  Operation *terminator = func.front().getTerminator();
  SmallVector<Operation *> ops =
      llvm::map_to_vector(func.front().without_terminator(), [](Operation &op) { return &op; });
  for (Operation *op : ops) {
    for (Value result : op->getResults()) {
      llvm::MapVector<int64_t, SmallVector<OpOperand *>> readers;
      for (OpOperand &use : result.getUses())
        if (use.getOwner() != terminator && getStage(use.getOwner()) != getStage(op))
          readers[getStage(use.getOwner())].push_back(&use);
      for (auto &[stage, uses] : readers) {
        OpBuilder builder = OpBuilder::atBlockBegin(&func.front());
        Value received =
            addMark(builder, Mark::Receive, result, result.getType(), types.lookup(result), stage);
        communications[received.getDefiningOp()] = {
            mesh.getSeconds(cluster::Collective::Recv, static_cast<double>(getBytes(result)),
                            stageAxes),
            builder.getI64IntegerAttr(getStage(op))};
        for (OpOperand *use : uses)
          use->set(received);
      }
    }
  }
}

void DeviceSketch::findRightOperands() {
  func.walk([&](loom::GetWeightOp weight) {
    auto isRight = [](OpOperand &use) {
      auto dot = dyn_cast<loom::DotGeneralOp>(use.getOwner());
      auto type = cast<RankedTensorType>(use.get().getType());
      return dot && use.getOperandNumber() == 1 && type.getRank() == 2 &&
             type.getElementType().isF32() && dot.getRhsBatch().empty() &&
             dot.getRhsContract() == ArrayRef<int64_t>{0};
    };
    if (!weight->use_empty() && llvm::all_of(weight->getUses(), isRight))
      rightOperands.insert(weight.getOutput());
  });
}

/// The sum with a bias per column that a product's library adds, or its own result.
static Value getBiased(loom::DotGeneralOp dot) {
  Value result = dot.getOutput();
  auto add = result.hasOneUse() ? dyn_cast<loom::AddOp>(*result.getUsers().begin()) : loom::AddOp();
  if (!add)
    return result;
  auto other =
      add->getOperand(add->getOperand(0) == result ? 1 : 0).getDefiningOp<loom::BroadcastOp>();
  return other && other.getInput().getDefiningOp<loom::GetWeightOp>() ? add.getOutput() : result;
}

/// Products of one left operand and several weights become one, of which each is columns.
void DeviceSketch::mergeProducts() {
  constexpr int64_t kMaxBetween = 2; // other products
  std::vector<std::pair<SmallVector<loom::DotGeneralOp>, int64_t>> groups;
  int64_t number = 0;
  for (auto dot : func.front().getOps<loom::DotGeneralOp>()) {
    int64_t own = number++;
    if (!isInLibrary(dot) || !dot.getRhs().getDefiningOp<loom::GetWeightOp>() ||
        dot.getRhs().getType().getRank() != 2 || dot.getRhsContract().size() != 1)
      continue;
    auto fits = [&](auto &group) {
      loom::DotGeneralOp first = group.first.front();
      return own - group.second <= kMaxBetween + 1 && first.getLhs() == dot.getLhs() &&
             first.getLhsContract() == dot.getLhsContract() &&
             first.getRhsContract() == dot.getRhsContract() && first.getRhs() != dot.getRhs() &&
             getStage(first) == getStage(dot);
    };
    if (auto it = llvm::find_if(groups, fits); it != groups.end()) {
      it->first.push_back(dot);
      it->second = own;
    } else {
      groups.push_back({{dot}, own});
    }
  }
  for (auto &[parts, last] : groups)
    if (parts.size() > 1)
      mergeParts(parts);
}

void DeviceSketch::mergeParts(ArrayRef<loom::DotGeneralOp> parts) {
  loom::DotGeneralOp first = parts.front();
  SmallVector<int64_t> shape(first.getType().getShape());
  SmallVector<int64_t> local(types.lookup(first.getOutput()).getShape());
  SmallVector<Value> operands{first.getLhs()};
  shape.back() = local.back() = 0;
  for (loom::DotGeneralOp part : parts) {
    shape.back() += part.getType().getShape().back();
    local.back() += types.lookup(part.getOutput()).getShape().back();
    operands.push_back(part.getRhs());
    if (Value sum = getBiased(part); sum != part.getOutput())
      for (Value operand : sum.getDefiningOp()->getOperands())
        if (auto bias = operand.getDefiningOp<loom::BroadcastOp>())
          operands.push_back(bias.getInput());
  }
  Type element = first.getType().getElementType();
  OpBuilder builder(first);
  Value merged = addMark(builder, Mark::Call, operands, RankedTensorType::get(shape, element),
                         RankedTensorType::get(local, element), getStage(first));
  SmallVector<int64_t> from(shape.size(), 0), to(shape), step(shape.size(), 1);
  to.back() = 0;
  for (loom::DotGeneralOp part : parts) {
    from.back() = to.back();
    to.back() += part.getType().getShape().back();
    Value result = getBiased(part);
    auto slice =
        loom::SliceOp::create(builder, part.getLoc(), part.getType(), merged, from, to, step);
    stages[slice] = getStage(first);
    setLocal(slice.getOutput(), types.lookup(part.getOutput()));
    result.replaceAllUsesWith(slice.getOutput());
  }
}

/// A product may write its result transposed.
void DeviceSketch::formCall(loom::DotGeneralOp dot, ValueRange operands) {
  Value result = dot.getOutput();
  for (Value value = result; value.hasOneUse();) {
    Operation *user = *value.getUsers().begin();
    auto scale = matchScale(user);
    bool scales = scale && scale->first == value;
    if ((!scales && !isa<loom::TransposeOp, loom::ReshapeOp>(user)) ||
        getStage(user) != getStage(dot))
      break;
    value = user->getResult(0);
    if (!isa<loom::ReshapeOp>(user))
      result = value;
  }
  OpBuilder builder(result.getDefiningOp());
  Value call =
      addMark(builder, Mark::Call, operands, result.getType(), types.lookup(result), getStage(dot));
  result.replaceAllUsesWith(call);
}

/// What a library reads through transposes and the like.
static Value getBase(Value value) { return traceViews(value).front().base; }

static Value skipConversions(Value value) {
  while (auto convert = value.getDefiningOp<loom::ConvertOp>())
    value = convert.getInput();
  return value;
}

/// The product whose elements, masked and scaled, nothing reads but `value` is computed from; adds
/// what else it is computed from to `others`.
static loom::DotGeneralOp findScores(Value value, SmallVectorImpl<Value> &others) {
  Operation *op = value.getDefiningOp();
  if (!op || !value.hasOneUse())
    return {};
  if (auto dot = dyn_cast<loom::DotGeneralOp>(op))
    return dot;
  if (!isa<loom::KernelBodyInterface, loom::ReshapeOp>(op))
    return {};
  for (Value operand : op->getOperands())
    if (loom::DotGeneralOp dot = findScores(operand, others)) {
      for (Value other : op->getOperands())
        if (other != operand)
          others.push_back(other);
      return dot;
    }
  return {};
}

/// A library computes a softmax between two products of 16-bit operands without its scores.
void DeviceSketch::formAttention(loom::SoftmaxOp softmax) {
  Value weights = softmax.getOutput();
  while (weights.hasOneUse() && isa<loom::ConvertOp, loom::ReshapeOp>(*weights.getUsers().begin()))
    weights = weights.getUsers().begin()->getResult(0);
  if (!weights.hasOneUse())
    return;
  auto product = dyn_cast<loom::DotGeneralOp>(*weights.getUsers().begin());
  SmallVector<Value> operands;
  loom::DotGeneralOp scores = findScores(softmax.getInput(), operands);
  auto isHalf = [](Value value) {
    Type element = getElementTypeOrSelf(skipConversions(value));
    return element.isF16() || element.isBF16();
  };
  if (!product || product.getLhs() != weights || !scores || !isHalf(product.getRhs()) ||
      !isHalf(scores.getLhs()) || !isHalf(scores.getRhs()))
    return;
  for (Value operand : {Value(scores.getLhs()), Value(scores.getRhs()), Value(product.getRhs())})
    operands.push_back(getBase(skipConversions(operand)));
  formCall(product, operands);
}

void DeviceSketch::formCalls() {
  if (options.fuse.attentionLibrary)
    for (auto softmax : llvm::to_vector(func.front().getOps<loom::SoftmaxOp>()))
      formAttention(softmax);
  eraseDead();
  SmallVector<loom::DotGeneralOp> dots;
  for (auto dot : func.front().getOps<loom::DotGeneralOp>())
    if (isInLibrary(dot))
      dots.push_back(dot);
  for (loom::DotGeneralOp dot : dots)
    formCall(dot, {getBase(dot.getLhs()), getBase(dot.getRhs())});
}

void DeviceSketch::eraseDead() {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(func.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

void DeviceSketch::findCommunicated() {
  for (Operation &op : func.front())
    if (std::optional<Mark> mark = getMark(&op); mark == Mark::Collective || mark == Mark::Receive)
      for (Value operand : op.getOperands()) {
        while (auto reshape = operand.getDefiningOp<loom::ReshapeOp>())
          operand = reshape.getInput();
        communicated.insert(operand);
      }
}
