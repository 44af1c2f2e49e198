//===- LossScale.h - the scale of a loss ------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_LOSSSCALE_H
#define GRIDLOOM_PASSES_TRAIN_LOSSSCALE_H

#include "passes/differentiate/Term.h"

#include <optional>
#include <string>

namespace gridloom::train {

/// How --loss-scale is written, for --help.
extern const char *const kLossScaleGrammar;

/// What the mean of a loss is multiplied by before it is differentiated, so that gradients in f16
/// neither vanish nor overflow (Micikevicius et al. 2018, section 3.2). It is a power of two where
/// the settings are, so that it changes no digit of a gradient that f16 holds.
class LossScaleSpec {
public:
  /// Returns nothing, and says why, if the text is none of kLossScaleGrammar.
  static std::optional<LossScaleSpec> parse(const std::string &text, std::string &error);

  /// "off": there is none.
  bool isOff() const { return kind == Kind::Off; }
  /// Whether the scale changes; else there is no count of good steps.
  bool isDynamic() const { return kind == Kind::Dynamic; }
  /// What it does not fall below: a number that is given falls not at all.
  double getMinimum() const { return isDynamic() ? min : init; }

  /// The scale of a step, f32 []: the state as it was before, or what the scale begins with, which
  /// a state of 0 stands for.
  Term begin(const Term &state) const;
  /// Scale f32 [] and number of steps in a row that were taken since it changed, i64 [].
  struct State {
    Term scale;
    std::optional<Term> good;
  };
  /// Those after a step. Where it was not taken (`committed`, i1 []) the scale is multiplied by
  /// `backoff`, and is at least `min`; after `interval` steps in a row that were, by `growth`, and
  /// is at most 2^60, of which the product with any count is finite.
  State update(const State &now, const Term &committed) const;

private:
  enum class Kind { Off, Static, Dynamic } kind = Kind::Off;
  double init = 65536, growth = 2, backoff = 0.5, min = 1;
  int64_t interval = 2000;

  std::string read(const std::string &key, const std::string &word);
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_LOSSSCALE_H
