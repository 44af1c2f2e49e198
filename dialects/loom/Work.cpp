//===- Work.cpp - operations as the cost library sees them ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Work.h"

#include "dialects/dist/Factors.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Control.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

static bool isContraction(Operation *op) { return isa<DotGeneralOp, ConvolutionOp>(op); }

/// Bytes of the columns of a convolution: with O elements of the result, W of the weight and M
/// multiply-adds, O W / M are the channels of the result, and M / (O W / M) the columns, of each
/// group.
static double getColumnBytes(ConvolutionOp op, double multiplies, ArrayRef<double> bytes) {
  double element = static_cast<double>(getByteSize(op.getType().clone(ArrayRef<int64_t>())));
  double outputs = bytes.back() / element, weights = bytes[1] / element;
  if (outputs <= 0 || weights <= 0)
    return 0;
  return element * multiplies * multiplies / (outputs * weights) *
         static_cast<double>(op.getGroups());
}

static cluster::Work getShareOfWork(Operation *op, double share, ArrayRef<double> sizes,
                                    const Libraries &libraries) {
  cluster::Work work;
  auto costed = dyn_cast<CostInterface>(op);
  Place place = findPlace(op, libraries);
  if (!costed || op->getNumOperands() == 0 || isa<ReshapeOp, BroadcastOp>(op) ||
      place == Place::Address)
    return work;
  work.kind = isContraction(op) ? cluster::WorkClass::Contraction : cluster::WorkClass::Other;
  work.type = op->hasAttr("tf32")
                  ? cluster::NumberType::Tf32
                  : dist::getNumberType(getElementTypeOrSelf(op->getOperand(0).getType()));
  // What a library does beside products takes it no time.
  if (place != Place::Call || isContraction(op))
    work.flops = share * static_cast<double>(costed.getFlops());
  size_t numOperands = op->getNumOperands();
  for (auto [operand, bytes] : llvm::zip(op->getOpOperands(), sizes)) {
    // Of a table, the rows that are looked up.
    bool isTable = operand.getOperandNumber() == 0 && isa<GatherOp>(op);
    work.readBytes +=
        getReadShare(operand, libraries) * (isTable ? std::min(bytes, sizes.back()) : bytes);
  }
  for (auto [result, bytes] : llvm::zip_equal(op->getResults(), sizes.drop_front(numOperands)))
    work.writtenBytes += getWrittenShare(result, libraries) * bytes;
  Columns columns = findColumns(op, libraries);
  work.flops *= static_cast<double>(columns.zeros);
  double copied =
      columns.areCopied ? getColumnBytes(cast<ConvolutionOp>(op), work.flops / 2, sizes) : 0;
  double padded = columns.isPadded ? static_cast<double>(columns.zeros) * sizes.front() : 0;
  work.readBytes += copied + padded;
  work.writtenBytes += copied + padded;
  return work;
}

double gridloom::loom::getLaunchSeconds(const cluster::Machine &machine) {
  double most = 0;
  for (const cluster::DeviceKind &kind : machine.kinds)
    most = std::max(most, kind.launchSeconds);
  return most;
}

double gridloom::loom::getShareSeconds(Operation *op, double share,
                                       ArrayRef<RankedTensorType> types,
                                       const cluster::Machine &machine) {
  auto sizes = llvm::map_to_vector(
      types, [](RankedTensorType type) { return static_cast<double>(getByteSize(type)); });
  return getShareSeconds(op, share, sizes, machine);
}

double gridloom::loom::getShareSeconds(Operation *op, double share, ArrayRef<double> bytes,
                                       const cluster::Machine &machine) {
  Libraries libraries = Libraries::of(machine);
  cluster::Work work = getShareOfWork(op, share, bytes, libraries);
  Columns columns = findColumns(op, libraries);
  double launches = (findPlace(op, libraries) == Place::Kernel ? 1 : 0) +
                    (columns.areCopied ? 1 : 0) + (columns.isPadded ? 1 : 0);
  double slowest = 0;
  for (const cluster::DeviceKind &kind : machine.kinds) // a time has one launch
    if (double seconds = cluster::getComputeSeconds(kind, work); seconds > 0)
      slowest = std::max(slowest, seconds + (launches - 1) * kind.launchSeconds);
  return slowest;
}

double gridloom::loom::getComputeSeconds(Operation *op, const cluster::Machine &machine) {
  if (!isControl(op) && !isa<CostInterface>(op))
    return 0;
  if (!isControl(op))
    return getShareSeconds(op, /*share=*/1, dist::getTensorTypes(op), machine);
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

double gridloom::loom::getCommunicationSeconds(Operation *op, const dist::Mesh &mesh) {
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
