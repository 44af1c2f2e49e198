//===- BodyReduce.cpp - reductions to loops -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/BodyEmitter.h"
#include "compiler/codegen/ContractSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

/// True if all threads of a group compute the same at `at`, so that they can split a reduction.
bool BodyEmitter::isShared(const Context &at) const {
  for (const Context *place = &at; place; place = place->parent)
    if (place->isSpread)
      return false;
  return group.count > 1;
}

Value BodyEmitter::emitReduce(NodeId id, Context &at) {
  const Node &node = body.nodes[id];
  SmallVector<const Loop *> loops;
  for (AtomId atom : node.bound)
    if (const Loop *loop = &nest.loopOf(atom); !llvm::is_contained(loops, loop))
      loops.push_back(loop);

  // Vector lanes of a surrounding loop accumulate side by side; without them the innermost loop is
  // vectorised.
  const Context *lanes = vectorContext(node.free, at);
  bool isSpread = isShared(at);
  if (isSpread && loops.size() == 1 && llvm::is_contained(group.inLine, loops[0]))
    return emitReduceInLine(node, at, *loops[0], lanes ? 1 : widthFor(*loops[0]), lanes);
  SmallVector<Segment> segments{{0, loops.back()->extent, 1}};
  if (!lanes && widthFor(*loops.back()) > 1)
    segments = cutInSegments(loops.back()->extent, widest);

  for (Segment &segment : segments)
    segment.isSpread = isSpread;

  enter(at);
  if (segments.empty())
    return identity(node, node.element);
  SmallVector<Value> accumulators;
  for (const Segment &segment : segments) {
    int64_t width = lanes ? lanes->width : segment.width;
    accumulators.push_back(
        identity(node, width > 1 ? Type(VectorType::get(width, node.element)) : node.element));
  }
  auto pass = at.passOf.find(id);
  accumulators = emitReduceLoops(node, at, loops, pass == at.passOf.end() ? -1 : pass->second,
                                 segments, accumulators);
  enter(at);
  if (lanes)
    return isSpread ? group.join(node, accumulators[0]) : accumulators[0];
  Value result;
  for (Value accumulator : accumulators) {
    Value part = collapse(node, accumulator);
    result = result ? combine(node, result, part) : part;
  }
  return isSpread ? group.join(node, result) : result;
}

/// Reduces over unrolled iterations. Those beyond the loop's end contribute the identity.
Value BodyEmitter::emitReduceInLine(const Node &node, Context &at, const Loop &loop, int64_t width,
                                    const Context *lanes) {
  int64_t elements = lanes ? lanes->width : width;
  Value result;
  for (std::unique_ptr<Context> &inside : getInLine(at, loop, width)) {
    Value value = emit(node.operands[0], *inside);
    enter(*inside);
    if (elements > 1)
      value = toVector(value, elements);
    if (inside->isInside)
      value = arith::SelectOp::create(builder, loc, inside->isInside, value,
                                      identity(node, value.getType()));
    result = result ? combine(node, result, value) : value;
  }
  enter(at);
  if (!result) // of nothing
    result = identity(node, lanes && elements > 1 ? Type(VectorType::get(elements, node.element))
                                                  : node.element);
  return group.join(node, lanes ? result : collapse(node, result));
}

SmallVector<Value> BodyEmitter::emitReduceLoops(const Node &node, Context &at,
                                                ArrayRef<const Loop *> loops, int pass,
                                                ArrayRef<Segment> segments,
                                                ValueRange accumulators) {
  if (loops.size() > 1)
    return emitLoop(at, *loops[0], {0, loops[0]->extent, 1}, -1, accumulators,
                    [&](Context &inside, ValueRange carried) {
                      return emitReduceLoops(node, inside, loops.drop_front(), pass, segments,
                                             carried);
                    });
  SmallVector<Value> results;
  for (auto [segment, accumulator] : llvm::zip_equal(segments, accumulators))
    results.append(emitLoop(at, *loops[0], segment, pass, accumulator,
                            [&](Context &inside, ValueRange carried) -> SmallVector<Value> {
                              Value value = emit(node.operands[0], inside);
                              enter(inside);
                              if (auto type = dyn_cast<VectorType>(carried[0].getType()))
                                value = toVector(value, type.getNumElements());
                              return {combine(node, carried[0], value)};
                            }));
  return results;
}

/// The reduction's kind for vector.reduction.
static vector::CombiningKind combiningKind(const Node &node) {
  using K = vector::CombiningKind;
  bool isFloat = isa<FloatType>(node.element), isBool = node.element.isInteger(1);
  switch (node.reduction) {
  case dist::ReductionKind::Sum:
    return isBool ? K::OR : K::ADD;
  case dist::ReductionKind::Prod:
    return isBool ? K::AND : K::MUL;
  case dist::ReductionKind::Max:
    if (isBool)
      return K::OR;
    if (!isFloat)
      return node.isUnsigned ? K::MAXUI : K::MAXSI;
    return node.ignoresNan ? K::MAXNUMF : K::MAXIMUMF;
  case dist::ReductionKind::Min:
    if (isBool)
      return K::AND;
    if (!isFloat)
      return node.isUnsigned ? K::MINUI : K::MINSI;
    return node.ignoresNan ? K::MINNUMF : K::MINIMUMF;
  }
  llvm_unreachable("all kinds are covered");
}

Value gridloom::codegen::combineScalars(OpBuilder &builder, Location loc, dist::ReductionKind kind,
                                        Value lhs, Value rhs, Type element) {
  bool isFloat = isa<FloatType>(element), isBool = element.isInteger(1);
  bool isUnsigned = element.isUnsignedInteger();
  auto make = [&](auto op) -> Value {
    return decltype(op)::create(builder, loc, lhs, rhs).getResult();
  };
  switch (kind) {
  case dist::ReductionKind::Sum:
    return isFloat  ? addToSum(builder, loc, lhs, rhs)
           : isBool ? make(arith::OrIOp())
                    : make(arith::AddIOp());
  case dist::ReductionKind::Prod:
    return isFloat ? make(arith::MulFOp()) : isBool ? make(arith::AndIOp()) : make(arith::MulIOp());
  case dist::ReductionKind::Max:
    if (isFloat)
      return make(arith::MaximumFOp());
    if (isBool)
      return make(arith::OrIOp());
    return isUnsigned ? make(arith::MaxUIOp()) : make(arith::MaxSIOp());
  case dist::ReductionKind::Min:
    if (isFloat)
      return make(arith::MinimumFOp());
    if (isBool)
      return make(arith::AndIOp());
    return isUnsigned ? make(arith::MinUIOp()) : make(arith::MinSIOp());
  }
  llvm_unreachable("all kinds are covered");
}

Value BodyEmitter::combine(const Node &node, Value lhs, Value rhs) {
  if (isa<FloatType>(node.element) && node.ignoresNan &&
      (node.reduction == dist::ReductionKind::Max || node.reduction == dist::ReductionKind::Min)) {
    bool isMax = node.reduction == dist::ReductionKind::Max;
    if (style.hasMaxOfNumbers)
      return isMax ? arith::MaxNumFOp::create(builder, loc, lhs, rhs).getResult()
                   : arith::MinNumFOp::create(builder, loc, lhs, rhs).getResult();
    // One instruction; it returns rhs if either operand is NaN.
    auto predicate = isMax ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT;
    Value first = arith::CmpFOp::create(builder, loc, predicate, lhs, rhs);
    return arith::SelectOp::create(builder, loc, first, lhs, rhs);
  }
  Type element = node.element;
  if (node.isUnsigned)
    element = IntegerType::get(element.getContext(), element.getIntOrFloatBitWidth(),
                               IntegerType::Unsigned);
  return combineScalars(builder, loc, node.reduction, lhs, rhs, element);
}

Value BodyEmitter::identity(const Node &node, Type type) {
  bool isMax = node.reduction == dist::ReductionKind::Max;
  bool isExtreme = isMax || node.reduction == dist::ReductionKind::Min;
  bool isOne = node.reduction == dist::ReductionKind::Prod;
  Attribute value;
  if (auto floating = dyn_cast<FloatType>(node.element)) {
    llvm::APFloat number(floating.getFloatSemantics(), isOne ? 1 : 0);
    if (isExtreme)
      number = llvm::APFloat::getInf(floating.getFloatSemantics(), /*Negative=*/isMax);
    value = builder.getFloatAttr(floating, number);
  } else if (node.element.isInteger(1)) {
    value = builder.getBoolAttr(isOne || (isExtreme && !isMax));
  } else {
    unsigned bits = node.element.getIntOrFloatBitWidth();
    llvm::APInt number(bits, isOne ? 1 : 0);
    if (isExtreme && node.isUnsigned)
      number = isMax ? llvm::APInt::getMinValue(bits) : llvm::APInt::getMaxValue(bits);
    else if (isExtreme)
      number = isMax ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getSignedMaxValue(bits);
    value = builder.getIntegerAttr(node.element, number);
  }
  return splat(type, value);
}

Value BodyEmitter::collapse(const Node &node, Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  return vector::ReductionOp::create(builder, loc, combiningKind(node), value);
}
