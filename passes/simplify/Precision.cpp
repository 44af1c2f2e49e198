//===- Precision.cpp - values that need 32 bits ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/simplify/Precision.h"

#include "dialects/loom/Control.h"
#include "dialects/loom/FullPrecision.h"

#include "llvm/ADT/SetOperations.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom;

bool gridloom::isF32Tensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getElementType().isF32();
}

static bool isConstant(Value value) { return value.getDefiningOp<loom::ConstantOp>() != nullptr; }

/// The f32 operands except literals and weights, which are available in either type.
static SmallVector<Value> getFloatOperands(Operation *op) {
  return llvm::filter_to_vector(op->getOperands(), [](Value value) {
    return isF32Tensor(value) && !isConstant(value) && !value.getDefiningOp<loom::GetWeightOp>();
  });
}

static bool isSumOrProduct(dist::ReductionKind kind) {
  return kind == dist::ReductionKind::Sum || kind == dist::ReductionKind::Prod;
}

PrecisionAnalysis::PrecisionAnalysis(ModuleOp module, FloatType narrow) : narrow(narrow) {
  if (narrow)
    findNarrowStates(module);
  // A state that some function reads or writes as f32 is f32 in all of them.
  for (bool changed = true; changed;) {
    analyse(module);
    changed = false;
    for (auto function : module.getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState))
          changed |= keepsWide(function, i) && narrowStates.erase(state);
  }
}

void PrecisionAnalysis::analyse(ModuleOp module) {
  facts.clear();
  full.clear();
  reasons.clear();
  for (auto function : module.getOps<func::FuncOp>())
    if (!loom::isBody(function)) {
      for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
        auto state = function.getArgAttrOfType<StringAttr>(i, loom::kState);
        if (isF32Tensor(argument) && !(state && isNarrowState(state)))
          facts[argument].wide = true; // as the caller binds it
      }
      visitForward(function);
    }
  for (auto function : module.getOps<func::FuncOp>())
    if (!loom::isBody(function))
      visitBackward(function);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// The operands whose elements make up the result unchanged; empty if the operation computes.
static SmallVector<Value> getMoved(Operation *op) {
  if (isa<loom::ReshapeOp, loom::TransposeOp, loom::SliceOp, loom::ConcatenateOp, loom::ReverseOp,
          loom::BroadcastOp>(op))
    return op->getOperands();
  if (isa<loom::GatherOp, loom::GatherElementsOp>(op))
    return {op->getOperand(0)};
  if (auto select = dyn_cast<loom::SelectOp>(op))
    return {select.getOnTrue(), select.getOnFalse()};
  if (auto scatter = dyn_cast<loom::ScatterOp>(op); scatter && !scatter.getReduction())
    return {scatter.getInput(), scatter.getUpdates()};
  return {};
}

/// The sources of a state's next value, and the operations that move their elements there.
struct StateParts {
  SmallVector<Operation *> moves;
  SmallVector<Value> leaves; ///< not moved by an operation: computed, or arguments
};

static StateParts findParts(Value next) {
  StateParts parts;
  SmallVector<Value> open{next};
  llvm::DenseSet<Value> visited;
  while (!open.empty()) {
    Value value = open.pop_back_val();
    if (!visited.insert(value).second)
      continue;
    Operation *op = value.getDefiningOp();
    SmallVector<Value> moved = op ? getMoved(op) : SmallVector<Value>();
    if (moved.empty()) {
      parts.leaves.push_back(value);
      continue;
    }
    parts.moves.push_back(op);
    open.append(moved);
  }
  return parts;
}

static Value getStateArgument(func::FuncOp function, StringAttr state) {
  for (auto [i, argument] : llvm::enumerate(function.getArguments()))
    if (function.getArgAttrOfType<StringAttr>(i, loom::kState) == state)
      return argument;
  return {};
}

namespace {

/// How states' next values depend on states' old values, over all functions. A value that is only
/// moved from call to call is rounded once; a value that is computed is rounded in every call.
class StateFlow {
public:
  void add(func::FuncOp function);
  /// The states on a cycle of dependences on which something is computed.
  llvm::DenseSet<StringAttr> findComputed();

private:
  using Sources = llvm::DenseMap<StringAttr, llvm::DenseSet<StringAttr>>;

  /// The float states whose old values `leaves` depend on.
  static llvm::DenseSet<StringAttr> getSources(func::FuncOp function, SmallVector<Value> leaves);
  void close();

  Sources computedFrom, from; ///< of each state; `from` includes states moved into it
};

} // namespace

llvm::DenseSet<StringAttr> StateFlow::getSources(func::FuncOp function, SmallVector<Value> leaves) {
  llvm::DenseSet<StringAttr> sources;
  llvm::DenseSet<Value> seen;
  while (!leaves.empty()) {
    Value value = leaves.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (Operation *op = value.getDefiningOp())
      leaves.append(op->operand_begin(), op->operand_end());
    else if (isa<FloatType>(getElementTypeOrSelf(value.getType())))
      if (auto state = function.getArgAttrOfType<StringAttr>(
              cast<BlockArgument>(value).getArgNumber(), loom::kState))
        sources.insert(state);
  }
  return sources;
}

void StateFlow::add(func::FuncOp function) {
  for (auto [i, next] : llvm::enumerate(function.front().getTerminator()->getOperands())) {
    auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState);
    if (!state)
      continue;
    SmallVector<Value> leaves = findParts(next).leaves;
    set_union(from[state], getSources(function, leaves));
    llvm::erase_if(leaves, [](Value leaf) { return isa<BlockArgument>(leaf); });
    set_union(computedFrom[state], getSources(function, std::move(leaves)));
  }
}

/// Takes the transitive closure of each state's sources.
void StateFlow::close() {
  SmallVector<StringAttr> states = llvm::to_vector(llvm::make_first_range(from));
  for (StringAttr through : states)
    for (StringAttr state : states)
      if (state != through && from[state].contains(through))
        set_union(from[state], from[through]);
}

llvm::DenseSet<StringAttr> StateFlow::findComputed() {
  close();
  auto shareRound = [&](StringAttr a, StringAttr b) {
    return a == b || (from[a].contains(b) && from[b].contains(a));
  };
  SmallVector<StringAttr> states = llvm::to_vector(llvm::make_first_range(from));
  llvm::DenseSet<StringAttr> computed;
  for (StringAttr state : states)
    if (llvm::any_of(computedFrom[state],
                     [&](StringAttr source) { return shareRound(source, state); }))
      computed.insert_range(
          llvm::make_filter_range(states, [&](StringAttr o) { return shareRound(o, state); }));
  return computed;
}

void PrecisionAnalysis::findNarrowStates(ModuleOp module) {
  StateFlow flow;
  for (auto function : module.getOps<func::FuncOp>())
    flow.add(function);
  llvm::DenseSet<StringAttr> computed = flow.findComputed();
  for (auto function : module.getOps<func::FuncOp>())
    for (auto [i, next] : llvm::enumerate(function.front().getTerminator()->getOperands()))
      if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState);
          state && isF32Tensor(next) && !computed.contains(state))
        narrowStates.insert(state);
}

/// Whether a function reads a state as f32, or moves elements into it as f32.
bool PrecisionAnalysis::keepsWide(func::FuncOp function, unsigned result) const {
  auto state = function.getResultAttrOfType<StringAttr>(result, loom::kState);
  Value past = getStateArgument(function, state);
  Value next = function.front().getTerminator()->getOperand(result);
  return isWide(next) || (past && isWide(past)) ||
         llvm::any_of(findParts(next).moves, [&](Operation *op) { return computesWide(op); });
}

bool PrecisionAnalysis::isWide(Value value) const {
  Facts own = lookup(value);
  return own.wide || own.exact;
}

bool PrecisionAnalysis::computesWide(Operation *op) const {
  // A norm's scale and bias stay f32 beside 16-bit values.
  size_t numOperands = op->hasTrait<loom::NormalizesRows>() ? 1 : op->getNumOperands();
  return llvm::any_of(op->getResults(), [&](Value value) { return isWide(value); }) ||
         llvm::any_of(op->getOperands().take_front(numOperands), [&](Value value) {
           return isF32Tensor(value) && (isConstant(value) ? isBeyondRange(value) : isWide(value));
         });
}

void PrecisionAnalysis::note(Operation *op, StringRef reason) { reasons.emplace_back(op, reason); }

//===----------------------------------------------------------------------===//
// From operands to results
//===----------------------------------------------------------------------===//

/// Whether a number becomes infinite or loses digits in the narrow type. bf16 has f32's range,
/// except for the largest numbers, which masks often use.
bool PrecisionAnalysis::isBeyondRange(Value constant) const {
  auto op = constant.getDefiningOp<loom::ConstantOp>();
  auto values = op ? dyn_cast<DenseFPElementsAttr>(op.getValue()) : DenseFPElementsAttr();
  if (!values || !narrow || !isF32Tensor(constant))
    return false;
  double largest = narrow.isF16() ? 65504 : 0x1.fep127, smallest = narrow.isF16() ? 0x1p-14 : 0;
  auto isBeyond = [&](const APFloat &number) {
    double size = std::abs(number.convertToDouble());
    return std::isfinite(size) && size != 0 && (size > largest || size < smallest);
  };
  if (values.isSplat())
    return isBeyond(values.getSplatValue<APFloat>());
  return llvm::any_of(values.getValues<APFloat>(), isBeyond);
}

/// Whether a reduction has so many elements that it is a statistic, not another activation.
bool PrecisionAnalysis::isSum(Operation *op) const {
  if (auto reduce = dyn_cast<loom::ReduceOp>(op)) {
    constexpr int64_t many = 16;
    return isSumOrProduct(reduce.getKind()) &&
           reduce.getInput().getType().getNumElements() >=
               many * reduce.getOutput().getType().getNumElements();
  }
  if (auto cumulative = dyn_cast<loom::CumulativeOp>(op))
    return isSumOrProduct(cumulative.getKind());
  auto scatter = dyn_cast<loom::ScatterOp>(op);
  return scatter && scatter.getReduction() && isSumOrProduct(*scatter.getReduction());
}

/// Whether an operation of a loss computes the value.
static bool isMarked(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->hasAttr(loom::kFullPrecision);
}

/// Whether a region of f32 begins at an operation, whatever its operands are.
bool PrecisionAnalysis::startsRegion(Operation *op, Facts &own) {
  bool isHalf = narrow && narrow.isF16();
  if (op->hasAttr(loom::kFullPrecision)) {
    own.wide = own.sticky = true;
    if (llvm::none_of(op->getOperands(), [&](Value value) { return isMarked(value); }))
      note(op, "a loss");
    return true;
  }
  auto start = [&](StringRef reason, bool sticky, bool counted) {
    own.wide = true;
    own.sticky = sticky;
    own.counted = counted;
    own.large = isHalf;
    note(op, reason);
    return true;
  };
  if (auto convert = dyn_cast<loom::ConvertOp>(op)) {
    // 8-bit integers are exact in either narrow type.
    auto integer = dyn_cast<IntegerType>(convert.getInput().getType().getElementType());
    return integer && integer.getWidth() > 8 &&
           start("integers", /*sticky=*/true, /*counted=*/true);
  }
  if (isa<loom::IotaOp, loom::BitcastConvertOp>(op))
    return start("integers", /*sticky=*/true, /*counted=*/true);
  if (isSum(op))
    return start("a sum of many elements", /*sticky=*/true, /*counted=*/false);
  if (isHalf && op->hasTrait<loom::ExceedsHalf>())
    return start("numbers beyond 16 bits", /*sticky=*/false, /*counted=*/false);
  return false;
}

PrecisionAnalysis::Facts PrecisionAnalysis::derive(Operation *op) {
  Facts own;
  if (startsRegion(op, own))
    return own;
  SmallVector<Value> operands = getFloatOperands(op);
  auto isSticky = [&](Value value) { return lookup(value).sticky; };
  auto isCounted = [&](Value value) { return lookup(value).counted; };
  auto isLarge = [&](Value value) { return lookup(value).large; };
  if (isa<loom::DotGeneralOp, loom::ConvolutionOp>(op)) {
    if (llvm::any_of(operands, isCounted)) {
      full.insert(op);
      own.wide = own.sticky = own.counted = true;
      note(op, "it multiplies integers");
    }
    return own;
  }
  own.sticky =
      !operands.empty() && !op->hasTrait<loom::Bounded>() && llvm::all_of(operands, isSticky);
  own.counted = own.sticky && llvm::all_of(operands, isCounted);
  bool usesLarge =
      llvm::any_of(op->getOperands(), [&](Value value) { return isBeyondRange(value); });
  own.large = (usesLarge || llvm::any_of(operands, isLarge)) && !op->hasTrait<loom::Bounded>();
  // The ratio of large numbers is not large, as in exp(x) / sum(exp(x)).
  if (isa<loom::DivideOp>(op) && isLarge(op->getOperand(1)))
    own.large = false;
  own.wide = own.sticky || own.large;
  if (usesLarge && own.large && llvm::none_of(operands, isLarge))
    note(op, "numbers beyond 16 bits");
  return own;
}

void PrecisionAnalysis::visitForward(Operation *op) {
  if (loom::isControl(op))
    return visitControl(op);
  if (isa<loom::ConstantOp, loom::GetWeightOp>(op) || op->getNumResults() != 1 ||
      !isF32Tensor(op->getResult(0)))
    return;
  facts[op->getResult(0)] = derive(op);
}

void PrecisionAnalysis::visitForward(func::FuncOp function) {
  for (Operation &op : function.front().without_terminator())
    visitForward(&op);
}

/// Carried values and results of branches stay f32, since roundings would accumulate.
void PrecisionAnalysis::visitControl(Operation *op) {
  for (loom::BodyLink &link : loom::getBodies(op)) {
    func::FuncOp body = link.body;
    for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), link.operands)) {
      if (!isF32Tensor(argument))
        continue;
      Facts outside = lookup(op->getOperand(operand));
      outside.exact = false;
      outside.wide = outside.sticky || outside.large;
      facts[argument] = outside;
    }
    // Arguments that a loop carries.
    if (auto loop = dyn_cast<loom::WhileOp>(op))
      for (BlockArgument argument : body.getArguments().take_front(loop.getInits().size()))
        if (isF32Tensor(argument))
          facts[argument].wide = true;
    visitForward(body);
  }
  for (Value result : op->getResults())
    if (isF32Tensor(result))
      facts[result].wide = true;
}

//===----------------------------------------------------------------------===//
// From readers to what they read
// From readers to operands

bool PrecisionAnalysis::takesWide(OpOperand &use) const {
  for (loom::BodyLink &link : loom::getBodies(use.getOwner()))
    for (auto [argument, operand] : llvm::zip_equal(link.body.getArguments(), link.operands))
      if (operand == use.getOperandNumber() && isWide(argument))
        return true;
  return false;
}

/// Whether the value is compared with infinity, like the loss and the norm of gradients.
static bool isCheckedFinite(OpOperand &use) {
  auto compare = dyn_cast<loom::CompareOp>(use.getOwner());
  if (!compare || use.getOperandNumber() != 0)
    return false;
  auto limit = compare.getRhs().getDefiningOp<loom::ConstantOp>();
  auto value = limit ? dyn_cast<SplatElementsAttr>(limit.getValue()) : SplatElementsAttr();
  return value && isa<FloatType>(value.getElementType()) &&
         value.getSplatValue<APFloat>().isInfinity();
}

bool PrecisionAnalysis::wantsExact(OpOperand &use) const {
  Operation *user = use.getOwner();
  if (isa<func::ReturnOp>(user)) {
    auto function = cast<func::FuncOp>(user->getParentOp());
    auto state = function.getResultAttrOfType<StringAttr>(use.getOperandNumber(), loom::kState);
    return !state || !isNarrowState(state);
  }
  if (loom::isControl(user))
    return takesWide(use);
  if (user->hasTrait<loom::AmplifiesError>() || user->hasAttr(loom::kFullPrecision) ||
      isSum(user) || isCheckedFinite(use))
    return true;
  if (auto convert = dyn_cast<loom::ConvertOp>(user)) {
    Type element = convert.getOutput().getType().getElementType();
    return element.isF64() || loom::isFloat8(element) ||
           (isa<IntegerType>(element) && !element.isInteger(1));
  }
  if (isa<loom::DotGeneralOp, loom::ConvolutionOp>(user))
    return isFull(user);
  // A norm's scale and bias are small, and it computes in f32.
  if (user->hasTrait<loom::NormalizesRows>() && use.getOperandNumber() > 0)
    return true;
  return user->getNumResults() == 1 && lookup(user->getResult(0)).exact;
}

void PrecisionAnalysis::visitBackward(func::FuncOp function) {
  auto visit = [&](Value value) {
    if (!isF32Tensor(value) || value.use_empty())
      return;
    if (!llvm::all_of(value.getUses(), [&](OpOperand &use) { return wantsExact(use); }))
      return;
    Facts &own = facts[value];
    own.exact = true;
    Operation *op = value.getDefiningOp();
    if (op && !own.wide && llvm::any_of(value.getUsers(), [](Operation *user) {
          return user->hasTrait<loom::AmplifiesError>();
        }))
      note(op, "its reader magnifies errors");
  };
  // A value computed from a state would be rounded again in each call.
  for (auto [i, value] : llvm::enumerate(function.front().getTerminator()->getOperands()))
    if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState);
        state && isF32Tensor(value) && !isNarrowState(state))
      facts[value].wide = facts[value].exact = true;
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    for (loom::BodyLink &link : loom::getBodies(&op))
      visitBackward(link.body);
    // A convolution's result has its operands' type.
    if (!isa<loom::ConvolutionOp, loom::ConstantOp>(op))
      llvm::for_each(op.getResults(), visit);
  }
  llvm::for_each(function.getArguments(), visit);
}
