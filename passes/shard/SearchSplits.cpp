//===- SearchSplits.cpp - shardings that a solver chooses -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Solver.h"
#include "passes/shard/SearchBound.h"
#include "passes/shard/Shard.h"
#include "passes/shard/SplitProblem.h"
#include "support/Text.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_SEARCHSPLITS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct SearchSplitsPass : public gridloom::impl::SearchSplitsBase<SearchSplitsPass> {
  using SearchSplitsBase::SearchSplitsBase;

  void runOnOperation() override {
    MeshOp meshOp = getMesh(getOperation());
    if (!meshOp) {
      getOperation().emitError("no mesh is declared");
      return signalPassFailure();
    }
    Mesh mesh(meshOp);
    SmallVector<StringAttr> over;
    for (const std::string &name : axes)
      if (auto axis = StringAttr::get(&getContext(), name); mesh.getSize(axis) > 1)
        over.push_back(axis);
    if (over.empty())
      return;
    SplitProblem problem(getOperation(), over, mesh);
    solver::Options options;
    options.work = work;
    solver::Solution solution = solver::solve(problem.makeProblem(memory), options);
    if (!solution.progress.isFeasible) {
      getOperation().emitError("no way to split the program over ")
          << llvm::join(axes, ", ") << " was found that keeps what has been given"
          << (memory ? " within " + formatBytes(uint64_t(memory)) + " a device" : "") << ": "
          << solution.fault;
      return signalPassFailure();
    }
    problem.apply(solution.assignment, "search");
    remarkUnused(problem, over);
    setSearchBound(getOperation(), {toMilliseconds(solution.progress.cost),
                                    toMilliseconds(solution.progress.lowerBound)});
    getOperation().emitRemark(llvm::formatv(
        "search: the program takes {0:F3} ms on a device, one operation after another; no choice "
        "of splits takes less than {1:F3} ms",
        toMilliseconds(solution.progress.cost), toMilliseconds(solution.progress.lowerBound)));
  }

  /// Axes that split nothing: their devices repeat each other's work.
  void remarkUnused(SplitProblem &problem, ArrayRef<StringAttr> over) {
    llvm::DenseSet<StringAttr> used = problem.getUsedAxes();
    for (StringAttr axis : over)
      if (!used.contains(axis))
        getOperation().emitRemark("axis '")
            << axis.getValue() << "' splits nothing: whatever it split, communication would take "
            << "longer than the work it saves; fewer devices are as fast";
  }

  static double toMilliseconds(solver::Cost cost) { return static_cast<double>(cost) * 1e-9; }
};
} // namespace
