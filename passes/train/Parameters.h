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

/// The grammar of --param, for --help.
extern const char *const kParameterGrammar;

/// How the settings of one parameter differ from the others'.
struct ParameterSettings {
  bool isFrozen = false;                  ///< keeps its value and has no optimizer state
  double rateFactor = 1;                  ///< times the learning rate
  std::optional<double> weightDecay = {}; ///< instead of the optimizer's
};

/// A parameter as rules match it.
struct ParameterName {
  llvm::StringRef name;
  int64_t rank;
};

/// The parameters that a rule applies to.
class ParameterPattern {
public:
  /// Parses a name, in which a star stands for any text, or 'rank<=N'. Returns the problem as the
  /// end of a sentence, or "".
  std::string parse(llvm::StringRef text);
  /// Parses a rule 'PATTERN: REST' and sets `rest`; returns the problem as parse does.
  std::string parseRule(llvm::StringRef rule, llvm::StringRef &rest);
  bool matches(ParameterName parameter) const;

private:
  std::string name;
  std::optional<int64_t> maxRank; // instead of the name
};

/// The texts of rules, each with a `pattern`, that match none of these parameters.
template <typename Rules>
llvm::SmallVector<llvm::StringRef> listUnmatched(const Rules &rules,
                                                 llvm::ArrayRef<ParameterName> parameters) {
  llvm::SmallVector<llvm::StringRef> unmatched;
  for (const auto &rule : rules)
    if (llvm::none_of(parameters, [&](ParameterName each) { return rule.pattern.matches(each); }))
      unmatched.push_back(rule.text);
  return unmatched;
}

/// The rules of --param: texts 'PATTERN: SETTING, ...', each for the parameters whose name matches
/// the pattern, in which a star stands for any text, or whose rank is at most N if it is 'rank<=N'.
/// If two texts set the same thing of a parameter, the later one applies.
class ParameterRules {
public:
  /// Returns nullopt, with the reason in `error`, if a text does not match kParameterGrammar.
  static std::optional<ParameterRules> parse(llvm::ArrayRef<std::string> texts, std::string &error);

  ParameterSettings lookup(ParameterName parameter) const;
  /// The texts that match none of these parameters.
  llvm::SmallVector<llvm::StringRef> listUnmatched(llvm::ArrayRef<ParameterName> parameters) const {
    return train::listUnmatched(rules, parameters);
  }

private:
  struct Rule {
    std::string text;
    ParameterPattern pattern;
    std::optional<bool> isFrozen;
    std::optional<double> rateFactor, weightDecay;

    /// Returns the problem with a setting, or "".
    std::string read(llvm::StringRef setting);
    std::string parse(llvm::StringRef whole);
  };
  llvm::SmallVector<Rule, 0> rules;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_PARAMETERS_H
