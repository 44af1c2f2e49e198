//===- BodyEmitter.cpp - expressions to arith, vector and scf -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/BodyEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

bool Context::owns(AtomId atom) const {
  return llvm::any_of(loops, [&](const auto &loop) { return loop.first->contains(atom); });
}

Type gridloom::codegen::memoryType(Type element) {
  return element.isInteger(1) ? IntegerType::get(element.getContext(), 8) : signlessType(element);
}

MemRefType gridloom::codegen::emitConstantGlobal(OpBuilder &builder, Location loc, StringRef name,
                                                 const Buffer &buffer) {
  Type element = memoryType(buffer.element);
  auto type = MemRefType::get(buffer.elements, element);
  DenseElementsAttr value = buffer.constant;
  value = value.reshape(RankedTensorType::get(buffer.elements, value.getElementType()));
  if (buffer.element.isInteger(1))
    value = value.mapValues(element, [](const APInt &bit) { return bit.zext(8); });
  else if (value.getElementType() != buffer.element)
    value = value.bitcast(buffer.element);
  memref::GlobalOp::create(builder, loc, name, builder.getStringAttr("private"), type, value,
                           /*constant=*/true, builder.getI64IntegerAttr(64));
  return type;
}

SmallVector<Segment> gridloom::codegen::cutInSegments(int64_t extent, int64_t widest) {
  SmallVector<Segment> segments;
  int64_t begin = 0;
  for (int64_t width = widest; begin < extent; width = width > 4 ? width / 2 : 1) {
    int64_t end = begin + (extent - begin) / width * width;
    if (end > begin)
      segments.push_back({begin, end, width});
    begin = end;
  }
  return segments;
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

Context &BodyEmitter::home(ArrayRef<AtomId> free, Context &context) const {
  Context *at = &context;
  while (at->parent && !intersects(free, at->guard) &&
         llvm::none_of(free, [&](AtomId atom) { return at->owns(atom); }))
    at = at->parent;
  return *at;
}

/// The context whose vectors a value with these dependencies is made of; null for a scalar.
const Context *BodyEmitter::vectorContext(ArrayRef<AtomId> free, const Context &context) const {
  for (AtomId atom : free)
    for (const Context *at = &context; at; at = at->parent)
      if (at->owns(atom)) {
        if (at->width > 1)
          return at;
        break;
      }
  return nullptr;
}

void BodyEmitter::enter(Context &context) {
  if (Operation *anchor = context.getAnchor())
    builder.setInsertionPoint(anchor);
  else if (context.block->mightHaveTerminator())
    builder.setInsertionPoint(context.block->getTerminator());
  else
    builder.setInsertionPointToEnd(context.block);
}

Value BodyEmitter::constantIndex(int64_t value) {
  return arith::ConstantIndexOp::create(builder, loc, value);
}

SmallVector<Value> BodyEmitter::emitLoop(Context &context, const Loop &loop, Value begin, Value end,
                                         int64_t width, int pass, ValueRange inits, Build build,
                                         bool isSpread) {
  enter(context);
  Value step = constantIndex(isSpread ? width * group.count : width);
  auto op = scf::ForOp::create(builder, loc, begin, end, step, inits);
  Operation *outerAnchor = std::exchange(context.getAnchor(), op);
  Context inside;
  inside.parent = &context;
  inside.block = op.getBody();
  inside.loops.emplace_back(&loop, op.getInductionVar());
  inside.width = width;
  inside.pass = pass;
  inside.isSpread = isSpread;
  SmallVector<Value> next = build(inside, op.getRegionIterArgs());
  if (!inits.empty()) {
    builder.setInsertionPointToEnd(op.getBody());
    scf::YieldOp::create(builder, loc, next);
  }
  context.getAnchor() = outerAnchor;
  enter(context);
  return SmallVector<Value>(op.getResults());
}

SmallVector<Value> BodyEmitter::emitLoop(Context &context, const Loop &loop, const Segment &segment,
                                         int pass, ValueRange inits, Build build) {
  enter(context);
  Value begin = constantIndex(segment.begin), end = constantIndex(segment.end);
  if (segment.isSpread) {
    Value own = arith::MulIOp::create(builder, loc, group.lane, constantIndex(segment.width));
    begin = arith::AddIOp::create(builder, loc, begin, own);
  }
  return emitLoop(context, loop, begin, end, segment.width, pass, inits, build, segment.isSpread);
}

int64_t BodyEmitter::widthFor(const Loop &loop) const {
  // A vector has elements from one part of a concatenation only.
  for (const Node &node : body.nodes)
    if (node.kind == Node::Kind::Choose)
      for (AtomId atom : body.atoms.freeAtoms(node.index))
        if (loop.contains(atom))
          return 1;
  return widest;
}

//===----------------------------------------------------------------------===//
// Passes over a row
//===----------------------------------------------------------------------===//

/// Decides which values of one pass are kept for later ones: what is costly and needed again.
void BodyEmitter::planScratch(Context &context, const Loop &loop,
                              ArrayRef<SmallVector<NodeId>> passes) {
  constexpr double kCheap = 4; // a load and a store, and what comes with them
  if (!allocate)
    return;
  std::map<NodeId, int> firstPass;
  std::function<void(NodeId, int)> visit = [&](NodeId id, int pass) {
    const Node &node = body.nodes[id];
    if (llvm::none_of(node.free, [&](AtomId atom) { return loop.contains(atom); }) ||
        context.scratch.count(id))
      return;
    auto [first, isNew] = firstPass.try_emplace(id, pass);
    if (!isNew) {
      Type type = memoryType(node.element);
      int64_t bytes = loop.extent * type.getIntOrFloatBitWidth() / 8;
      if (first->second < pass && node.cost > kCheap && scratchBytes + bytes <= kScratchLimit) {
        scratchBytes += bytes;
        context.scratch[id] = {allocate(type, loop.extent), first->second};
      }
      return;
    }
    if (node.kind == Node::Kind::Compute)
      for (NodeId operand : node.operands)
        visit(operand, pass);
  };
  for (auto [i, roots] : llvm::enumerate(passes))
    for (NodeId root : roots)
      visit(root, i);
}

/// The nodes that some branch of a concatenation may need, and that are only safe there.
static std::vector<bool> findGuarded(const Body &body) {
  std::vector<bool> guarded(body.nodes.size(), false);
  // Users come after operands, so one walk from the back reaches everything.
  auto mark = [&](const Node &node) {
    for (NodeId operand : node.operands)
      guarded[operand] = true;
    for (AtomId atom : body.atoms.allAtoms(node.index))
      if (body.atoms[atom].kind == Atom::Kind::Loaded)
        guarded[body.atoms[atom].node] = true;
  };
  for (NodeId id = body.nodes.size(); id-- > 0;)
    if (guarded[id] || body.nodes[id].kind == Node::Kind::Choose)
      mark(body.nodes[id]);
  return guarded;
}

int BodyEmitter::emitPasses(Context &context, const Loop *last) {
  for (Context *at = &context; at; at = at->parent)
    if (at->width > 1)
      last = nullptr;
  std::vector<bool> guarded = findGuarded(body);
  SmallVector<NodeId> here;
  llvm::MapVector<const Loop *, SmallVector<SmallVector<NodeId>>> passes;
  for (auto [id, node] : llvm::enumerate(body.nodes)) {
    if (node.kind != Node::Kind::Reduce || guarded[id] || &home(node.free, context) != &context)
      continue;
    // Of a value that needs variables of loops further in, this is not the home.
    if (llvm::any_of(node.free, [&](AtomId atom) {
          for (Context *at = &context; at; at = at->parent)
            if (at->owns(atom))
              return false;
          return true;
        }))
      continue;
    here.push_back(id);
    const Loop &loop = nest.loopOf(node.bound[0]);
    bool isOneLoop = llvm::all_of(node.bound, [&](AtomId atom) { return loop.contains(atom); });
    if (!isOneLoop || vectorContext(node.free, context))
      continue;
    context.passOf[id] = passes[&loop].size();
    passes[&loop].push_back({node.operands[0]});
  }
  int lastPass = -1;
  if (last && passes.count(last)) {
    lastPass = passes[last].size();
    SmallVector<NodeId> roots;
    for (const Store &store : body.stores)
      roots.push_back(store.value);
    passes[last].push_back(roots);
  }
  for (auto &[loop, list] : passes)
    planScratch(context, *loop, list);
  for (NodeId id : here)
    emit(id, context);
  return lastPass;
}

void BodyEmitter::emitStores(Context &context) {
  for (const Store &target : body.stores) {
    Value value = emit(target.value, context);
    Value index = emitIndex(target.index, context);
    AtomSet free = body.atoms.freeAtoms(target.index);
    const Context *lanes = vectorContext(free, context);
    enter(context);
    store(lanes ? toVector(value, lanes->width) : value, memories[target.buffer], index);
  }
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

Value BodyEmitter::emit(NodeId id, Context &context) {
  const Node &node = body.nodes[id];
  Context &at = home(node.free, context);
  if (auto known = at.values.find(id); known != at.values.end())
    return known->second;
  const Scratch *kept = nullptr;
  if (at.pass >= 0)
    if (auto place = at.parent->scratch.find(id); place != at.parent->scratch.end())
      kept = &place->second;
  Value value;
  if (kept && at.pass > kept->producer) {
    enter(at);
    value = load(kept->memory, at.loops[0].second, at.width, node.element);
  } else {
    value = emitNode(id, at);
    if (kept && at.pass == kept->producer) {
      enter(at);
      store(value, kept->memory, at.loops[0].second);
    }
  }
  return at.values[id] = value;
}

Value BodyEmitter::emitNode(NodeId id, Context &at) {
  const Node &node = body.nodes[id];
  switch (node.kind) {
  case Node::Kind::Load:
    return emitLoad(node, at);
  case Node::Kind::Splat:
    enter(at);
    return splat(node.element, node.value);
  case Node::Kind::Iota:
    return emitIota(node, at);
  case Node::Kind::Compute:
    return emitCompute(node, at);
  case Node::Kind::Reduce:
    return emitReduce(id, at);
  case Node::Kind::Choose:
    return emitChoose(node, at, 0);
  }
  llvm_unreachable("all kinds are covered");
}

Value BodyEmitter::emitLoad(const Node &node, Context &at) {
  Value memory = memories[node.buffer];
  const Context *lanes = vectorContext(node.free, at);
  if (!lanes) {
    Value index = emitIndex(node.index, at);
    enter(at);
    return load(memory, index, 1, node.element);
  }
  const Loop &loop = *lanes->loops[0].first;
  bool isAffine = llvm::all_of(node.index.terms, [&](const auto &term) {
    const Atom &atom = body.atoms[term.first];
    return atom.kind == Atom::Kind::Loop ||
           llvm::none_of(atom.free, [&](AtomId id) { return loop.contains(id); });
  });
  if (isAffine && node.index.coefficient(loop.atoms.back()) == 1) {
    Value index = emitIndex(node.index, at);
    enter(at);
    return load(memory, index, lanes->width, node.element);
  }
  Value indices = emitIndexVector(node.index, at, *lanes);
  enter(at);
  Type element = memoryType(node.element);
  auto type = VectorType::get(lanes->width, element);
  auto maskType = VectorType::get(lanes->width, builder.getI1Type());
  Value mask = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(maskType, true));
  Value rest = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type));
  Value base = constantIndex(0);
  Value value =
      vector::GatherOp::create(builder, loc, type, memory, base, indices, mask, rest).getResult();
  return fromMemory(value, node.element);
}

Value BodyEmitter::emitIota(const Node &node, Context &at) {
  const Context *lanes = vectorContext(node.free, at);
  Value index = lanes ? emitIndexVector(node.index, at, *lanes) : emitIndex(node.index, at);
  enter(at);
  auto shaped = [&](Type element) -> Type {
    return lanes ? Type(VectorType::get(lanes->width, element)) : element;
  };
  bool isInteger = isa<IntegerType>(node.element);
  Type integer = isInteger ? node.element : builder.getI64Type();
  Value number = arith::IndexCastOp::create(builder, loc, shaped(integer), index);
  if (isInteger)
    return number;
  return arith::SIToFPOp::create(builder, loc, shaped(node.element), number);
}

Value BodyEmitter::emitCompute(const Node &node, Context &at) {
  SmallVector<Value> operands;
  for (NodeId operand : node.operands)
    operands.push_back(emit(operand, at));
  enter(at);
  if (const Context *lanes = vectorContext(node.free, at))
    for (auto [value, id] : llvm::zip_equal(operands, node.operands)) {
      // A constant is made a vector of constants, which emitScalar recognises.
      const Node &operand = body.nodes[id];
      if (operand.kind == Node::Kind::Splat)
        value = splat(VectorType::get(lanes->width, operand.element), operand.value);
      else
        value = toVector(value, lanes->width);
    }
  auto scalar = cast<loom::KernelBodyInterface>(node.op);
  return scalar.emitScalar(builder, node.op->getLoc(), operands);
}

/// A chain of branches over the parts from `from` on.
Value BodyEmitter::emitChoose(const Node &node, Context &at, size_t from) {
  if (from + 1 == node.operands.size())
    return emit(node.operands[from], at);
  Value index = emitIndex(node.index, at);
  const Context *lanes = vectorContext(node.free, at);
  Type type = lanes ? Type(VectorType::get(lanes->width, node.element)) : node.element;
  enter(at);
  Value below = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, index,
                                      constantIndex(node.limits[from]));
  auto branch = scf::IfOp::create(builder, loc, TypeRange(type), below, /*withElseRegion=*/true);
  Operation *outerAnchor = std::exchange(at.getAnchor(), branch);
  for (bool first : {true, false}) {
    Context inside;
    inside.parent = &at;
    inside.block = first ? branch.thenBlock() : branch.elseBlock();
    inside.guard = body.atoms.freeAtoms(node.index);
    Value value = first ? emit(node.operands[from], inside) : emitChoose(node, inside, from + 1);
    enter(inside);
    if (lanes)
      value = toVector(value, lanes->width);
    scf::YieldOp::create(builder, loc, value);
  }
  at.getAnchor() = outerAnchor;
  return branch.getResult(0);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// True if all threads of a group do the same at `at`.
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

  // Lanes of the surrounding loop accumulate side by side; else the last loop is made of vectors.
  const Context *lanes = vectorContext(node.free, at);
  SmallVector<Segment> segments{{0, loops.back()->extent, 1}};
  if (!lanes && widthFor(*loops.back()) > 1)
    segments = cutInSegments(loops.back()->extent, widest);

  bool isSpread = !lanes && isShared(at);
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
    return accumulators[0];
  Value result;
  for (Value accumulator : accumulators) {
    Value part = collapse(node, accumulator);
    result = result ? combine(node, result, part) : part;
  }
  return isSpread ? group.join(node, result) : result;
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

/// The kind of a reduction of `element`s as vector.reduction names it.
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
    return isFloat ? make(arith::AddFOp()) : isBool ? make(arith::OrIOp()) : make(arith::AddIOp());
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
    // One instruction; of a NaN and a number it is the second.
    auto predicate = node.reduction == dist::ReductionKind::Max ? arith::CmpFPredicate::OGT
                                                                : arith::CmpFPredicate::OLT;
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

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

Value BodyEmitter::emitIndex(const Linear &linear, Context &context) {
  Context &at = home(body.atoms.freeAtoms(linear), context);
  std::vector<int64_t> key;
  linear.encode(key);
  if (auto known = at.indices.find(key); known != at.indices.end())
    return known->second;

  // What does not change in this body comes from further out; a branch has no variable of its own.
  Linear rest;
  SmallVector<std::pair<AtomId, int64_t>> here;
  for (auto [atom, coefficient] : linear.terms) {
    bool isVariable = body.atoms[atom].kind == Atom::Kind::Loop;
    if (isVariable ? !at.owns(atom) : &home(body.atoms[atom].free, at) != &at)
      rest += Linear::atom(atom, coefficient);
    else
      here.emplace_back(atom, coefficient);
  }
  Value sum = rest.isConstant() ? Value() : emitIndex(rest, *at.parent);
  auto add = [&](Value value, int64_t factor) {
    enter(at);
    if (factor != 1)
      value = arith::MulIOp::create(builder, loc, value, constantIndex(factor));
    sum = sum ? arith::AddIOp::create(builder, loc, sum, value).getResult() : value;
  };
  for (auto [loop, variable] : at.loops)
    if (int64_t coefficient = linear.coefficient(loop->atoms.back()))
      add(variable, coefficient);
  for (auto [atom, coefficient] : here)
    if (body.atoms[atom].kind != Atom::Kind::Loop)
      add(emitAtom(atom, at), coefficient);
  enter(at);
  if (linear.offset != 0 || !sum) {
    Value offset = constantIndex(linear.offset);
    sum = sum ? arith::AddIOp::create(builder, loc, sum, offset).getResult() : offset;
  }
  return at.indices[key] = sum;
}

/// index into [0, size): memory stays safe whatever the data.
static Value clamp(OpBuilder &builder, Location loc, Value index, Value zero, Value last) {
  Value positive = arith::MaxSIOp::create(builder, loc, index, zero);
  return arith::MinSIOp::create(builder, loc, positive, last);
}

Value BodyEmitter::emitAtom(AtomId id, Context &context) {
  const Atom &atom = body.atoms[id];
  if (atom.kind == Atom::Kind::Loaded) {
    Value value = emit(atom.node, context);
    enter(context);
    Value index = arith::IndexCastOp::create(builder, loc, builder.getIndexType(), value);
    return clamp(builder, loc, index, constantIndex(0), constantIndex(atom.size - 1));
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
  auto type = VectorType::get(lanes.width, builder.getIndexType());
  auto vectorConstant = [&](int64_t value) -> Value {
    return splat(type, builder.getIndexAttr(value));
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
    Value step = vector::StepOp::create(builder, loc, type);
    step = arith::MulIOp::create(builder, loc, step, vectorConstant(stride));
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
  auto type = VectorType::get(lanes.width, builder.getIndexType());
  if (atom.kind == Atom::Kind::Loaded) {
    Value value = emit(atom.node, context);
    enter(context);
    Value index = arith::IndexCastOp::create(builder, loc, type, toVector(value, lanes.width));
    return clamp(builder, loc, index, splat(type, builder.getIndexAttr(0)),
                 splat(type, builder.getIndexAttr(atom.size - 1)));
  }
  Value argument = emitIndexVector(atom.argument, context, lanes);
  enter(context);
  Value divisor = splat(type, builder.getIndexAttr(atom.divisor));
  if (atom.kind == Atom::Kind::Quotient)
    return arith::DivUIOp::create(builder, loc, argument, divisor);
  return arith::RemUIOp::create(builder, loc, argument, divisor);
}

//===----------------------------------------------------------------------===//
// Values and memory
//===----------------------------------------------------------------------===//

Value BodyEmitter::splat(Type type, Attribute value) {
  if (auto vector = dyn_cast<VectorType>(type))
    value = DenseElementsAttr::get(vector, value);
  return arith::ConstantOp::create(builder, loc, cast<TypedAttr>(value));
}

Value BodyEmitter::toVector(Value value, int64_t width) {
  if (isa<VectorType>(value.getType()))
    return value;
  return vector::BroadcastOp::create(builder, loc, VectorType::get(width, value.getType()), value);
}

Value BodyEmitter::fromMemory(Value value, Type element) {
  if (!element.isInteger(1))
    return value;
  Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(value.getType()));
  return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne, value, zero);
}

Value BodyEmitter::toMemory(Value value) {
  if (!getElementTypeOrSelf(value.getType()).isInteger(1))
    return value;
  Type type = builder.getI8Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(type);
  return arith::ExtUIOp::create(builder, loc, type, value);
}

Value BodyEmitter::load(Value memory, Value index, int64_t width, Type element) {
  if (width == 1)
    return fromMemory(memref::LoadOp::create(builder, loc, memory, index), element);
  auto type = VectorType::get(width, memoryType(element));
  return fromMemory(vector::LoadOp::create(builder, loc, type, memory, index).getResult(), element);
}

void BodyEmitter::store(Value value, Value memory, Value index) {
  value = toMemory(value);
  if (isa<VectorType>(value.getType()))
    vector::StoreOp::create(builder, loc, value, memory, index);
  else
    memref::StoreOp::create(builder, loc, value, memory, index);
}
