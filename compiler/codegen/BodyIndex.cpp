//===- BodyIndex.cpp - index expressions to arith -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/BodyEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// The address `linear` as an index. The constant part is added last, so that it becomes the
/// access's immediate offset.
Value BodyEmitter::emitPlace(const Linear &linear, Context &context) {
  bool isPositive = linear.offset >= 0 &&
                    llvm::all_of(linear.terms, [](const auto &term) { return term.second >= 0; });
  if (!style.hasShortIndices || !isPositive)
    return emitIndex(linear, context);
  Linear variable = linear;
  int64_t offset = std::exchange(variable.offset, 0);
  for (Context *at = &context; at; at = at->parent)
    if (at->base)
      offset += linear.coefficient(at->loops[0].first->atoms.back()) * at->offset;
  Value place = emitIndex(variable, context, /*isFromBase=*/true);
  enter(context);
  place = arith::IndexCastUIOp::create(builder, loc, builder.getIndexType(), place);
  if (offset == 0)
    return place;
  auto flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
  Value last = arith::ConstantIndexOp::create(builder, loc, offset);
  return arith::AddIOp::create(builder, loc, place, last, flags);
}

/// The value of `linear`; with `isFromBase`, each loop variable that has a base counts as its base.
Value BodyEmitter::emitIndex(const Linear &linear, Context &context, bool isFromBase) {
  Context &at = home(body.atoms.freeAtoms(linear), context);
  std::vector<int64_t> key{isFromBase};
  linear.encode(key);
  if (auto known = at.indices.find(key); known != at.indices.end())
    return known->second;

  // Invariant terms come from an outer context; a branch has no variable of its own.
  Linear rest;
  SmallVector<std::pair<AtomId, int64_t>> here;
  for (auto [atom, coefficient] : linear.terms) {
    bool isVariable = body.atoms[atom].kind == Atom::Kind::Loop;
    if (isVariable ? !at.owns(atom) : &home(body.atoms[atom].free, at) != &at)
      rest += Linear::atom(atom, coefficient);
    else
      here.emplace_back(atom, coefficient);
  }
  Value sum = rest.isConstant() ? Value() : emitIndex(rest, *at.parent, isFromBase);
  // If no term is negative, no partial sum exceeds the whole.
  auto flags = arith::IntegerOverflowFlags::none;
  if (style.hasShortIndices && linear.offset >= 0 &&
      llvm::all_of(linear.terms, [](const auto &term) { return term.second >= 0; }))
    flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
  auto add = [&](Value value, int64_t factor) {
    enter(at);
    if (factor != 1)
      value = arith::MulIOp::create(builder, loc, value, constantIndex(factor), flags);
    sum = sum ? arith::AddIOp::create(builder, loc, sum, value, flags).getResult() : value;
  };
  for (auto [loop, variable] : at.loops)
    if (int64_t coefficient = linear.coefficient(loop->atoms.back()))
      add(isFromBase && at.base ? at.base : variable, coefficient);
  for (auto [atom, coefficient] : here)
    if (body.atoms[atom].kind != Atom::Kind::Loop)
      add(emitAtom(atom, at), coefficient);
  enter(at);
  if (linear.offset != 0 || !sum) {
    Value offset = constantIndex(linear.offset);
    sum = sum ? arith::AddIOp::create(builder, loc, sum, offset, flags).getResult() : offset;
  }
  return at.indices[key] = sum;
}

/// Clamps a loaded `value` to an index in [0, last], so that no data can cause an access out of
/// bounds.
Value BodyEmitter::clamp(Value value, int64_t last) {
  Type type = value.getType(), element = getElementTypeOrSelf(type);
  auto shaped = [&](Type scalar) -> Type {
    auto vector = dyn_cast<VectorType>(type);
    return vector ? Type(vector.clone(scalar)) : scalar;
  };
  // Truncation comes after clamping, else a large number would become a small one.
  if (!style.hasShortIndices)
    value = arith::IndexCastOp::create(builder, loc, shaped(indexType), value);
  else if (element.getIntOrFloatBitWidth() < 32)
    value = arith::ExtSIOp::create(builder, loc, shaped(indexType), value);
  type = value.getType();
  auto constant = [&](int64_t number) {
    return splat(type, builder.getIntegerAttr(getElementTypeOrSelf(type), number));
  };
  value = arith::MaxSIOp::create(builder, loc, value, constant(0));
  value = arith::MinSIOp::create(builder, loc, value, constant(last));
  if (style.hasShortIndices && element.getIntOrFloatBitWidth() > 32)
    value = arith::TruncIOp::create(builder, loc, shaped(indexType), value);
  return value;
}

Value BodyEmitter::emitAtom(AtomId id, Context &context) {
  const Atom &atom = body.atoms[id];
  if (atom.kind == Atom::Kind::Loaded) {
    Value value = emit(atom.node, context);
    enter(context);
    return clamp(value, atom.size - 1);
  }
  Value argument = emitIndex(atom.argument, context);
  enter(context);
  Value divisor = constantIndex(atom.divisor);
  if (atom.kind == Atom::Kind::Quotient)
    return arith::DivUIOp::create(builder, loc, argument, divisor);
  return arith::RemUIOp::create(builder, loc, argument, divisor);
}

Value BodyEmitter::emitIndexVector(const Linear &linear, Context &context, const Context &lanes) {
  auto [loop, variable] = lanes.loops[0];
  auto type = VectorType::get(lanes.width, indexType);
  auto vectorConstant = [&](int64_t value) -> Value {
    return splat(type, builder.getIntegerAttr(indexType, value));
  };
  auto varies = [&, loop = loop](AtomId atom) {
    return body.atoms[atom].kind != Atom::Kind::Loop &&
           llvm::any_of(body.atoms[atom].free, [&](AtomId id) { return loop->contains(id); });
  };
  // The linear part with the loop variable of the first lane, then what the lanes add.
  Linear uniform(linear.offset);
  for (auto [atom, coefficient] : linear.terms)
    if (!varies(atom))
      uniform += Linear::atom(atom, coefficient);
  Value base = emitIndex(uniform, context);
  enter(context);
  Value sum = toVector(base, lanes.width);
  if (int64_t stride = linear.coefficient(loop->atoms.back())) {
    SmallVector<Attribute> steps;
    for (int64_t i = 0; i < lanes.width; ++i)
      steps.push_back(builder.getIntegerAttr(indexType, i * stride));
    Value step = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, steps));
    sum = arith::AddIOp::create(builder, loc, sum, step);
  }
  for (auto [atom, coefficient] : linear.terms) {
    if (!varies(atom))
      continue;
    Value value = emitAtomVector(atom, context, lanes);
    enter(context);
    value = arith::MulIOp::create(builder, loc, value, vectorConstant(coefficient));
    sum = arith::AddIOp::create(builder, loc, sum, value);
  }
  return sum;
}

Value BodyEmitter::emitAtomVector(AtomId id, Context &context, const Context &lanes) {
  const Atom &atom = body.atoms[id];
  auto type = VectorType::get(lanes.width, indexType);
  if (atom.kind == Atom::Kind::Loaded) {
    Value value = emit(atom.node, context);
    enter(context);
    return clamp(toVector(value, lanes.width), atom.size - 1);
  }
  Value argument = emitIndexVector(atom.argument, context, lanes);
  enter(context);
  Value divisor = splat(type, builder.getIntegerAttr(indexType, atom.divisor));
  if (atom.kind == Atom::Kind::Quotient)
    return arith::DivUIOp::create(builder, loc, argument, divisor);
  return arith::RemUIOp::create(builder, loc, argument, divisor);
}
