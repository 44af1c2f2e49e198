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

bool gridloom::loom::staysInRegisters(Value value) {
  Operation *producer = value.getDefiningOp();
  if (!producer || !isa<KernelBodyInterface>(producer) || !value.hasOneUse())
    return false;
  Operation *reader = *value.getUsers().begin();
  return isa<CostInterface>(reader) && !isContraction(reader);
}

cluster::Work gridloom::loom::getShareOfWork(Operation *op, double share,
                                             ArrayRef<RankedTensorType> types) {
  return getShareOfWork(op, share, llvm::map_to_vector(types, [](RankedTensorType type) {
                          return static_cast<double>(getByteSize(type));
                        }));
}

cluster::Work gridloom::loom::getShareOfWork(Operation *op, double share, ArrayRef<double> sizes) {
  cluster::Work work;
  auto costed = dyn_cast<CostInterface>(op);
  if (!costed || op->getNumOperands() == 0 || isa<ReshapeOp, BroadcastOp>(op))
    return work;
  work.kind = isContraction(op) ? cluster::WorkClass::Contraction : cluster::WorkClass::Other;
  work.type = op->hasAttr("tf32")
                  ? cluster::NumberType::Tf32
                  : dist::getNumberType(getElementTypeOrSelf(op->getOperand(0).getType()));
  work.flops = share * static_cast<double>(costed.getFlops());
  for (auto [i, bytes] : llvm::enumerate(sizes)) {
    bool isOperand = i < op->getNumOperands();
    Value value = isOperand ? op->getOperand(i) : op->getResult(i - op->getNumOperands());
    if (staysInRegisters(value))
      continue;
    // Of a table, the rows that are looked up.
    bool isTable = i == 0 && isa<GatherOp>(op);
    (isOperand ? work.readBytes : work.writtenBytes) +=
        isTable ? std::min(bytes, sizes.back()) : bytes;
  }
  return work;
}

double gridloom::loom::getComputeSeconds(Operation *op, const cluster::Machine &machine) {
  if (!isControl(op) && !isa<CostInterface>(op))
    return 0;
  if (!isControl(op))
    return cluster::getComputeSeconds(machine,
                                      getShareOfWork(op, /*share=*/1, dist::getTensorTypes(op)));
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
