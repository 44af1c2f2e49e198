//===- Clipping.h - gradient clipping ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_CLIPPING_H
#define GRIDLOOM_PASSES_TRAIN_CLIPPING_H

#include "passes/differentiate/Term.h"

#include <optional>
#include <string>

namespace gridloom::train {

/// How --clip is written, for --help.
extern const char *const kClipGrammar;

/// The square root of the sum of the squares of all elements, f32 [] (f64 [] if a gradient is f64).
/// Needs at least one gradient. Each counts once, so tied weights must be one parameter. Infinite
/// if a square overflows: above 1.8e19 in f32.
Term getGlobalNorm(llvm::ArrayRef<Term> gradients);

/// A limit on gradients.
class ClipSpec {
public:
  /// Returns nullopt, with the reason in `error`, if the text does not match kClipGrammar.
  static std::optional<ClipSpec> parse(const std::string &text, std::string &error);

  /// Clips the gradients, each of its type; `norm` is their global norm. Limits of the norm
  /// multiply all by min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; limits
  /// of values apply to each element. If the norm is infinite, gradients may be NaN.
  llvm::SmallVector<Term> apply(llvm::ArrayRef<Term> gradients, Term norm) const;

private:
  enum class Kind { Norm, Value } kind = Kind::Norm;
  double limit = 0;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_CLIPPING_H
