//===- Initializers.h - initial values of parameters ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Fans and gains are those of torch.nn.init. If a weight is multiplied, its fan-in is the
// dimensions that the product sums over and its fan-out the others, whichever come first in the
// file. For a recurrent weight of ONNX, [directions, gates * hidden, inputs], they are those of one
// direction; for any other weight dimension 1 and dimension 0, each times the window behind them.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_INITIALIZERS_H
#define GRIDLOOM_PASSES_TRAIN_INITIALIZERS_H

#include "passes/train/Parameters.h"
#include "support/Draw.h"

#include "dialects/loom/Loom.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom::train {

/// How --init is written, for --help.
extern const char *const kInitGrammar;

/// The number of elements of a weight that one output is computed from, and that one input goes to.
struct Fans {
  int64_t in = 0, out = 0;
};

/// The fans of a weight by the operations that read it; nullopt with fewer than two dimensions.
std::optional<Fans> findFans(loom::GetWeightOp read);

/// A distribution given to --init.
class InitSpec {
public:
  /// Returns nullopt, with the reason as the end of a sentence, if the text is no distribution.
  static std::optional<InitSpec> parse(const std::string &text, std::string &error);

  bool needsFans() const;
  /// Whether all elements are equal.
  bool isConstant() const;
  /// Resolves it, without seed and stream; `fans` are the weight's, and needed only if needsFans().
  Draw resolve(Fans fans) const;

private:
  enum class Kind { Constant, Uniform, Normal, Xavier, Kaiming };
  Kind kind = Kind::Constant;
  bool isNormal = false, usesFanOut = false; // of Xavier and Kaiming
  double first = 0, second = 0, gain = 1;
  friend struct InitReader;
};

/// The rules of --init: texts 'PATTERN: DISTRIBUTION', of which the last one that matches a
/// parameter applies.
class InitRules {
public:
  /// Returns nullopt, with the reason in `error`, if a text does not match kInitGrammar.
  static std::optional<InitRules> parse(llvm::ArrayRef<std::string> texts, std::string &error);

  bool isEmpty() const { return rules.empty(); }
  struct Rule {
    std::string text;
    ParameterPattern pattern;
    InitSpec spec;
  };
  /// The rule that applies to the parameter; null if there is none.
  const Rule *lookup(ParameterName parameter) const;
  /// The texts that match none of these parameters.
  llvm::SmallVector<llvm::StringRef> listUnmatched(llvm::ArrayRef<ParameterName> parameters) const {
    return train::listUnmatched(rules, parameters);
  }

private:
  llvm::SmallVector<Rule, 0> rules;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_INITIALIZERS_H
