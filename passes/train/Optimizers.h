//===- Optimizers.h - steps of parameters -----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Rules that change parameters by their gradients, as formulas in loom operations. A rule that
// works element by element is only made of elementwise operations, so that shards are updated where
// they are; norms (LAMB, LARS, Adafactor) are sums that the sharding rules complete.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H
#define GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H

#include "passes/train/OptimizerRules.h"
#include "passes/train/Parameters.h"

namespace gridloom::train {

/// How --optimizer is written, for --help: each rule with its settings and defaults, and whose
/// convention it follows.
const std::string &getOptimizerGrammar();

/// A rule with its settings, as --optimizer has them: 'adamw(lr=3e-4, weight_decay=0.1)'.
///
/// Everything is computed in f32, in f64 for f64 parameters. Steps are counted from 1; the learning
/// rate and the number of the step are values, so that one program serves all steps. A zero
/// gradient never gives NaN; a gradient that is not finite gives anything.
class Optimizer {
public:
  /// Returns nothing, and says why, if the text is none of getOptimizerGrammar().
  static std::optional<Optimizer> parse(const std::string &text, std::string &error);

  /// lr=, or the default of the rule's convention.
  double getLearningRate() const { return numbers["lr"]; }

  /// What is kept for a parameter of this type: f32 tensors, f64 for f64 parameters.
  llvm::SmallVector<Slot> getSlots(mlir::RankedTensorType parameter) const;
  /// What is kept once for all parameters: scalars of `element`, f32 unless steps are f64.
  llvm::SmallVector<Slot> getSharedSlots(mlir::FloatType element) const;
  /// New values of the shared slots in step `step`, a float of rank 0.
  llvm::SmallVector<Term> updateShared(llvm::ArrayRef<Term> shared, Term step) const;

  /// What all parameters have in common in one step; floats of rank 0.
  struct Step {
    Term rate;                      ///< the learning rate
    Term number;                    ///< of this step, from 1
    llvm::SmallVector<Term> shared; ///< what updateShared gave for this step
  };
  struct Values {
    Term parameter;
    llvm::SmallVector<Term> slots;
  };
  /// One step: the new value of a parameter, of its type, and of its slots, in the order of
  /// getSlots. The gradient has the parameter's shape. `settings` are those of the parameter: its
  /// factor of the learning rate and its weight decay apply here; it is not frozen.
  Values update(Term parameter, Term gradient, llvm::ArrayRef<Term> slots, const Step &step,
                const ParameterSettings &settings) const;

private:
  explicit Optimizer(const Rule &rule) : rule(&rule) {}

  /// Returns what is wrong with the settings of a call, or nothing.
  std::string readSettings(llvm::ArrayRef<std::pair<std::string, std::string>> settings);

  const Rule *rule;
  RuleNumbers numbers;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_OPTIMIZERS_H
