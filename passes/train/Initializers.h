//===- Initializers.h - what parameters begin with --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Fans and gains are those of torch.nn.init. The fans of a weight that is multiplied are the
// dimensions that the product sums over, and the others, whichever come first in the file; those of
// a recurrent weight of ONNX, [directions, gates * hidden, inputs], are of one direction; those of
// any other weight are dimension 1 and dimension 0, each times the window behind them.
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

/// Numbers of elements of a weight that one output is computed from, and that one input goes to.
struct Fans {
  int64_t in = 0, out = 0;
};

/// The fans of a weight by the operations that read it. Nothing of fewer than two dimensions.
std::optional<Fans> findFans(loom::GetWeightOp read);

/// A distribution as --init says it.
class InitSpec {
public:
  /// Returns nothing, and says why as the end of a sentence, if the text is no distribution.
  static std::optional<InitSpec> parse(const std::string &text, std::string &error);

  bool needsFans() const;
  /// Whether all elements are equal.
  bool isConstant() const;
  /// Without seed and stream; `fans` are those of the weight where needsFans().
  Draw resolve(Fans fans) const;

private:
  enum class Kind { Constant, Uniform, Normal, Xavier, Kaiming };
  Kind kind = Kind::Constant;
  bool isNormal = false, usesFanOut = false; // of Xavier and Kaiming
  double first = 0, second = 0, gain = 1;
  friend struct InitReader;
};

/// What --init says: texts 'PATTERN: DISTRIBUTION', of which the last one that is about a parameter
/// counts.
class InitRules {
public:
  /// Returns nothing, and says why, if a text is none of kInitGrammar.
  static std::optional<InitRules> parse(llvm::ArrayRef<std::string> texts, std::string &error);

  bool isEmpty() const { return rules.empty(); }
  struct Rule {
    std::string text;
    ParameterPattern pattern;
    InitSpec spec;
  };
  /// Null where no rule is about the parameter.
  const Rule *lookup(ParameterName parameter) const;
  /// The texts that are about none of these parameters.
  llvm::SmallVector<llvm::StringRef> listUnmatched(llvm::ArrayRef<ParameterName> parameters) const {
    return train::listUnmatched(rules, parameters);
  }

private:
  llvm::SmallVector<Rule, 0> rules;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_INITIALIZERS_H
