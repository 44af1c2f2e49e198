//===- Bodies.cpp - shardings of loops' and branches' bodies --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Bodies.h"

#include "dialects/dist/Sharding.h"
#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// Adds the axes that `wanted` has beyond the value's own sharding; returns whether any was added.
static bool grow(Propagation &state, Value value, const Sharding &wanted, StringRef origin) {
  bool changed = false;
  for (auto [dim, want] : llvm::enumerate(wanted.dims)) {
    ArrayRef<StringAttr> have = state.lookup(value).sharding.dims[dim].axes, axes = want.axes;
    if (axes.size() <= have.size() || axes.take_front(have.size()) != have)
      continue;
    for (StringAttr axis : axes.drop_front(have.size())) {
      if (!state.addAxis(value, dim, axis, origin, want.granule))
        break;
      changed = true;
    }
  }
  return changed;
}

static std::string getBodyOrigin(Operation *op) {
  return "as in '" + loom::getNodeName(op->getLoc()) + "'";
}

static void growInto(Propagation &inner, const Propagation &outer, Operation *op,
                     const loom::BodyLink &link) {
  SmallVector<Sharding> required = outer.getRequired(op);
  Block &block = func::FuncOp(link.body).front();
  for (auto [argument, operand] : llvm::zip_equal(block.getArguments(), link.operands))
    grow(inner, argument, required[operand], getBodyOrigin(op));
}

static bool growOutOf(const Propagation &inner, Propagation &outer, Operation *op,
                      const loom::BodyLink &link) {
  Block &block = func::FuncOp(link.body).front();
  bool changed = false;
  for (auto [value, result] : llvm::zip_equal(block.getTerminator()->getOperands(), link.results))
    if (result)
      changed |=
          grow(outer, op->getResult(*result), inner.lookup(value).sharding, getBodyOrigin(op));
  for (auto [argument, operand] : llvm::zip_equal(block.getArguments(), link.operands))
    changed |=
        grow(outer, op->getOperand(operand), inner.lookup(argument).sharding, getBodyOrigin(op));
  return changed;
}

std::vector<BodyState> gridloom::growThroughBodies(Propagation &state, func::FuncOp function) {
  std::vector<BodyState> bodies;
  for (bool changed = true; changed;) {
    changed = false;
    bodies.clear();
    for (Operation &op : function.front())
      for (loom::BodyLink &link : loom::getBodies(&op)) {
        Propagation inner(link.body, state.getMesh());
        growInto(inner, state, &op, link);
        inner.run();
        std::vector<BodyState> nested = growThroughBodies(inner, link.body);
        changed |= growOutOf(inner, state, &op, link);
        bodies.push_back({link.body, std::move(inner)});
        std::move(nested.begin(), nested.end(), std::back_inserter(bodies));
      }
    if (changed)
      state.run();
  }
  return bodies;
}

void gridloom::declareBodies(const Propagation &state, func::FuncOp function) {
  MLIRContext *context = function.getContext();
  auto close = [&](Sharding sharding) {
    for (Sharding::Dim &dim : sharding.dims)
      dim.open = false;
    return sharding.getAttr(state.getMesh());
  };
  for (Operation &op : function.front())
    for (loom::BodyLink &link : loom::getBodies(&op)) {
      std::string origin = getBodyOrigin(&op);
      SmallVector<Sharding> required = state.getRequired(&op);
      for (auto [argument, operand] : llvm::zip_equal(link.body.getArguments(), link.operands))
        setSharding(argument, close(required[operand]), origin);
      for (auto [i, result] : llvm::enumerate(link.results)) {
        Sharding sharding = result ? required[op.getNumOperands() + *result] : required.front();
        link.body.setResultAttr(i, kSharding, close(sharding));
        link.body.setResultAttr(i, kOrigin, OriginAttr::get(context, origin));
      }
    }
}
