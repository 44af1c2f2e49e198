//===- DistVerifiers.cpp - verifiers --------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace gridloom::dist;

LogicalResult MeshOp::verify() {
  llvm::StringSet<> seen;
  int64_t devices = 1;
  for (auto axis : getAxes().getAsRange<AxisAttr>()) {
    if (axis.getName().empty())
      return emitOpError("has an axis without a name");
    if (axis.getSize() < 1)
      return emitOpError("axis '")
             << axis.getName() << "' has size " << axis.getSize() << "; sizes are at least 1";
    if (!seen.insert(axis.getName()).second)
      return emitOpError("axis '") << axis.getName() << "' is named twice";
    if (axis.getName() != kMicroAxis)
      devices *= std::min(axis.getSize(), kMaxDevices + 1);
    if (devices > kMaxDevices)
      return emitOpError("has more than ") << kMaxDevices << " devices";
  }
  return success();
}

/// The group's size, after checking that the axes are the mesh's and not temporal. Without a mesh
/// in the module, 0: shapes cannot be checked.
static FailureOr<int64_t> verifyAxes(Operation *op, ArrayAttr axes) {
  llvm::StringSet<> seen;
  for (auto axis : axes.getAsRange<StringAttr>()) {
    if (!seen.insert(axis.getValue()).second)
      return op->emitOpError("axis ") << axis << " is named twice";
    if (axis.getValue() == MeshOp::kMicroAxis)
      return op->emitOpError("cannot communicate over ") << axis << ", which counts micro-batches";
  }
  auto module = op->getParentOfType<ModuleOp>();
  MeshOp mesh = module ? getMesh(module) : MeshOp();
  if (!mesh)
    return 0;
  int64_t size = 1;
  for (auto axis : axes.getAsRange<StringAttr>()) {
    if (!mesh.hasAxis(axis.getValue()))
      return op->emitOpError("unknown mesh axis ") << axis;
    size *= mesh.getAxisSize(axis.getValue());
  }
  return size;
}

/// Checks that `to` is `from` with dimension `dim` multiplied by num/den and no other change.
static LogicalResult verifyScaledDim(Operation *op, RankedTensorType from, RankedTensorType to,
                                     int64_t dim, int64_t num, int64_t den) {
  if (from.getRank() != to.getRank() || from.getElementType() != to.getElementType())
    return op->emitOpError("input ")
           << from << " and output " << to << " differ in rank or element type";
  if (dim < 0 || dim >= from.getRank())
    return op->emitOpError("dim ") << dim << " is not a dimension of " << from;
  for (int64_t i = 0; i < from.getRank(); ++i) {
    int64_t want = i == dim ? from.getDimSize(i) * num / den : from.getDimSize(i);
    if (to.getDimSize(i) != want)
      return op->emitOpError("output dimension ")
             << i << " is " << to.getDimSize(i) << ", expected " << want;
  }
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (failed(verifyAxes(*this, getAxes())))
    return failure();
  if (getInputs().getTypes() != getOutputs().getTypes()) // D-AR1
    return emitOpError("results differ in type from the operands");
  return success();
}

LogicalResult AllGatherOp::verify() {
  FailureOr<int64_t> size = verifyAxes(*this, getAxes());
  if (failed(size) || *size == 0)
    return size;
  return verifyScaledDim(*this, cast<RankedTensorType>(getInput().getType()), // D-AG1
                         cast<RankedTensorType>(getOutput().getType()), getDim(), *size, 1);
}

static LogicalResult verifySplit(Operation *op, ArrayAttr axes, Type input, Type output,
                                 int64_t dim) {
  FailureOr<int64_t> size = verifyAxes(op, axes);
  if (failed(size) || *size == 0)
    return size;
  // Written backwards so that a dimension that does not divide is an error too.
  return verifyScaledDim(op, cast<RankedTensorType>(output), cast<RankedTensorType>(input), dim,
                         *size, 1);
}

LogicalResult ReduceScatterOp::verify() { // D-RS1
  return verifySplit(*this, getAxes(), getInput().getType(), getOutput().getType(), getDim());
}

LogicalResult ShardSliceOp::verify() { // D-SS1
  return verifySplit(*this, getAxes(), getInput().getType(), getOutput().getType(), getDim());
}

LogicalResult AllToAllOp::verify() {
  FailureOr<int64_t> size = verifyAxes(*this, getAxes());
  if (failed(size) || *size == 0)
    return size;
  auto input = cast<RankedTensorType>(getInput().getType()),
       output = cast<RankedTensorType>(getOutput().getType());
  int64_t split = getSplitDim(), concat = getConcatDim();
  if (split < 0 || concat < 0 || split >= input.getRank() || concat >= input.getRank())
    return emitOpError("split dim ")
           << split << " and concat dim " << concat << " must be dimensions of " << input;
  SmallVector<int64_t> shape(input.getShape());
  if (shape[split] % *size)
    return emitOpError("split dimension of ")
           << shape[split] << " does not divide by the group's " << *size;
  shape[split] /= *size; // D-AA1
  shape[concat] *= *size;
  if (output.getShape() != ArrayRef<int64_t>(shape) ||
      output.getElementType() != input.getElementType())
    return emitOpError("output is ")
           << output << ", expected " << RankedTensorType::get(shape, input.getElementType());
  return success();
}

LogicalResult PermuteOp::verify() {
  FailureOr<int64_t> size = verifyAxes(*this, getAxes());
  if (failed(size))
    return failure();
  SmallVector<int64_t> sorted(getPermutation());
  llvm::sort(sorted);
  for (auto [i, value] : llvm::enumerate(sorted))
    if (value != static_cast<int64_t>(i))
      return emitOpError("permutation is not one of 0 to ") << sorted.size() - 1;
  if (*size && static_cast<int64_t>(sorted.size()) != *size)
    return emitOpError("permutation of ") << sorted.size() << " members in a group of " << *size;
  return success();
}

static LogicalResult verifyRank(Operation *op, RankedTensorType type, ShardingAttr sharding) {
  if (static_cast<int64_t>(sharding.getDims().size()) == type.getRank())
    return success();
  return op->emitOpError("brings ")
         << type << " from or to a sharding of " << sharding.getDims().size() << " dimensions";
}

LogicalResult ReshardOp::verify() {
  auto type = cast<RankedTensorType>(getInput().getType());
  if (failed(verifyRank(*this, type, getFrom())) || failed(verifyRank(*this, type, getTo())))
    return failure(); // D-RE1
  for (StringAttr axis : getTo().getUnreduced())
    if (!llvm::is_contained(getFrom().getUnreduced(), axis)) // D-RE2
      return emitOpError("makes partial values over ") << axis << " of whole ones";
  return success();
}

LogicalResult OnShardsOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType()),
       output = cast<RankedTensorType>(getOutput().getType());
  if (failed(verifyRank(*this, input, getFrom())) || failed(verifyRank(*this, output, getTo())))
    return failure();
  Block &block = getBody().front();
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (block.getNumArguments() != 1 || !yield || yield.getNumOperands() != 1)
    return emitOpError("takes one shard and yields one");
  auto module = (*this)->getParentOfType<ModuleOp>();
  if (!module || !getMesh(module))
    return success();
  Mesh mesh(getMesh(module));
  Type taken = block.getArgument(0).getType(), yielded = yield.getOperand(0).getType();
  if (Type shard = getLocalType(input, Sharding(getFrom()), mesh); taken != shard) // D-OS1
    return emitOpError("takes ") << taken << "; the input's shard is " << shard;
  if (Type shard = getLocalType(output, Sharding(getTo()), mesh); yielded != shard) // D-OS2
    return emitOpError("yields ") << yielded << "; the output's shard is " << shard;
  return success();
}

/// Whether the operations of a group are all_gathers over the same devices.
static bool areOneGather(Block &body) {
  auto first = dyn_cast<AllGatherOp>(body.front());
  return first && llvm::all_of(body.without_terminator(), [&](Operation &op) {
           auto gather = dyn_cast<AllGatherOp>(op);
           return gather && gather.getAxes() == first.getAxes();
         });
}

LogicalResult StartOp::verify() {
  int64_t collectives = 0, transfers = 0;
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  for (Operation &op : getBody().front().without_terminator()) {
    if (!isCommunication(&op))
      return op.emitOpError("is not communication and cannot be in a group");
    ++(isa<SendOp, RecvOp>(op) ? transfers : collectives);
  }
  bool isOne = collectives == 1 || areOneGather(getBody().front());
  if (isOne ? transfers != 0 : collectives != 0 || transfers == 0) // D-ST1
    return emitOpError("holds ") << collectives << " collectives and " << transfers
                                 << " transfers; a group is one collective, all_gathers over the "
                                    "same devices, or transfers alone";
  if (yield.getResults().getTypes() != getFuture().getType().getTypes()) // D-ST2
    return emitOpError("yields other types than its future's");
  return success();
}
