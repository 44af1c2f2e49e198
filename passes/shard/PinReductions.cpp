//===- PinReductions.cpp - where partial sums end, as a strategy file says -===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "dialects/dist/Splits.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"
#include "passes/shard/StrategyLookup.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PINREDUCTIONS
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct PinReductionsPass : public gridloom::impl::PinReductionsBase<PinReductionsPass> {
  using PinReductionsBase::PinReductionsBase;
  explicit PinReductionsPass(std::shared_ptr<const StrategyFile> given) : given(std::move(given)) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!given)
      given = readForPass(module, file);
    MeshOp meshOp = given ? requireMesh(module) : MeshOp();
    if (!meshOp)
      return signalPassFailure();
    Mesh mesh(meshOp);
    for (Value value : findWhole())
      for (Operation *reader : value.getUsers())
        if (failed(reduceBefore(reader, mesh)))
          return signalPassFailure();
  }

private:
  /// The values that a line of the file says are whole, not partial sums.
  llvm::SetVector<Value> findWhole() {
    llvm::SetVector<Value> whole;
    StrategyLookup lookup(*given, getOperation(), {StrategySection::Nodes});
    for (func::FuncOp func : listSpecialisations(getOperation())) {
      std::string specialisation = nameSpecialisation(func);
      for (const NamedSpot &named : nameSpots(func)) {
        if (named.section != StrategySection::Nodes)
          continue;
        const StrategyLine *line =
            lookup.find(named.section, specialisation, named.full, named.base);
        if (line && getSharding(named.spot.value).getUnreduced().empty())
          whole.insert(named.spot.value);
      }
    }
    return whole;
  }

  /// Splits the reader as the shardings imply, with all its operands reduced.
  static LogicalResult reduceBefore(Operation *reader, const Mesh &mesh) {
    auto ruled = dyn_cast<ShardingRuleInterface>(reader);
    if (!ruled || !ruled.isLinear() || reader->hasAttr(kSplits))
      return success();
    FailureOr<FactorSplits> implied = getImpliedSplits(reader, ruled.getShardingRule(), mesh);
    if (failed(implied))
      return failure();
    OpSplits splits;
    splits.factors = std::move(*implied);
    reader->setAttr(kSplits, splits.getAttr(reader->getContext()));
    return success();
  }

  std::shared_ptr<const StrategyFile> given;
};
} // namespace

std::unique_ptr<Pass> gridloom::createPinReductions(std::shared_ptr<const StrategyFile> given) {
  return std::make_unique<PinReductionsPass>(std::move(given));
}
