//===- Parameters.h - settings of single parameters -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_PARAMETERS_H
#define GRIDLOOM_PASSES_TRAIN_PARAMETERS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace gridloom::train {

/// How --param is written, for --help.
extern const char *const kParameterGrammar;

/// How one parameter differs from the others.
struct ParameterSettings {
  bool isFrozen = false;                  ///< keeps its value and has no state of the optimizer's
  double rateFactor = 1;                  ///< times the learning rate
  std::optional<double> weightDecay = {}; ///< instead of the optimizer's
};

/// A parameter as rules see it.
struct ParameterName {
  llvm::StringRef name;
  int64_t rank;
};

/// Which parameters a text is about.
class ParameterPattern {
public:
  /// Reads a name, in which a star stands for any text, or 'rank<=N'. Returns what is wrong as the
  /// end of a sentence, or nothing.
  std::string parse(llvm::StringRef text);
  /// Reads the pattern of a rule 'PATTERN: REST', and gives the rest; returns the like.
  std::string parseRule(llvm::StringRef rule, llvm::StringRef &rest);
  bool matches(ParameterName parameter) const;

private:
  std::string name;
  std::optional<int64_t> maxRank; // instead of the name
};

/// The texts of rules, each with a `pattern`, that are about none of these parameters.
template <typename Rules>
llvm::SmallVector<llvm::StringRef> listUnmatched(const Rules &rules,
                                                 llvm::ArrayRef<ParameterName> parameters) {
  llvm::SmallVector<llvm::StringRef> unmatched;
  for (const auto &rule : rules)
    if (llvm::none_of(parameters, [&](ParameterName each) { return rule.pattern.matches(each); }))
      unmatched.push_back(rule.text);
  return unmatched;
}

/// What --param says: texts 'PATTERN: SETTING, ...', each about the parameters whose name is the
/// pattern, in which a star stands for any text, or whose rank is at most N if it is 'rank<=N'.
/// Where two texts say the same thing of a parameter, the later one counts.
class ParameterRules {
public:
  /// Returns nothing, and says why, if a text is none of kParameterGrammar.
  static std::optional<ParameterRules> parse(llvm::ArrayRef<std::string> texts, std::string &error);

  ParameterSettings lookup(ParameterName parameter) const;
  /// The texts that are about none of these parameters.
  llvm::SmallVector<llvm::StringRef> listUnmatched(llvm::ArrayRef<ParameterName> parameters) const {
    return train::listUnmatched(rules, parameters);
  }

private:
  struct Rule {
    std::string text;
    ParameterPattern pattern;
    std::optional<bool> isFrozen;
    std::optional<double> rateFactor, weightDecay;

    /// Returns what is wrong with a setting, or nothing.
    std::string read(llvm::StringRef setting);
    std::string parse(llvm::StringRef whole);
  };
  llvm::SmallVector<Rule, 0> rules;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_PARAMETERS_H
