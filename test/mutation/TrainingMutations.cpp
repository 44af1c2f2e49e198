//===- TrainingMutations.cpp - faults of training steps -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "Mutations.h"

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Training.h"

#include <cmath>
#include <optional>

using namespace mlir;
using namespace gridloom;
using gridloom::testing::Mutation;

namespace {

class Finder {
public:
  explicit Finder(ModuleOp module) : module(module), mesh(dist::getMesh(module)) {}

  std::vector<Mutation> find() {
    for (auto function : module.getOps<func::FuncOp>()) {
      for (Operation &op : function.front()) {
        if (auto start = dyn_cast<dist::StartOp>(op))
          visitGroup(start);
        else if (auto select = dyn_cast<loom::SelectOp>(op))
          visitMask(select);
        else if (auto divide = dyn_cast<loom::DivideOp>(op))
          visitDivisor(divide);
        else if (auto constant = dyn_cast<loom::ConstantOp>(op))
          visitReciprocal(constant);
        else if (auto add = dyn_cast<loom::AddOp>(op); add && loom::isTrainStep(function))
          visitAccumulation(add);
      }
      if (loom::isTrainStep(function))
        visitStates(function);
    }
    return std::move(mutations);
  }

private:
  void add(const char *kind, Operation *op, const Twine &what, std::function<void()> plant) {
    auto function = op->getParentOfType<func::FuncOp>();
    StringRef entry = (function ? function : cast<func::FuncOp>(op))
                          ->getAttrOfType<StringAttr>(loom::kEntry)
                          .getValue();
    mutations.push_back({kind,
                         (entry + ": " + op->getName().getStringRef() + " '" +
                          loom::getNodeName(op->getLoc()) + "': " + what)
                             .str(),
                         "", std::move(plant)});
  }
  int64_t getGroupSize(ArrayAttr axes) {
    int64_t size = 1;
    for (StringRef axis : axes.getAsValueRange<StringAttr>())
      size *= mesh.getAxisSize(axis);
    return size;
  }

  void visitGroup(dist::StartOp start);
  template <typename Op> void visitReduction(Op op, dist::DoneOp done);
  void visitStale(dist::DoneOp done, unsigned index);
  void visitMask(loom::SelectOp op);
  void visitDivisor(loom::DivideOp op);
  void visitReciprocal(loom::ConstantOp op);
  void visitAccumulation(loom::AddOp op);
  void visitStates(func::FuncOp function);
  std::optional<RankedTensorType> findGlobalType(func::FuncOp function, RankedTensorType local,
                                                 dist::ShardingAttr sharding);

  ModuleOp module;
  dist::MeshOp mesh;
  std::vector<Mutation> mutations;
};

/// The sharding of an operation's result; null if it has none.
dist::ShardingAttr getResultSharding(Operation *op, unsigned index) {
  auto shardings = op->getAttrOfType<ArrayAttr>(dist::kShardings);
  return shardings && index < shardings.size() ? dyn_cast<dist::ShardingAttr>(shardings[index])
                                               : dist::ShardingAttr();
}

} // namespace

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

void Finder::visitGroup(dist::StartOp start) {
  auto done = dyn_cast<dist::DoneOp>(*start.getFuture().user_begin());
  if (!done)
    return;
  Operation &first = start.getBody().front().front();
  if (auto reduce = dyn_cast<dist::AllReduceOp>(first))
    visitReduction(reduce, done);
  else if (auto scatter = dyn_cast<dist::ReduceScatterOp>(first))
    visitReduction(scatter, done);
}

/// Drops and doubles the values of a message one by one.
template <typename Op> void Finder::visitReduction(Op op, dist::DoneOp done) {
  int64_t size = getGroupSize(op.getAxes());
  if (size == 1)
    return;
  for (unsigned i = 0; i < op->getNumOperands(); ++i) {
    std::string which = op->getNumOperands() > 1 ? "value " + std::to_string(i) : "the value";
    Value input = op->getOperand(i), output = done->getResult(i);
    add("dropped reduction", op, Twine(which) + " stays each device's own",
        [op, input, output]() mutable {
          OpBuilder builder(op->getParentOp());
          Value own = input;
          if constexpr (std::is_same_v<Op, dist::ReduceScatterOp>)
            own = dist::ShardSliceOp::create(builder, op->getLoc(), output.getType(), input,
                                             op.getAxesAttr(), op.getDimAttr());
          output.replaceAllUsesWith(own);
        });
    if (op.getReduction() != dist::ReductionKind::Sum)
      continue;
    // Reducing a sum again multiplies it by the number of devices.
    add("double reduction", op, Twine(which) + " is added up twice",
        [output, done, size]() mutable {
          OpBuilder builder(done->getContext());
          builder.setInsertionPointAfter(done);
          auto type = cast<RankedTensorType>(output.getType());
          TypedAttr number =
              isa<FloatType>(type.getElementType())
                  ? TypedAttr(builder.getFloatAttr(type.getElementType(), double(size)))
                  : TypedAttr(builder.getIntegerAttr(type.getElementType(), size));
          Value factor = loom::ConstantOp::create(builder, done->getLoc(),
                                                  DenseElementsAttr::get(type, Attribute(number)));
          auto again = loom::MultiplyOp::create(builder, done->getLoc(), type, output, factor);
          output.replaceAllUsesExcept(again, again);
        });
    visitStale(done, i);
  }
  if (op.getReduction() == dist::ReductionKind::Sum)
    add("maximum in place of a sum", op, "the group's reduction",
        [op]() mutable { op.setReduction(dist::ReductionKind::Max); });
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// The global type of a local value: its own if nothing is split, else that of a state with the
/// same type and sharding.
std::optional<RankedTensorType>
Finder::findGlobalType(func::FuncOp function, RankedTensorType local, dist::ShardingAttr sharding) {
  dist::Sharding own(sharding);
  if (llvm::all_of(own.dims, [](const auto &dim) { return dim.axes.empty(); }))
    return local;
  for (BlockArgument argument : function.getArguments()) {
    unsigned i = argument.getArgNumber();
    auto other = function.getArgAttrOfType<dist::ShardingAttr>(i, dist::kSharding);
    auto global = function.getArgAttrOfType<TypeAttr>(i, loom::kGlobalType);
    if (argument.getType() == local && other && global && dist::Sharding(other) == own)
      return cast<RankedTensorType>(global.getValue());
  }
  return std::nullopt;
}

/// Stores the gradient in a new state, and uses the one of the previous step from there.
void Finder::visitStale(dist::DoneOp done, unsigned index) {
  auto function = done->getParentOfType<func::FuncOp>();
  auto local = cast<RankedTensorType>(done->getResult(index).getType());
  dist::ShardingAttr sharding = getResultSharding(done, index);
  if (!loom::isTrainStep(function) || local.getRank() == 0 || !sharding)
    return;
  std::optional<RankedTensorType> global = findGlobalType(function, local, sharding);
  if (!global)
    return;
  add("stale gradient", done, "that of the step before", [=, global = *global]() mutable {
    Builder builder(done->getContext());
    auto named = [&](StringRef name) { return builder.getStringAttr(name); };
    SmallVector<Attribute> dims(local.getRank(), named(""));
    auto attributes = builder.getDictionaryAttr(
        {builder.getNamedAttr(loom::kName, named("stale")),
         builder.getNamedAttr(loom::kState, named("stale")),
         builder.getNamedAttr(loom::kRole, named(loom::kMoment)),
         builder.getNamedAttr(loom::kDimNames, builder.getArrayAttr(dims)),
         builder.getNamedAttr(loom::kGlobalType, TypeAttr::get(global)),
         builder.getNamedAttr(dist::kSharding, sharding)});
    Operation *end = function.front().getTerminator();
    Value gradient = done->getResult(index);
    (void)function.insertArgument(function.getNumArguments(), local, attributes, done->getLoc());
    gradient.replaceAllUsesWith(function.getArguments().back());
    (void)function.insertResult(function.getNumResults(), local, attributes);
    end->insertOperands(end->getNumOperands(), gradient);
  });
}

/// Sums of two partial sums accumulate micro-batches.
void Finder::visitAccumulation(loom::AddOp op) {
  auto isPartial = [](Operation *each) {
    dist::ShardingAttr sharding = each ? getResultSharding(each, 0) : dist::ShardingAttr();
    return sharding && !sharding.getUnreduced().empty();
  };
  if (op.getLhs() == op.getRhs() || !isPartial(op) || !isPartial(op.getLhs().getDefiningOp()) ||
      !isPartial(op.getRhs().getDefiningOp()))
    return;
  for (unsigned side : {0u, 1u})
    add("stale gradient", op, side ? "the first part's twice" : "the second part's twice",
        [op, side]() mutable { op->setOperand(side, op->getOperand(1 - side)); });
}

//===----------------------------------------------------------------------===//
// Masks and divisors
//===----------------------------------------------------------------------===//

void Finder::visitMask(loom::SelectOp op) {
  if (gridloom::testing::dependsOnPlace(op.getPredicate()))
    add("tail not masked", op, "padding counts", [op]() mutable {
      op->replaceAllUsesWith(ValueRange(op.getOnTrue()));
      op->erase();
    });
}

void Finder::visitDivisor(loom::DivideOp op) {
  if (!loom::isFloatTensor(op.getOutput()))
    return;
  add("wrong divisor", op, "twice the right one", [op]() mutable {
    OpBuilder builder(op);
    Value divisor = op.getRhs();
    Value twice = loom::AddOp::create(builder, op.getLoc(), divisor.getType(), divisor, divisor);
    op.getRhsMutable().assign(twice);
  });
}

/// Replaces a factor 1 / n by 1 / (n + 1).
void Finder::visitReciprocal(loom::ConstantOp op) {
  auto splat = dyn_cast<SplatElementsAttr>(op.getValue());
  auto type = cast<RankedTensorType>(op.getType());
  if (!splat || !isa<FloatType>(type.getElementType()))
    return;
  double value = splat.getSplatValue<APFloat>().convertToDouble(), count = 1 / value;
  bool isReciprocal = std::isfinite(count) && count > 1.5 && count < 1e4 &&
                      std::abs(count - std::round(count)) < 1e-4;
  bool multiplies =
      llvm::any_of(op->getUsers(), [](Operation *user) { return isa<loom::MultiplyOp>(user); });
  if (isReciprocal && multiplies)
    add("wrong divisor", op, "one more than " + Twine(std::llround(count)),
        [op, type, count]() mutable {
          Builder builder(op.getContext());
          op.setValueAttr(DenseElementsAttr::get(
              type,
              Attribute(builder.getFloatAttr(type.getElementType(), 1 / (std::round(count) + 1)))));
        });
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

void Finder::visitStates(func::FuncOp function) {
  Operation *end = function.front().getTerminator();
  for (unsigned result = 0; result < function.getNumResults(); ++result) {
    auto name = function.getResultAttrOfType<StringAttr>(result, loom::kState);
    if (!name)
      continue;
    for (BlockArgument old : function.getArguments()) {
      unsigned i = old.getArgNumber();
      if (function.getArgAttrOfType<StringAttr>(i, loom::kState) != name)
        continue;
      auto role = function.getArgAttrOfType<StringAttr>(i, loom::kRole);
      StringRef state = name.getValue();
      if (role && role.getValue() == loom::kMoment)
        add("momentum not kept", function, "'" + state + "' stays what it was",
            [end, result, old]() mutable { end->setOperand(result, old); });
      auto sharding = function.getResultAttrOfType<dist::ShardingAttr>(result, dist::kSharding);
      for (auto axis : mesh.getAxes().getAsRange<dist::AxisAttr>()) {
        auto axisName = StringAttr::get(function.getContext(), axis.getName());
        if (!sharding || axis.getSize() == 1 || dist::Sharding(sharding).usesAxis(axisName))
          continue;
        add("replicas that differ", function,
            "'" + state + "' changes on the first device of '" + axis.getName() + "' only",
            [end, result, old, axisName]() mutable {
              OpBuilder builder(end);
              Location loc = end->getLoc();
              auto type = cast<RankedTensorType>(old.getType());
              auto index = RankedTensorType::get({}, builder.getI64Type());
              Value at =
                  dist::AxisIndexOp::create(builder, loc, index, builder.getArrayAttr({axisName}));
              Value zero = loom::ConstantOp::create(
                  builder, loc,
                  DenseElementsAttr::get(index, Attribute(builder.getI64IntegerAttr(0))));
              Value first = loom::CompareOp::create(builder, loc, index.clone(builder.getI1Type()),
                                                    at, zero, loom::Direction::EQ);
              Value spread = loom::BroadcastOp::create(
                  builder, loc, type.clone(builder.getI1Type()), first, ArrayRef<int64_t>());
              Value next =
                  loom::SelectOp::create(builder, loc, type, spread, end->getOperand(result), old);
              end->setOperand(result, next);
            });
      }
    }
  }
}

std::vector<Mutation> gridloom::testing::findTrainingMutations(ModuleOp module) {
  return Finder(module).find();
}
