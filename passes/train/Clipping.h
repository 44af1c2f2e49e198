//===- Clipping.h - limits of gradients -------------------------*- C++ -*-===//
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
/// Each gradient counts once, so tied weights must be one parameter. There is at least one. It is
/// infinite where a square overflows: above 1.8e19 in f32.
Term getGlobalNorm(llvm::ArrayRef<Term> gradients);

/// A limit of gradients.
class ClipSpec {
public:
  /// Returns nothing, and says why, if the text is none of kClipGrammar.
  static std::optional<ClipSpec> parse(const std::string &text, std::string &error);

  /// The gradients, each of its type, of which `norm` is the global norm. Limits of the norm
  /// multiply all by min(1, limit / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does; limits
  /// of values hold for each element. A gradient is NaN where the norm is infinite.
  llvm::SmallVector<Term> apply(llvm::ArrayRef<Term> gradients, Term norm) const;

private:
  enum class Kind { Norm, Value } kind = Kind::Norm;
  double limit = 0;
};

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_CLIPPING_H
