//===- BodyEmitter.cpp - expressions to arith, vector and scf -------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/BodyEmitter.h"

#include "dialects/loom/Float8.h"

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
  return element.isInteger(1) ? IntegerType::get(element.getContext(), 8)
                              : loom::getKernelType(element);
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

/// The context over whose vector lanes a value with these dependencies varies; null for a scalar.
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
  return arith::ConstantOp::create(builder, loc,
                                   cast<TypedAttr>(builder.getIntegerAttr(indexType, value)));
}

Value BodyEmitter::takeMinor(Value &item, int64_t extent, bool isMajor) {
  if (isMajor)
    return item;
  Value size = constantIndex(extent);
  Value minor = arith::RemUIOp::create(builder, loc, item, size);
  item = arith::DivUIOp::create(builder, loc, item, size);
  return minor;
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
  // A vector must not cross parts of a concatenation: loops that select a part stay scalar.
  for (const Node &node : body.nodes)
    if (node.kind == Node::Kind::Choose)
      for (AtomId atom : body.atoms.freeAtoms(node.index))
        if (loop.contains(atom))
          return 1;
  return widest;
}

std::vector<std::unique_ptr<Context>> &BodyEmitter::getInLine(Context &at, const Loop &loop,
                                                              int64_t width) {
  std::vector<std::unique_ptr<Context>> &contexts = at.inLine[&loop];
  if (!contexts.empty())
    return contexts;
  enter(at);
  auto flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
  Value own = group.lane;
  if (width > 1)
    own = arith::MulIOp::create(builder, loc, own, constantIndex(width), flags);
  for (int64_t begin = 0; begin < loop.extent; begin += width * group.count) {
    auto context = std::make_unique<Context>();
    context->parent = context->next = &at;
    context->block = at.block;
    context->width = width;
    context->isSpread = true;
    Value variable = own;
    if (begin > 0)
      variable = arith::AddIOp::create(builder, loc, own, constantIndex(begin), flags);
    if (begin + width * group.count > loop.extent) {
      context->isInside = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, variable,
                                                constantIndex(loop.extent));
      variable = arith::MinUIOp::create(builder, loc, variable, constantIndex(loop.extent - width));
    }
    context->loops.emplace_back(&loop, variable);
    contexts.push_back(std::move(context));
  }
  return contexts;
}

//===----------------------------------------------------------------------===//
// Passes over a row
//===----------------------------------------------------------------------===//

/// Chooses the values that one pass over a row stores for later passes: costly ones that are needed
/// again.
void BodyEmitter::planScratch(Context &context, const Loop &loop,
                              ArrayRef<SmallVector<NodeId>> passes) {
  constexpr double kCheap = 4; // cycles of a load, a store and their addressing
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

/// Marks the nodes that a Choose node reads, directly or not: they may be safe only inside its
/// branch.
static std::vector<bool> findGuarded(const Body &body) {
  std::vector<bool> guarded(body.nodes.size(), false);
  // Users come after operands, so one backward walk reaches everything.
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
    // A value that needs variables of inner loops does not belong here.
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
  // Compute all values first: a store may overwrite memory that another store's value is read from.
  auto values = llvm::map_to_vector(
      body.stores, [&](const Store &target) { return emit(target.value, context); });
  for (auto [target, value] : llvm::zip_equal(body.stores, values)) {
    Value index = emitPlace(target.index, context);
    AtomSet free = body.atoms.freeAtoms(target.index);
    const Context *lanes = vectorContext(free, context);
    enter(context);
    store(lanes ? toVector(value, lanes->width) : value, memories[target.buffer], index);
  }
}

void BodyEmitter::emitIf(Context &context, Value condition,
                         llvm::function_ref<void(Context &)> build) {
  if (!condition)
    return build(context);
  enter(context);
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/false);
  Operation *outerAnchor = std::exchange(context.getAnchor(), branch);
  Context inside;
  inside.parent = &context;
  inside.block = branch.thenBlock();
  build(inside);
  context.getAnchor() = outerAnchor;
  enter(context);
}

void BodyEmitter::emitStoreLoop(Context &at, const Loop &loop, int pass, int64_t width,
                                Value isInside) {
  if (llvm::is_contained(group.inLine, &loop)) {
    for (std::unique_ptr<Context> &context : getInLine(at, loop, width)) {
      enter(at);
      Value condition = context->isInside;
      if (condition && isInside)
        condition = arith::AndIOp::create(builder, loc, condition, isInside);
      else if (isInside)
        condition = isInside;
      emitIf(*context, condition, [&](Context &inside) { emitStores(inside); });
    }
    return;
  }
  emitIf(at, isInside, [&](Context &outer) {
    for (Segment segment : cutInSegments(loop.extent, width)) {
      segment.isSpread = group.count > 1;
      emitLoop(outer, loop, segment, pass, {}, [&](Context &inside, ValueRange) {
        emitStores(inside);
        return SmallVector<Value>();
      });
    }
  });
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
    Value index = emitPlace(node.index, at);
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
    Value index = emitPlace(node.index, at);
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
  Value base = arith::ConstantIndexOp::create(builder, loc, 0);
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
  Type integer = isInteger               ? node.element
                 : style.hasShortIndices ? indexType
                                         : builder.getI64Type();
  Value number = index;
  if (!style.hasShortIndices)
    number = arith::IndexCastOp::create(builder, loc, shaped(integer), index);
  else if (integer.getIntOrFloatBitWidth() > 32)
    number = arith::ExtUIOp::create(builder, loc, shaped(integer), index);
  else if (integer.getIntOrFloatBitWidth() < 32)
    number = arith::TruncIOp::create(builder, loc, shaped(integer), index);
  if (isInteger)
    return number;
  bool isNarrow = node.element.getIntOrFloatBitWidth() < 32;
  Type wide = isNarrow ? builder.getF32Type() : node.element;
  number = arith::SIToFPOp::create(builder, loc, shaped(wide), number);
  return isNarrow ? arith::TruncFOp::create(builder, loc, shaped(node.element), number) : number;
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

/// Casts an index to the type that memory operations need.
static Value toPlace(OpBuilder &builder, Location loc, Value index) {
  if (index.getType().isIndex())
    return index;
  return arith::IndexCastUIOp::create(builder, loc, builder.getIndexType(), index);
}

Value BodyEmitter::load(Value memory, Value index, int64_t width, Type element) {
  index = toPlace(builder, loc, index);
  if (width == 1)
    return fromMemory(memref::LoadOp::create(builder, loc, memory, index), element);
  auto type = VectorType::get(width, memoryType(element));
  return fromMemory(vector::LoadOp::create(builder, loc, type, memory, index).getResult(), element);
}

void BodyEmitter::store(Value value, Value memory, Value index) {
  value = toMemory(value);
  index = toPlace(builder, loc, index);
  if (isa<VectorType>(value.getType()))
    vector::StoreOp::create(builder, loc, value, memory, index);
  else
    memref::StoreOp::create(builder, loc, value, memory, index);
}
