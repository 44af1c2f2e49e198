//===- Gradients.cpp - reverse mode over a function -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/differentiate/Gradients.h"

#include "dialects/loom/FullPrecision.h"

using namespace mlir;
using namespace gridloom;

bool gridloom::carriesDerivative(Operation *op) {
  auto derivative = dyn_cast<DerivativeInterface>(op);
  return !derivative || !derivative.isFlat();
}

void Gradients::findVaried(llvm::function_ref<bool(Operation *)> readsInside) {
  for (const auto &[name, values] : sources)
    varied.insert(values.begin(), values.end());
  for (Operation &op : function.front().without_terminator()) {
    bool reads = llvm::any_of(op.getOperands(), [&](Value each) { return varied.contains(each); });
    if ((!reads && !readsInside(&op)) || !carriesDerivative(&op))
      continue;
    for (Value result : op.getResults())
      if (loom::isFloatTensor(result))
        varied.insert(result);
  }
}

bool Gradients::isReached(ArrayRef<Value> values) const {
  return llvm::any_of(values, [&](Value each) { return used.contains(each); });
}

/// Finds the operations that lead from sources to the seeds.
void Gradients::findPath(ArrayRef<Value> seeds) {
  used.insert(seeds.begin(), seeds.end());
  for (Operation &op : llvm::reverse(function.front().without_terminator())) {
    bool isOnPath = llvm::any_of(
        op.getResults(), [&](Value each) { return used.contains(each) && varied.contains(each); });
    if (!isOnPath || isa<loom::GetWeightOp>(op))
      continue;
    auto derivative = dyn_cast<DerivativeInterface>(&op);
    StringRef obstacle = derivative ? derivative.findObstacle() : op.getName().getStringRef();
    if (!obstacle.empty())
      obstacles.push_back({&op, obstacle});
    path.push_back(&op);
    used.insert(op.operand_begin(), op.operand_end());
  }
}

SmallVector<Gradients::Obstacle>
Gradients::findObstacles(ArrayRef<Value> seeds, llvm::function_ref<bool(Operation *)> readsInside) {
  findVaried(readsInside);
  findPath(seeds);
  return obstacles;
}

/// Emits an error if something has no derivative or no source is reached.
LogicalResult Gradients::checkPath() const {
  if (!obstacles.empty())
    return obstacles.front().op->emitError() << of << " depends on weights through it, and "
                                             << obstacles.front().what << " has no derivative yet";
  if (llvm::any_of(sources, [&](const auto &source) { return isReached(source.second); }))
    return success();
  return function->emitError()
         << of << " depends on none of the weights and inputs it is to be differentiated by";
}

FailureOr<llvm::MapVector<StringAttr, Value>>
Gradients::build(ArrayRef<Seed> seeds, llvm::function_ref<bool(Operation *)> readsInside) {
  findVaried(readsInside);
  findPath(llvm::map_to_vector(seeds, [](const Seed &seed) { return seed.value; }));
  if (failed(checkPath()))
    return failure();
  OpBuilder builder(function.front().getTerminator());
  Adjoints adjoints(builder, varied);
  for (const Seed &seed : seeds)
    adjoints.add(seed.value, [&] { return seed.cotangent; });
  for (Operation *op : path) {
    Value cotangent = adjoints.get(op->getResult(0));
    if (!cotangent)
      continue;
    adjoints.enter(op->getLoc());
    Operation *before = function.front().getTerminator()->getPrevNode();
    cast<DerivativeInterface>(op).pullBack(cotangent, adjoints);
    // The derivative of an operation that computes in f32 does so, too.
    if (op->hasAttr(loom::kFullPrecision))
      loom::markFullPrecision(function.front(), before);
  }
  llvm::MapVector<StringAttr, Value> gradients;
  for (const auto &[name, values] : sources) {
    adjoints.enter(NameLoc::get(name));
    std::optional<Term> sum;
    for (Value value : values)
      if (Value gradient = adjoints.get(value)) {
        Term term = adjoints.term(gradient);
        sum = sum ? *sum + term : term;
      }
    if (sum)
      gradients[name] = *sum;
  }
  return gradients;
}
