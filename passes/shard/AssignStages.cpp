//===- AssignStages.cpp - pipeline stage cuts -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/Shard.h"
#include "passes/shard/StageAssignment.h"

using namespace mlir;
using namespace gridloom;

namespace gridloom {
#define GEN_PASS_DEF_ASSIGNSTAGES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct AssignStagesPass : public gridloom::impl::AssignStagesBase<AssignStagesPass> {
  using AssignStagesBase::AssignStagesBase;

  void runOnOperation() override {
    StageAssignment stages(getOperation(), StringAttr::get(&getContext(), axis));
    dist::Mesh mesh = dist::Mesh::get(getOperation());
    FailureOr<StageStarts> starts = stages.choose(getUnsplitCosts(mesh));
    if (failed(starts) || failed(stages.apply(*starts)))
      signalPassFailure();
  }
};
} // namespace
