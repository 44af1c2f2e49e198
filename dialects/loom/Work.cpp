//===- Work.cpp - operations as the cost library sees them ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Work.h"

#include "dialects/dist/Dist.h"
#include "dialects/dist/Factors.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

static bool isContraction(Operation *op) { return isa<DotGeneralOp, ConvolutionOp>(op); }

SharedWork::SharedWork(Operation *op, const cluster::Machine &machine, bool isBound)
    : machine(machine), numOperands(op->getNumOperands()),
      // Of a table, only the rows looked up are read.
      readsPart(isa<GatherOp, SliceOp>(op)) {
  bool mayBeAddress = false;
  if (auto transpose = dyn_cast<TransposeOp>(op)) {
    permutation = transpose.getPermutation();
    mayBeAddress = isBound;
    // It may be merged with another transpose that may be an address.
    isBound &= isTransposed(transpose);
  }
  Libraries libraries = Libraries::of(machine, isBound);
  // A bound computes an address's operand in the next kernel; if it is no address, one more starts.
  if (mayBeAddress && !isBound &&
      staysInRegisters(op->getOperand(0), Libraries::of(machine, /*isBound=*/true)) &&
      !staysInRegisters(op->getOperand(0), libraries))
    launches = 1;
  Place place = findPlace(op, libraries);
  auto costed = dyn_cast<CostInterface>(op);
  shares.resize(op->getNumOperands() + op->getNumResults());
  if (!costed || numOperands == 0 || isa<ReshapeOp, BroadcastOp>(op) || place == Place::Address)
    return;
  whole.kind = isContraction(op) ? cluster::WorkClass::Contraction : cluster::WorkClass::Other;
  whole.type = op->hasAttr("tf32")
                   ? cluster::NumberType::Tf32
                   : dist::getNumberType(getElementTypeOrSelf(op->getOperand(0).getType()));
  columns = findColumns(op, libraries);
  // Epilogues of library calls take no time.
  if (place != Place::Call || isContraction(op))
    whole.flops = static_cast<double>(costed.getFlops()) * static_cast<double>(columns.zeros);
  for (OpOperand &operand : op->getOpOperands())
    shares[operand.getOperandNumber()] = getReadShare(operand, libraries);
  for (OpResult result : op->getResults())
    shares[numOperands + result.getResultNumber()] = getWrittenShare(result, libraries);
  launches +=
      (place == Place::Kernel ? 1 : 0) + (columns.areCopied ? 1 : 0) + (columns.isPadded ? 1 : 0);
  if (auto convolution = dyn_cast<ConvolutionOp>(op)) {
    elementBytes =
        static_cast<double>(getByteSize(convolution.getType().clone(ArrayRef<int64_t>())));
    groups = static_cast<double>(convolution.getGroups());
  }
}

/// For a convolution with O elements of the result, W of the weight and M multiply-adds, each group
/// has O W / M channels of the result and M^2 / (O W) elements of columns.
double SharedWork::getColumnBytes(double multiplies, ArrayRef<double> bytes) const {
  double outputs = bytes.back() / elementBytes, weights = bytes[1] / elementBytes;
  return outputs > 0 && weights > 0
             ? elementBytes * multiplies * multiplies / (outputs * weights) * groups
             : 0;
}

double SharedWork::getSeconds(double share, ArrayRef<double> bytes, ArrayRef<int64_t> first) const {
  if (!permutation.empty() && keepsOrder(permutation, first))
    return 0;
  cluster::Work work = whole;
  work.flops *= share;
  for (auto [i, part] : llvm::enumerate(shares)) {
    double read = readsPart && i == 0 ? std::min(bytes[i], bytes.back()) : bytes[i];
    (i < numOperands ? work.readBytes : work.writtenBytes) += part * read;
  }
  cluster::Work copies; // into columns, in kernels before the product, which reads those
  if (columns.areCopied) {
    double input = shares.front() * bytes.front(),
           padded = static_cast<double>(columns.zeros) * bytes.front(),
           copied = getColumnBytes(work.flops / 2, bytes);
    work.readBytes += copied - input;
    copies.readBytes = input + (columns.isPadded ? padded : 0);
    copies.writtenBytes = copied + (columns.isPadded ? padded : 0);
  }
  double slowest = 0;
  for (const cluster::DeviceKind &kind : machine.kinds) // includes one launch
    if (double seconds = cluster::getComputeSeconds(kind, work); seconds > 0)
      slowest = std::max(slowest, seconds + cluster::getComputeParts(kind, copies).memory +
                                      (launches - 1) * kind.launchSeconds);
  return slowest;
}

double SharedWork::getSeconds(double share, ArrayRef<RankedTensorType> types) const {
  auto bytes = llvm::map_to_vector(
      types, [](RankedTensorType type) { return static_cast<double>(getByteSize(type)); });
  return getSeconds(share, bytes, types.empty() ? ArrayRef<int64_t>() : types.front().getShape());
}

double gridloom::loom::getLaunchSeconds(const cluster::Machine &machine) {
  double most = 0;
  for (const cluster::DeviceKind &kind : machine.kinds)
    most = std::max(most, kind.launchSeconds);
  return most;
}

double gridloom::loom::getComputeSeconds(Operation *op, const cluster::Machine &machine) {
  if (!isControl(op) && !isa<CostInterface>(op))
    return 0;
  if (!isControl(op))
    return SharedWork(op, machine).getSeconds(/*share=*/1, dist::getTensorTypes(op));
  double dearest = 0;
  for (BodyLink &link : getBodies(op)) {
    double seconds = 0;
    for (Operation &inner : link.body.front())
      if (!dist::isCommunication(&inner))
        seconds += getComputeSeconds(&inner, machine);
    dearest = std::max(dearest, seconds);
  }
  auto loop = dyn_cast<WhileOp>(op);
  return dearest * (loop ? static_cast<double>(loop.getTrips().value_or(1)) : 1);
}

static double getGroupSeconds(dist::StartOp start, const dist::Mesh &mesh) {
  double seconds = 0, gathered = 0; // bytes
  ArrayAttr axes;                   // the all_gathers of a group have the same
  for (Operation &inner : start.getBody().front().without_terminator()) {
    auto gather = dyn_cast<dist::AllGatherOp>(inner);
    if (!gather) {
      seconds += getCommunicationSeconds(&inner, mesh);
      continue;
    }
    gathered += static_cast<double>(getByteSize(gather.getOutput().getType()));
    axes = gather.getAxes();
  }
  if (axes)
    seconds += mesh.getSeconds(cluster::Collective::AllGather, gathered,
                               llvm::to_vector(axes.getAsRange<StringAttr>()));
  return seconds;
}

double gridloom::loom::getCommunicationSeconds(Operation *op, const dist::Mesh &mesh) {
  if (auto start = dyn_cast<dist::StartOp>(op))
    return getGroupSeconds(start, mesh);
  std::optional<cluster::Collective> kind = cluster::findCollective(op->getName().stripDialect());
  assert(kind && "not a collective or transfer");
  auto bytesOf = [](TypeRange types) {
    double bytes = 0;
    for (Type type : types)
      bytes += static_cast<double>(getByteSize(type));
    return bytes;
  };
  SmallVector<StringAttr> along;
  if (auto axes = op->getAttrOfType<ArrayAttr>("axes"))
    llvm::append_range(along, axes.getAsRange<StringAttr>());
  else
    along = dist::getStageAxes(op->getParentOfType<ModuleOp>());
  return mesh.getSeconds(
      *kind, std::max(bytesOf(op->getOperandTypes()), bytesOf(op->getResultTypes())), along);
}
