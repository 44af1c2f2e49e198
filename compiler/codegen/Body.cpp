//===- Body.cpp - a kernel body as expressions ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/codegen/Body.h"

#include "dialects/loom/Float8.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::codegen;

namespace {

SmallVector<int64_t> rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// Cycles of an operation on a vector of 16 elements.
double operationCost(Operation *op) {
  auto body = dyn_cast<loom::KernelBodyInterface>(op);
  double wide =
      getElementTypeOrSelf(op->getResult(0).getType()).getIntOrFloatBitWidth() > 32 ? 2 : 1;
  return body ? wide * static_cast<double>(body.getScalarCycles()) : wide;
}

} // namespace

//===----------------------------------------------------------------------===//
// Iteration space
//===----------------------------------------------------------------------===//

Body::Dim Body::addDim(const DimSpec &dim, bool outer, unsigned number) {
  Dim result;
  result.index = Linear(dim.begin);
  int64_t stride = dim.size;
  for (auto [i, factor] : llvm::enumerate(dim.factors)) {
    stride = factor == 0 ? 0 : stride / factor;
    if (factor == 1)
      continue;
    AtomId atom = atoms.addLoop(factor);
    places[atom] = {outer, number, static_cast<unsigned>(i)};
    (outer ? outerAtoms : innerAtoms).push_back(atom);
    result.atoms.push_back(atom);
    result.index += Linear::atom(atom, stride);
  }
  result.size = dim.size;
  return result;
}

Body::Body(plan::KernelOp kernel, ArrayRef<unsigned> outputs, NestSpec &spec) : spec(spec) {
  Block &block = kernel.getBody().front();
  auto yield = cast<loom::YieldOp>(block.getTerminator());
  auto alignments = kernel->getAttrOfType<DenseI64ArrayAttr>(kAlignments);
  auto addBuffer = [&](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    buffers.push_back({loom::getKernelType(tensor.getElementType()),
                       tensor.getNumElements(),
                       {},
                       alignments ? alignments[buffers.size()] : loom::kViewAlignment});
  };
  llvm::for_each(block.getArgumentTypes(), addBuffer);
  llvm::for_each(yield.getOperandTypes(), addBuffer);

  auto type = cast<RankedTensorType>(yield.getOperand(outputs[0]).getType());
  SmallVector<Linear> index;
  for (auto [i, dim] : llvm::enumerate(spec.outer)) {
    Dim added = addDim(dim, /*outer=*/true, i);
    index.push_back(added.index);
    if (dim.begin != 0 || dim.size != type.getDimSize(i))
      added.size = 0;
    dims.push_back(std::move(added));
  }
  for (unsigned output : outputs) {
    Linear place;
    for (auto [i, stride] : llvm::enumerate(rowMajorStrides(type.getShape())))
      place += index[i] * stride;
    NodeId value = pull(yield.getOperand(output), index);
    stores.push_back({block.getNumArguments() + output, place, value});
  }
}

SmallVector<NestSpec> Body::improve(const NestSpec &spec) const {
  for (auto [atom, factor] : atoms.getSuggestedSplits()) {
    auto place = places.find(atom);
    if (place == places.end())
      continue;
    NestSpec finer = spec;
    auto &list = place->second.outer ? finer.outer : finer.inner;
    auto &factors = list[place->second.dim].factors;
    auto *at = factors.begin() + place->second.factor;
    *at /= factor;
    factors.insert(at + 1, factor);
    return {finer};
  }
  for (auto [atom, point] : cuts) {
    auto place = places.find(atom);
    // Only the major factor can be cut without leaving a hole.
    if (place == places.end() || !place->second.outer || place->second.factor != 0)
      continue;
    NestSpec low = spec, high = spec;
    DimSpec &below = low.outer[place->second.dim], &above = high.outer[place->second.dim];
    int64_t stride = below.size / below.factors[0];
    above.begin += point * stride;
    above.size -= point * stride;
    above.factors[0] -= point;
    below.size = point * stride;
    below.factors[0] = point;
    // The next build finds the reductions' loops again: a reduction cannot run over part of a
    // dimension.
    low.inner.clear();
    high.inner.clear();
    return {low, high};
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

NodeId Body::intern(Node node) {
  node.element = loom::getKernelType(node.element);
  if (auto integer = dyn_cast_if_present<IntegerAttr>(node.value))
    node.value = IntegerAttr::get(node.element, integer.getValue());
  if (auto floating = dyn_cast_if_present<FloatAttr>(node.value))
    if (node.element.isInteger())
      node.value = IntegerAttr::get(node.element, floating.getValue().bitcastToAPInt());
  std::vector<int64_t> key{static_cast<int64_t>(node.kind), node.buffer,
                           reinterpret_cast<int64_t>(node.element.getAsOpaquePointer()),
                           reinterpret_cast<int64_t>(node.value.getAsOpaquePointer())};
  // Computing nodes are identified by their operation, loads by their address.
  if (node.kind == Node::Kind::Compute || node.kind == Node::Kind::Reduce)
    key.push_back(reinterpret_cast<int64_t>(node.op));
  node.index.encode(key);
  llvm::append_range(key, node.operands);
  llvm::append_range(key, node.bound);
  llvm::append_range(key, node.limits);
  auto [place, isNew] = interned.try_emplace(key, nodes.size());
  if (!isNew)
    return place->second;

  node.free = atoms.freeAtoms(node.index);
  for (NodeId operand : node.operands) {
    unite(node.free, nodes[operand].free);
    node.cost += nodes[operand].cost;
  }
  subtract(node.free, node.bound);
  for (AtomId atom : node.bound)
    node.cost *= static_cast<double>(atoms[atom].size);
  if (node.kind == Node::Kind::Compute)
    node.own = operationCost(node.op);
  else if (node.kind == Node::Kind::Load)
    node.own = 1;
  node.cost += node.own;
  node.cost = std::min(node.cost, 1e12);
  nodes.push_back(std::move(node));
  return nodes.size() - 1;
}

NodeId Body::load(unsigned buffer, RankedTensorType type, ArrayRef<Linear> index) {
  Node node;
  node.kind = Node::Kind::Load;
  node.element = type.getElementType();
  node.buffer = buffer;
  for (auto [i, stride] : llvm::enumerate(rowMajorStrides(type.getShape())))
    node.index += index[i] * stride;
  return intern(std::move(node));
}

NodeId Body::pull(Value value, ArrayRef<Linear> index) {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return load(argument.getArgNumber(), cast<RankedTensorType>(value.getType()), index);
  Operation *op = value.getDefiningOp();
  std::vector<int64_t> key{reinterpret_cast<int64_t>(op)};
  for (const Linear &place : index)
    place.encode(key);
  if (auto known = pulled.find(key); known != pulled.end())
    return known->second;
  NodeId node = pullOp(op, index);
  pulled.emplace(std::move(key), node);
  return node;
}

NodeId Body::pullOp(Operation *op, ArrayRef<Linear> index) {
  if (auto concatenate = dyn_cast<loom::ConcatenateOp>(op))
    return pullConcatenate(concatenate, index);
  if (auto gather = dyn_cast<loom::GatherOp>(op))
    return pullGather(gather, index);
  if (auto gather = dyn_cast<loom::GatherElementsOp>(op))
    return pullGatherElements(gather, index);
  if (auto reduce = dyn_cast<loom::ReduceOp>(op))
    return pullReduce(reduce, index);
  if (auto pad = dyn_cast<loom::PadOp>(op))
    return pullPad(pad, SmallVector<Linear>(index), 0);
  if (auto constant = dyn_cast<loom::ConstantOp>(op))
    return pullConstant(constant, index);
  if (auto iota = dyn_cast<loom::IotaOp>(op)) {
    Node node;
    node.kind = Node::Kind::Iota;
    node.element = iota.getOutput().getType().getElementType();
    node.op = op;
    node.index = index[iota.getDim()];
    return intern(std::move(node));
  }
  if (auto broadcast = dyn_cast<loom::BroadcastOp>(op)) {
    SmallVector<Linear> from;
    for (auto [size, dim] :
         llvm::zip_equal(broadcast.getInput().getType().getShape(), broadcast.getDims()))
      from.push_back(size == 1 ? Linear() : index[dim]);
    return pull(broadcast.getInput(), from);
  }
  if (auto transpose = dyn_cast<loom::TransposeOp>(op)) {
    SmallVector<Linear> from(index.size());
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      from[dim] = index[i];
    return pull(transpose.getInput(), from);
  }
  if (auto reverse = dyn_cast<loom::ReverseOp>(op)) {
    SmallVector<Linear> from(index);
    for (int64_t dim : reverse.getDims())
      from[dim] = from[dim] * -1 + Linear(reverse.getOutput().getType().getDimSize(dim) - 1);
    return pull(reverse.getInput(), from);
  }
  if (auto slice = dyn_cast<loom::SliceOp>(op)) {
    SmallVector<Linear> from;
    for (auto [place, start, stride] :
         llvm::zip_equal(index, slice.getStarts(), slice.getStrides()))
      from.push_back(place * stride + Linear(start));
    return pull(slice.getInput(), from);
  }
  if (auto window = dyn_cast<loom::WindowOp>(op)) {
    size_t rank = window.getInput().getType().getRank();
    SmallVector<Linear> from(index.take_front(rank));
    for (auto [dim, place, stride, dilation] : llvm::zip_equal(
             window.getDims(), index.drop_front(rank), window.getStrides(), window.getDilations()))
      from[dim] = from[dim] * stride + place * dilation;
    return pull(window.getInput(), from);
  }
  if (auto reshape = dyn_cast<loom::ReshapeOp>(op))
    return pull(reshape.getInput(), reshapeIndex(reshape.getInput().getType().getShape(),
                                                 reshape.getOutput().getType().getShape(), index));

  Node node;
  node.kind = Node::Kind::Compute;
  node.element = getElementTypeOrSelf(op->getResult(0).getType());
  node.op = op;
  for (Value operand : op->getOperands())
    node.operands.push_back(pull(operand, index));
  return intern(std::move(node));
}

NodeId Body::pullConstant(loom::ConstantOp op, ArrayRef<Linear> index) {
  auto value = cast<DenseElementsAttr>(op.getValue());
  if (value.isSplat()) {
    Node node;
    node.kind = Node::Kind::Splat;
    node.element = value.getElementType();
    node.value = value.getSplatValue<Attribute>();
    return intern(std::move(node));
  }
  auto [place, isNew] = constants.try_emplace(op, buffers.size());
  if (isNew)
    buffers.push_back({loom::getKernelType(value.getElementType()), value.getNumElements(), value});
  return load(place->second, cast<RankedTensorType>(value.getType()), index);
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

/// Maps index `index` of shape `to` to shape `from`, per smallest group of dimensions with equal
/// products, so that unchanged dimensions cost nothing.
SmallVector<Linear> Body::reshapeIndex(ArrayRef<int64_t> from, ArrayRef<int64_t> to,
                                       ArrayRef<Linear> index) {
  SmallVector<Linear> result(from.size());
  size_t i = from.size(), j = to.size();
  while (i > 0 || j > 0) {
    int64_t sourceProduct = 1, targetProduct = 1;
    size_t sourceEnd = i, targetEnd = j;
    do {
      // The smaller side takes its next dimension; unit dimensions at the front go with the last
      // group.
      if (j == 0 || (i > 0 && sourceProduct < targetProduct))
        sourceProduct *= from[--i];
      else if (i == 0 || sourceProduct > targetProduct)
        targetProduct *= to[--j];
      else {
        sourceProduct *= from[--i];
        targetProduct *= to[--j];
      }
    } while (sourceProduct != targetProduct);

    Linear flat;
    int64_t stride = 1;
    for (size_t k = targetEnd; k-- > j; stride *= to[k])
      flat += index[k] * stride;
    for (size_t k = sourceEnd; k-- > i;) {
      if (k == i) {
        result[k] = from[k] == 1 ? Linear() : flat;
        break;
      }
      if (from[k] == 1)
        continue;
      result[k] = atoms.remainder(flat, from[k]);
      flat = atoms.quotient(flat, from[k]);
    }
  }
  return result;
}

/// What indices find in a dimension without elements, of which none is the nearest.
NodeId Body::zero(Type element) {
  Node node;
  node.kind = Node::Kind::Splat;
  node.element = element;
  node.value = Builder(element.getContext()).getZeroAttr(element);
  return intern(std::move(node));
}

NodeId Body::pullGather(loom::GatherOp op, ArrayRef<Linear> index) {
  size_t dim = op.getDim(), rank = op.getIndices().getType().getRank();
  if (op.getInput().getType().getDimSize(dim) == 0)
    return zero(op.getInput().getType().getElementType());
  NodeId place = pull(op.getIndices(), index.slice(dim, rank));
  SmallVector<Linear> from(index.take_front(dim));
  int64_t size = op.getInput().getType().getDimSize(dim);
  from.push_back(Linear::atom(atoms.addLoaded(place, size, nodes[place].free)));
  llvm::append_range(from, index.drop_front(dim + rank));
  return pull(op.getInput(), from);
}

NodeId Body::pullGatherElements(loom::GatherElementsOp op, ArrayRef<Linear> index) {
  if (op.getInput().getType().getDimSize(op.getDim()) == 0)
    return zero(op.getInput().getType().getElementType());
  NodeId place = pull(op.getIndices(), index);
  SmallVector<Linear> from(index);
  int64_t size = op.getInput().getType().getDimSize(op.getDim());
  from[op.getDim()] = Linear::atom(atoms.addLoaded(place, size, nodes[place].free));
  return pull(op.getInput(), from);
}

/// Suggests cutting a loop at the point where `index` reaches `limit`: each part is then on one
/// side of it.
void Body::suggestCut(const Linear &index, int64_t limit) {
  for (auto [atom, coefficient] : index.terms) {
    if (atoms[atom].kind != Atom::Kind::Loop || coefficient <= 0)
      continue;
    auto [low, high] = atoms.range(index + Linear::atom(atom, -coefficient));
    int64_t point = llvm::divideCeilSigned(limit - low, coefficient);
    if (point > 0 && point < atoms[atom].size && coefficient * (point - 1) + high < limit)
      cuts.emplace_back(atom, point);
  }
}

NodeId Body::pullConcatenate(loom::ConcatenateOp op, ArrayRef<Linear> index) {
  int64_t dim = op.getDim(), begin = 0;
  auto [low, high] = atoms.range(index[dim]);
  Node node;
  node.kind = Node::Kind::Choose;
  node.element = op.getOutput().getType().getElementType();
  node.op = op;
  node.index = index[dim];
  for (Value input : op.getInputs()) {
    int64_t end = begin + cast<RankedTensorType>(input.getType()).getDimSize(dim);
    if (low < end && high >= begin) {
      SmallVector<Linear> from(index);
      from[dim] += Linear(-begin);
      node.operands.push_back(pull(input, from));
      node.limits.push_back(end);
      if (high >= end)
        suggestCut(index[dim], end);
    }
    begin = end;
  }
  return node.operands.size() == 1 ? node.operands[0] : intern(std::move(node));
}

/// Chooses between the fill value and the input along dimension `dim` and all later ones. `index`
/// holds input indices before `dim` and output indices from `dim` on.
NodeId Body::pullPad(loom::PadOp op, SmallVector<Linear> index, size_t dim) {
  if (dim == index.size())
    return pull(op.getInput(), index);
  Node fill;
  fill.kind = Node::Kind::Splat;
  fill.element = op.getOutput().getType().getElementType();
  fill.value = op.getValue();

  Linear place = index[dim];
  int64_t step = op.getInterior()[dim] + 1, begin = op.getLow()[dim];
  int64_t end = op.getOutput().getType().getDimSize(dim) - op.getHigh()[dim];
  auto [low, high] = atoms.range(place);
  Node node;
  node.kind = Node::Kind::Choose;
  node.element = fill.element;
  node.op = op;
  node.index = place;
  auto addPart = [&](NodeId part, int64_t limit) {
    node.operands.push_back(part);
    node.limits.push_back(limit);
    if (high >= limit)
      suggestCut(place, limit);
  };
  if (low < begin)
    addPart(intern(fill), begin);
  if (low < end && high >= begin) {
    Linear inside = place + Linear(-begin);
    index[dim] = atoms.quotient(inside, step);
    NodeId element = pullPad(op, index, dim + 1);
    if (step > 1) {
      // Only every step-th place holds an input element; the others are fill.
      Node every;
      every.kind = Node::Kind::Choose;
      every.element = fill.element;
      every.op = op;
      every.index = atoms.remainder(inside, step);
      every.operands = {element, intern(fill)};
      every.limits = {1, step};
      element = every.index == Linear() ? element : intern(std::move(every));
    }
    addPart(element, end);
  }
  if (high >= end)
    addPart(intern(fill), op.getOutput().getType().getDimSize(dim));
  return node.operands.size() == 1 ? node.operands[0] : intern(std::move(node));
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

NodeId Body::pullReduce(loom::ReduceOp op, ArrayRef<Linear> index) {
  auto type = cast<RankedTensorType>(op.getInput().getType());
  AtomSet taken;
  for (const Linear &place : index)
    unite(taken, atoms.freeAtoms(place));

  // Reuse an output loop of the same size where possible, so that the passes over a row share their
  // expressions.
  auto findDim = [&](int64_t size) -> Dim {
    for (const Dim &dim : llvm::reverse(dims))
      if (dim.size == size && !intersects(dim.atoms, taken))
        return dim;
    if (usedInner == spec.inner.size())
      spec.inner.push_back(DimSpec::whole(size));
    dims.push_back(addDim(spec.inner[usedInner], /*outer=*/false, usedInner));
    ++usedInner;
    return dims.back();
  };
  Node node;
  node.kind = Node::Kind::Reduce;
  node.element = type.getElementType();
  node.op = op;
  node.reduction = op.getKind();
  node.isUnsigned = type.getElementType().isUnsignedInteger();
  node.ignoresNan = op->hasAttr(kIgnoresNan);
  SmallVector<Linear> from;
  size_t next = 0;
  for (int64_t i = 0; i < type.getRank(); ++i) {
    if (!llvm::is_contained(op.getDims(), i)) {
      from.push_back(index[next++]);
      continue;
    }
    if (type.getDimSize(i) == 1) {
      from.push_back({});
      continue;
    }
    Dim dim = findDim(type.getDimSize(i));
    unite(taken, dim.atoms);
    unite(node.bound, dim.atoms);
    from.push_back(dim.index);
  }
  NodeId operand = pull(op.getInput(), from);
  if (node.bound.empty())
    return operand;
  node.operands.push_back(operand);
  return intern(std::move(node));
}
