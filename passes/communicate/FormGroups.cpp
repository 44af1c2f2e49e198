//===- FormGroups.cpp - asynchronous groups ---------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Training.h"
#include "passes/communicate/Communicate.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_FORMGROUPS
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
struct FormGroupsPass : public gridloom::impl::FormGroupsBase<FormGroupsPass> {
  using FormGroupsBase::FormGroupsBase;

  void runOnOperation() override {
    SmallVector<Operation *> communication;
    getOperation().walk([&](Operation *op) {
      if (isCommunication(op) && !isa<StartOp>(op->getParentOp()))
        communication.push_back(op);
    });
    for (Operation *op : communication)
      wrap(op);
  }

private:
  static void wrap(Operation *op) {
    OpBuilder builder(op);
    auto future = FutureType::get(op->getContext(), llvm::to_vector(op->getResultTypes()));
    auto start = StartOp::create(builder, op->getLoc(), future);
    auto done = DoneOp::create(builder, op->getLoc(), op->getResultTypes(), start.getFuture());
    for (StringRef name : {kShardings, kOrigins})
      if (Attribute attr = op->getAttr(name))
        done->setAttr(name, attr);
    op->replaceAllUsesWith(done.getOutputs());
    // Where stages send both ways, one that waits for its send would not receive what its peer
    // waits for: the step waits for all of them at its end.
    if (auto function = dyn_cast<func::FuncOp>(op->getBlock()->getParentOp());
        isa<SendOp>(op) && function && loom::isTrainStep(function))
      done->moveBefore(function.front().getTerminator());
    Block *body = builder.createBlock(&start.getBody());
    op->moveBefore(body, body->end());
    builder.setInsertionPointToEnd(body);
    YieldOp::create(builder, op->getLoc(), op->getResults());
  }
};
} // namespace
