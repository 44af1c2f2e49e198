//===- PinStages.cpp - stages as a strategy file says ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/RequireMesh.h"
#include "passes/shard/MicroBatches.h"
#include "passes/shard/Shard.h"
#include "passes/shard/Spots.h"
#include "passes/shard/StrategyLookup.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_PINSTAGES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct PinStagesPass : public gridloom::impl::PinStagesBase<PinStagesPass> {
  using PinStagesBase::PinStagesBase;
  explicit PinStagesPass(std::shared_ptr<const StrategyFile> given) : given(std::move(given)) {}

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!given)
      given = readForPass(module, file);
    MeshOp mesh = given ? requireMesh(module) : MeshOp();
    if (!mesh)
      return signalPassFailure();
    if (std::optional<int64_t> parts = getTrainedParts(module); !parts)
      setMicrobatches(mesh, given->microbatches);
    else if (given->microbatches > 1 && given->microbatches != *parts)
      return emitPartsError(*parts);
    StrategyLookup lookup(*given, module, {StrategySection::Stages});
    for (func::FuncOp func : listSpecialisations(module)) {
      std::string specialisation = nameSpecialisation(func);
      for (const NamedOp &named : nameStagedOps(func))
        pin(lookup, specialisation, named);
    }
    if (failed(lookup.report()))
      signalPassFailure();
  }

private:
  void emitPartsError(int64_t parts) {
    emitError(getOperation().getLoc())
        << "the strategy " << given->locate(0) << " cuts the batch into " << given->microbatches
        << " micro-batches, the training step was imported with " << parts
        << "; import the model with --microbatches " << given->microbatches
        << ", or change 'microbatches' in the file";
    signalPassFailure();
  }
  void pin(StrategyLookup &lookup, StringRef specialisation, const NamedOp &named) {
    const StrategyLine *line =
        lookup.find(StrategySection::Stages, specialisation, named.full, named.base);
    if (!line)
      return;
    auto before = named.op->getAttrOfType<IntegerAttr>(kStage);
    if (before && before.getInt() != line->stage)
      return lookup.note(line->line, "'" + Twine(named.full) + "' is given stage " +
                                         Twine(line->stage) + ", the model's annotations give it " +
                                         Twine(before.getInt()) + "; keep one of them");
    named.op->setAttr(kStage, Builder(&getContext()).getI64IntegerAttr(line->stage));
  }

  std::shared_ptr<const StrategyFile> given;
};
} // namespace

std::unique_ptr<Pass> gridloom::createPinStages(std::shared_ptr<const StrategyFile> given) {
  return std::make_unique<PinStagesPass>(std::move(given));
}
