//===- Settings.cpp - parse the options of compile --train ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/train/TrainStep.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::train;

/// Reports texts that cannot be parsed as command line errors, on the module.
template <typename Spec>
static LogicalResult read(ModuleOp module, ArrayRef<std::string> texts, SmallVector<Spec> &specs) {
  for (const std::string &text : texts) {
    std::string error;
    std::optional<Spec> spec = Spec::parse(text, error);
    if (!spec)
      return module.emitError() << error;
    specs.push_back(std::move(*spec));
  }
  return success();
}

/// Requires every text of --param and --init to match some weight.
static LogicalResult checkRules(ModuleOp module, const TrainSettings &settings) {
  SmallVector<ParameterName> names;
  for (auto weight : module.getOps<loom::WeightOp>())
    names.push_back({weight.getSymName(), cast<RankedTensorType>(weight.getType()).getRank()});
  for (auto [flag, unmatched] : {std::pair("--param '", settings.rules.listUnmatched(names)),
                                 std::pair("--init '", settings.inits.listUnmatched(names))})
    if (!unmatched.empty())
      return module.emitError(flag)
             << unmatched.front() << "': no weight of the model has such a name";
  return success();
}

FailureOr<TrainSettings> train::readSettings(ModuleOp module, const TrainOptions &options) {
  TrainSettings settings;
  if (failed(read(module, options.losses, settings.losses)) ||
      failed(read(module, options.metrics, settings.metrics)))
    return failure();
  std::string error;
  settings.optimizer = Optimizer::parse(options.optimizer, error);
  if (!settings.optimizer)
    return module.emitError() << error;
  if (!options.clip.empty()) {
    settings.clip = ClipSpec::parse(options.clip, error);
    if (!settings.clip)
      return module.emitError() << error;
  }
  if (!options.lossScale.empty()) {
    std::optional<LossScaleSpec> scale = LossScaleSpec::parse(options.lossScale, error);
    if (!scale)
      return module.emitError() << error;
    if (!scale->isOff())
      settings.lossScale = scale;
  }
  std::optional<ParameterRules> rules = ParameterRules::parse(options.parameters, error);
  if (!rules)
    return module.emitError() << error;
  settings.rules = std::move(*rules);
  std::optional<InitRules> inits = InitRules::parse(options.inits, error);
  if (!inits)
    return module.emitError() << error;
  settings.inits = std::move(*inits);
  settings.seed = options.seed.value_or(0);
  if (failed(checkRules(module, settings)))
    return failure();
  return settings;
}
