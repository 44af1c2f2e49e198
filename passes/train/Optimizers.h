//===- Optimizers.h - steps of parameters -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Rules that change parameters by their gradients, as formulas of loom operations. A rule that
// works element by element consists of elementwise operations only, so that shards are updated on
// their own device; norms (LAMB, LARS, Adafactor) are sums that the sharding rules complete.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H
#define GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H

#include "passes/train/OptimizerRules.h"
#include "passes/train/Parameters.h"

namespace gridloom::train {

/// The grammar of --optimizer, for --help: each rule with its settings and defaults, and whose
/// convention it follows.
const std::string &getOptimizerGrammar();

/// A rule with its settings, given to --optimizer: 'adamw(lr=3e-4, weight_decay=0.1)'.
///
/// Everything is computed in f32, or in f64 for f64 parameters. Steps count from 1; the learning
/// rate and the number of the step are values, so that one program serves all steps. A zero
/// gradient never gives NaN; results of a gradient that is not finite are undefined.
class Optimizer {
public:
  /// Returns nullopt, with the reason in `error`, if the text does not match getOptimizerGrammar().
  static std::optional<Optimizer> parse(const std::string &text, std::string &error);

  /// The setting lr=, or the rule's default.
  double getLearningRate() const { return numbers["lr"]; }

  /// The slots of a parameter of this type: f32 tensors, or f64 for f64 parameters.
  llvm::SmallVector<Slot> getSlots(mlir::RankedTensorType parameter) const;
  /// The slots that all parameters share: scalars of `element`, f32 unless steps are f64.
  llvm::SmallVector<Slot> getSharedSlots(mlir::FloatType element) const;
  /// The new values of the shared slots in step `step`, a float of rank 0.
  llvm::SmallVector<Term> updateShared(llvm::ArrayRef<Term> shared, Term step) const;

  /// Values that all parameters share in one step; floats of rank 0.
  struct Step {
    Term rate;                      ///< the learning rate
    Term number;                    ///< of this step, from 1
    llvm::SmallVector<Term> shared; ///< results of updateShared for this step
  };
  struct Values {
    Term parameter;
    llvm::SmallVector<Term> slots;
  };
  /// Computes one step: the new value of a parameter, of its type, and of its slots, in the order
  /// of getSlots. The gradient has the parameter's shape. `settings` are the parameter's: its
  /// factor of the learning rate and its weight decay apply here; it must not be frozen.
  Values update(Term parameter, Term gradient, llvm::ArrayRef<Term> slots, const Step &step,
                const ParameterSettings &settings) const;

private:
  explicit Optimizer(const Rule &rule) : rule(&rule) {}

  /// Returns the problem with the settings of a call, or "".
  std::string readSettings(llvm::ArrayRef<std::pair<std::string, std::string>> settings);

  const Rule *rule;
  RuleNumbers numbers;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H
