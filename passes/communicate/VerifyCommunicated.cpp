//===- VerifyCommunicated.cpp - verify the communicate phase --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_VERIFYCOMMUNICATED
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct VerifyCommunicatedPass
    : public gridloom::impl::VerifyCommunicatedBase<VerifyCommunicatedPass> {
  using VerifyCommunicatedBase::VerifyCommunicatedBase;

  void runOnOperation() override {
    bool named = hasNodeNames(getOperation());
    WalkResult walk = getOperation().walk([&](Operation *op) -> WalkResult {
      return failed(verifyOne(op)) || (named && failed(verifyOrigin(op))) ? failure() : success();
    });
    if (walk.wasInterrupted())
      signalPassFailure();
  }

private:
  /// True for a program imported from a model: some operation names its node.
  static bool hasNodeNames(func::FuncOp function) {
    return function
        .walk([&](Operation *op) {
          bool named = op != function && !loom::getNodeName(op->getLoc()).empty();
          return named ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// Communication must name the ONNX node it is for, not the model or the function.
  static LogicalResult verifyOrigin(Operation *op) { // C-G4
    if (!isCommunication(op))
      return success();
    std::string node = loom::getNodeName(op->getLoc());
    auto module = op->getParentOfType<ModuleOp>();
    if (node.empty() || node == loom::getNodeName(module.getLoc()))
      return op->emitOpError("has no ONNX node as its origin; the pass that made it must keep the "
                             "location of the operation it serves");
    if (getCause(op).empty()) // C-G5
      return op->emitOpError("has no cause; the pass that made it must say who needs it in ")
             << kBecause;
    return success();
  }

  static LogicalResult verifyOne(Operation *op) {
    if (isCommunication(op) && !isa<StartOp>(op->getParentOp())) // C-G1
      return op->emitOpError("is not in a group");
    if (isa<ShardSliceOp>(op)) // C-G1
      return op->emitOpError("is left after the communicate phase");
    uint64_t dim = 0;
    if (auto gather = dyn_cast<AllGatherOp>(op))
      dim = gather.getDim();
    else if (auto scatter = dyn_cast<ReduceScatterOp>(op))
      dim = scatter.getDim();
    else if (auto exchange = dyn_cast<AllToAllOp>(op))
      dim = std::max(exchange.getSplitDim(), exchange.getConcatDim());
    if (dim != 0) // C-G2
      return op->emitOpError("works on dimension ") << dim << "; transports know dimension 0 only";
    if (auto start = dyn_cast<StartOp>(op)) // C-G3
      if (!start.getFuture().hasOneUse() || !isa<DoneOp>(*start.getFuture().getUsers().begin()))
        return op->emitOpError("needs one dist.done");
    return success();
  }
};
} // namespace
