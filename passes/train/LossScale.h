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

/// The factor of a loss's mean before it is differentiated, so that gradients in f16 neither vanish
/// nor overflow (Micikevicius et al. 2018, section 3.2). If the settings are powers of two, so is
/// the scale, and it changes no digit of a gradient that f16 can hold.
class LossScaleSpec {
public:
  /// Returns nullopt, with the reason in `error`, if the text does not match kLossScaleGrammar.
  static std::optional<LossScaleSpec> parse(const std::string &text, std::string &error);

  /// "off": no scale.
  bool isOff() const { return kind == Kind::Off; }
  /// Whether the scale changes; otherwise good steps are not counted.
  bool isDynamic() const { return kind == Kind::Dynamic; }
  /// The smallest value of the scale; a static scale is its own.
  double getMinimum() const { return isDynamic() ? min : init; }

  /// The scale of a step, f32 []: the state's former value, or the initial scale if that is 0.
  Term begin(const Term &state) const;
  /// The scale, f32 [], and the number of consecutive committed steps since it changed, i64 [].
  struct State {
    Term scale;
    std::optional<Term> good;
  };
  /// The state after a step. If the step was not committed (`committed`, i1 []), the scale is
  /// multiplied by `backoff`, down to `min`; after `interval` consecutive committed steps it is
  /// multiplied by `growth`, up to 2^60, so that its product with any count is finite.
  State update(const State &now, const Term &committed) const;

private:
  enum class Kind { Off, Static, Dynamic } kind = Kind::Off;
  double init = 65536, growth = 2, backoff = 0.5, min = 1;
  int64_t interval = 2000;

  std::string read(const std::string &key, const std::string &word);
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_LOSSSCALE_H
