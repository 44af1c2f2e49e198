//===- DataLengths.cpp - lengths that depend on data ----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/DataLengths.h"

#include "compiler/onnx/ControlFlow.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

void DataLengths::declare(Value value, int64_t dim, Value count, std::string source) {
  DataExtent extent = {{{dim, count}}, std::move(source), std::nullopt};
  declared.insert(value);
  own = value.getParentBlock();
  if (const DataExtent *before = lookup(value); !before || !before->lostAt)
    known[value] = std::move(extent);
}

const DataExtent *DataLengths::lookup(Value value) const {
  for (const auto *facts : {&inner, &known})
    if (auto place = facts->find(value); place != facts->end())
      return &place->second;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Where a dimension of an operand goes
//===----------------------------------------------------------------------===//

/// The result's dimension that corresponds, element by element, to dimension `dim` of operand
/// `index`; nothing if there is none, for example if it is reduced or cut.
using DimMap = std::optional<int64_t>;

static DimMap mapReshape(loom::ReshapeOp op, int64_t dim) {
  ArrayRef<int64_t> from = getShape(op.getInput()), to = getShape(op.getOutput());
  if (from == to)
    return dim;
  int64_t before = loom::countElements(from.take_front(dim)), product = 1;
  DimMap found;
  for (auto [i, size] : llvm::enumerate(to)) {
    if (product == before && size == from[dim]) {
      // Several dimensions of size 1 are ambiguous.
      if (found)
        return std::nullopt;
      found = i;
    }
    product *= size;
  }
  return found;
}

static DimMap mapSlice(loom::SliceOp op, int64_t dim) {
  bool isWhole = op.getStarts()[dim] == 0 && op.getStrides()[dim] == 1 &&
                 op.getLimits()[dim] == getShape(op.getInput())[dim];
  return isWhole ? DimMap(dim) : std::nullopt;
}

static DimMap mapGather(loom::GatherOp op, unsigned index, int64_t dim) {
  int64_t axis = op.getDim(), rank = getTensorType(op.getIndices()).getRank();
  if (index == 1)
    return axis + dim;
  return dim == axis ? DimMap() : dim < axis ? dim : dim + rank - 1;
}

static DimMap mapReduce(loom::ReduceOp op, int64_t dim) {
  if (llvm::is_contained(op.getDims(), dim))
    return std::nullopt;
  return dim - llvm::count_if(op.getDims(), [&](int64_t reduced) { return reduced < dim; });
}

static DimMap mapDot(loom::DotGeneralOp op, unsigned index, int64_t dim) {
  ArrayRef<int64_t> batch = index == 0 ? op.getLhsBatch() : op.getRhsBatch();
  SmallVector<int64_t> free = index == 0 ? op.getLhsFreeDims() : op.getRhsFreeDims();
  if (const auto *place = llvm::find(batch, dim); place != batch.end())
    return place - batch.begin();
  auto *place = llvm::find(free, dim);
  if (place == free.end())
    return std::nullopt;
  int64_t before = batch.size() + (index == 0 ? 0 : op.getLhsFreeDims().size());
  return before + (place - free.begin());
}

static DimMap mapDim(Operation *op, unsigned index, int64_t dim) {
  if (isa<loom::KernelBodyInterface>(op))
    return dim;
  return llvm::TypeSwitch<Operation *, DimMap>(op)
      .Case([&](loom::BroadcastOp broadcast) {
        int64_t to = broadcast.getDims()[dim];
        bool isKept = getShape(broadcast.getInput())[dim] == getShape(broadcast.getOutput())[to];
        return isKept ? DimMap(to) : std::nullopt;
      })
      .Case([&](loom::TransposeOp transpose) {
        return llvm::find(transpose.getPermutation(), dim) - transpose.getPermutation().begin();
      })
      .Case([&](loom::ConcatenateOp concatenate) {
        return static_cast<int64_t>(concatenate.getDim()) == dim ? DimMap() : dim;
      })
      .Case([&](loom::GatherElementsOp gather) {
        return index == 0 && static_cast<int64_t>(gather.getDim()) == dim ? DimMap() : dim;
      })
      .Case([&](loom::ReshapeOp reshape) { return mapReshape(reshape, dim); })
      .Case([&](loom::SliceOp slice) { return mapSlice(slice, dim); })
      .Case([&](loom::GatherOp gather) { return mapGather(gather, index, dim); })
      .Case([&](loom::ReduceOp reduce) { return mapReduce(reduce, dim); })
      .Case([&](loom::DotGeneralOp dot) { return mapDot(dot, index, dim); })
      .Default([](Operation *) { return DimMap(); });
}

//===----------------------------------------------------------------------===//
// Propagation
//===----------------------------------------------------------------------===//

/// Adds to `result` what the extent of operand `index` implies for the result's shape.
static void join(Operation *op, unsigned index, const DataExtent &operand, DataExtent &result) {
  if (result.source.empty())
    result.source = operand.source;
  if (operand.lostAt)
    result.lostAt = operand.lostAt;
  for (const DataExtent::Dim &from : operand.dims) {
    if (result.lostAt)
      return;
    DimMap to = op->getNumResults() == 1 ? mapDim(op, index, from.dim) : DimMap();
    auto *same = llvm::find_if(
        result.dims, [&](const DataExtent::Dim &other) { return to && other.dim == *to; });
    // Lengths that are computed in two ways may differ.
    if (!to || (same != result.dims.end() && same->count != from.count))
      result.lostAt = op->getLoc();
    else if (same == result.dims.end())
      result.dims.push_back({*to, from.count});
  }
}

llvm::SmallDenseSet<int64_t> onnx_import::getVaryingDims(Value value) {
  llvm::SmallDenseSet<int64_t> dims;
  if (auto convert = value.getDefiningOp<loom::ConvertOp>())
    return getVaryingDims(convert.getInput());
  if (auto broadcast = value.getDefiningOp<loom::BroadcastOp>()) {
    for (int64_t dim : getVaryingDims(broadcast.getInput()))
      dims.insert(broadcast.getDims()[dim]);
    return dims;
  }
  if (auto iota = value.getDefiningOp<loom::IotaOp>()) {
    dims.insert(iota.getDim());
    return dims;
  }
  if (auto constant = value.getDefiningOp<loom::ConstantOp>();
      constant && isa<SplatElementsAttr>(constant.getValue()))
    return dims;
  for (auto [dim, size] : llvm::enumerate(getShape(value)))
    if (size > 1)
      dims.insert(dim);
  return dims;
}

/// Whether an operand without padding varies along the padded dimension: at the true length ONNX
/// would reject it, or repeat the other operand's only element.
static bool meetsPadding(Operation *op, unsigned index, const DataExtent *operand, int64_t dim) {
  if (isa<loom::GatherElementsOp>(op))
    return false;
  auto isCounted = [&](int64_t own) {
    return operand && llvm::any_of(operand->dims,
                                   [&](const DataExtent::Dim &other) { return other.dim == own; });
  };
  return llvm::any_of(getVaryingDims(op->getOperand(index)), [&](int64_t own) {
    return !isCounted(own) && mapDim(op, index, own) == dim;
  });
}

void DataLengths::propagate(Operation &op, llvm::DenseMap<Value, DataExtent> &facts) {
  DataExtent extent;
  for (auto [i, operand] : llvm::enumerate(op.getOperands()))
    if (const DataExtent *of = lookup(operand))
      join(&op, i, *of, extent);
  if (extent.source.empty())
    return;
  for (unsigned i = 0; i < op.getNumOperands() && !extent.lostAt; ++i)
    for (const DataExtent::Dim &dim : extent.dims)
      if (meetsPadding(&op, i, lookup(op.getOperand(i)), dim.dim))
        extent.lostAt = op.getLoc();
  for (Value result : op.getResults())
    if (extent.lostAt || !declared.contains(result))
      facts[result] = extent;
}

void DataLengths::propagate(Block &block) {
  if (declared.empty() || block.empty())
    return;
  inner.clear();
  bool isOwn = &block == own;
  auto first = isOwn && last ? std::next(last->getIterator()) : block.begin();
  for (Operation &op : llvm::make_range(first, block.end()))
    propagate(op, isOwn ? known : inner);
  if (isOwn)
    last = &block.back();
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

LogicalResult onnx_import::refuseLost(const DataExtent &extent) {
  return emitError(*extent.lostAt)
         << "'" << loom::getNodeName(*extent.lostAt) << "' reads a tensor whose length "
         << extent.source << " computes at run time, and needs to know it; elementwise operators, "
         << "Gather, GatherND, Transpose, Concat and the like along other dimensions do not: end "
         << "the model before it and do the rest outside";
}

FailureOr<SmallVector<DataExtent::Dim, 1>> onnx_import::getCountedDims(Node &node, Value operand) {
  DataLengths &lengths = node.getImporter().getLengths();
  if (lengths.empty())
    return SmallVector<DataExtent::Dim, 1>();
  lengths.propagate(*node.getBuilder().getInsertionBlock());
  const DataExtent *extent = lengths.lookup(operand);
  if (extent && extent->lostAt)
    return refuseLost(*extent);
  return extent ? extent->dims : SmallVector<DataExtent::Dim, 1>();
}

LogicalResult onnx_import::checkFixedLength(Node &node, Value operand, int64_t dim) {
  auto counted = getCountedDims(node, operand);
  if (failed(counted))
    return failure();
  if (llvm::none_of(*counted, [&](const DataExtent::Dim &other) { return other.dim == dim; }))
    return success();
  return node.error() << "splits dimension " << dim << ", whose length "
                      << node.getImporter().getLengths().lookup(operand)->source
                      << " computes at run time (at most " << getShape(operand)[dim]
                      << "), which is not supported";
}

LogicalResult onnx_import::checkLengthsKept(Node &node, ArrayRef<Value> results) {
  DataLengths &lengths = node.getImporter().getLengths();
  if (lengths.empty())
    return success();
  lengths.propagate(*node.getBuilder().getInsertionBlock());
  auto isTensor = [](Value value) { return value && isa<RankedTensorType>(value.getType()); };
  for (unsigned i = 0; i < node.getNumOperands(); ++i) {
    Value operand = node.hasOperand(i) ? node.operand(i) : Value();
    const DataExtent *extent = isTensor(operand) ? lengths.lookup(operand) : nullptr;
    if (extent && llvm::any_of(results, [&](Value result) {
          return isTensor(result) && !lengths.lookup(result);
        }))
      return node.error() << "takes its result's shape from a tensor whose length "
                          << extent->source << " computes at run time, which is not supported";
  }
  return success();
}

LogicalResult onnx_import::setCounted(Node &node, unsigned index, Value value, int64_t dim,
                                      Value count) {
  if (!value || !count)
    return failure();
  if (std::optional<int64_t> known = getKnown(count))
    return node.setResult(index, node.slice(value, dim, 0, *known));
  if (node.getBuilder().getInsertionBlock()->getParentOp()->hasAttr(loom::kBody))
    return node.error() << "the length of its result depends on data, which is not supported in a "
                        << "branch or loop; move it out of the subgraph";
  node.getImporter().getLengths().declare(value, dim, count, node.getName());
  return node.setResult(index, value);
}
