//===- OptimizerRules.h - update rules of optimizers ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_OPTIMIZERRULES_H
#define GRIDLOOM_PASSES_TRAIN_OPTIMIZERRULES_H

#include "passes/differentiate/Term.h"

#include <optional>
#include <string>
#include <vector>

namespace gridloom::train {

/// Limits of settings: f32 can hold them, with room for products of them.
constexpr double kMaxRate = 1e6, kMaxLimit = 1e30, kMinPositive = 1e-37;

/// The float type in which values of `element` are updated: f64 for f64, else f32.
mlir::Type getComputeType(mlir::Type element);
/// A scalar in every element of `type`.
Term spread(const Term &scalar, mlir::RankedTensorType type);
/// Moves the average towards `value`: decay * average + (1 - decay) * value, computed such that
/// equal values stay unchanged however 1 - decay is rounded in f32.
Term blend(const Term &average, const Term &value, double decay);
/// 1 - decay ^ step, the divisor of an average that began with zeros; decay is in [0, 1). Exact to
/// rounding also if the power is near 1.
Term correctBias(const Term &step, double decay);
Term square(const Term &term);
/// The sum of all elements, of rank 0.
Term sumAll(const Term &term);

/// A value that an optimizer keeps from one step to the next.
struct Slot {
  std::string name; ///< e.g. "m"
  mlir::RankedTensorType type;
  double init = 0; ///< in every element before the first step
  /// Begins with the parameter's value, converted to the element type, instead of with `init`.
  bool beginsAsParameter = false;
};

/// A number of a rule: its name, default and range.
struct RuleSetting {
  enum Range {
    Rate,     // 0 to 1e6
    Share,    // 0, included, to 1, excluded
    Positive, // 1e-37 to 1
    Size,     // whole numbers from 1
    Flag      // true or false
  };
  llvm::StringLiteral name;
  Range range;
  std::optional<double> fallback; // none: it must be given

  /// The value of a setting written as `word`; nullopt if it is out of range.
  std::optional<double> parse(const std::string &word) const;
  /// "which is not a number from 0 to 1e6" and the like.
  std::string describeFault() const;
  /// "eps=1e-08", or "lr=NUMBER" where there is no default.
  std::string describe() const;
};

/// The numbers of a rule by name.
class RuleNumbers {
public:
  double operator[](llvm::StringRef name) const;
  void set(llvm::StringRef name, double value);
  bool has(llvm::StringRef name) const;

private:
  llvm::SmallVector<std::pair<llvm::StringRef, double>> numbers; // keys are literals
};

/// One step of one parameter. All terms have the type in which the parameter is updated.
struct RuleStep {
  const RuleNumbers &numbers;
  double weightDecay;
  Term parameter, gradient;
  llvm::SmallVector<Term> slots;  ///< in the rule's order; the rule replaces them by the new ones
  Term rate, step;                ///< rank 0
  llvm::SmallVector<Term> shared; ///< of this step

  double operator[](llvm::StringRef name) const { return numbers[name]; }
  Term spread(const Term &scalar) const { return train::spread(scalar, parameter.getType()); }
};

struct Rule {
  llvm::StringLiteral name;
  llvm::StringLiteral convention; ///< whose formula and defaults it uses: PyTorch or optax
  std::vector<RuleSetting> settings;
  /// The slots of a parameter; `type` has the element type in which it is updated.
  llvm::SmallVector<Slot> (*listSlots)(const RuleNumbers &numbers, mlir::RankedTensorType type);
  /// Returns the new value of the parameter.
  Term (*update)(RuleStep &step);
};

/// All rules, in the order of the help.
llvm::ArrayRef<Rule> getRules();

/// NAdam's momentum in step `step`, rank 0.
Term getNadamMomentum(const RuleNumbers &numbers, const Term &step);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_OPTIMIZERRULES_H
