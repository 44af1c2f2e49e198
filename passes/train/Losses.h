//===- Losses.h - losses and metrics of a training step ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A loss is a sum over elements and a count that its mean divides by, separate, so that
// micro-batches, ignored labels and parts of different sizes add up exactly.
//
//   cross_entropy   of each row of logits along the class axis, by the class index of the row:
//                   -log softmax(logits)[label]. With smoothing e, the label's probability is
//                   1 - e + e / C of C classes, each other one's e / C (Szegedy et al. 2016,
//                   section 7). Rows of the ignored label count for nothing, whatever their logits
//                   are. A label that is no class makes the loss NaN. With weights w of the
//                   classes, each class's term is multiplied by its own, and the mean divides by
//                   the sum of the labels' weights, as PyTorch's CrossEntropyLoss has it.
//   kl              of each row, from the target's probabilities t to softmax(logits):
//                   sum of t * (log t - log softmax(logits)), 0 where t is 0. Logarithms of
//                   probabilities are logits, too: softmax gives the probabilities back.
//   mse             squared difference of each element.
//   bce             of each element, with target t in [0, 1] and p = logistic(logit):
//                   -t * log p - (1 - t) * log(1 - p).
//   output          the sum of a float output of the model.
//
// The count is the number of rows or elements, or the weight of the rows' labels, but 1 for
// `output` and with reduction=sum.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_LOSSES_H
#define GRIDLOOM_PASSES_TRAIN_LOSSES_H

#include "passes/differentiate/Term.h"

#include <optional>
#include <string>

namespace gridloom::train {

/// A loss given to --loss.
struct LossSpec {
  enum class Kind { Output, CrossEntropy, MeanSquaredError, BinaryCrossEntropy, KlDivergence };

  Kind kind = Kind::Output;
  std::string text;       ///< as the user wrote it
  std::string prediction; ///< an output of the model
  std::string target;     ///< an input, known or new, or another output; empty for Output
  double factor = 1;      ///< finite, not 0; the caller multiplies sum / count by it
  double labelSmoothing = 0;
  llvm::SmallVector<double, 0> classWeights; ///< of cross_entropy; empty: 1 each
  std::optional<int64_t> ignoreIndex;        ///< may be outside of the classes
  int64_t axis = -1;                         ///< dimension of the classes; from the end if negative
  bool isMean = true;

  /// Parses kLossGrammar; a word alone is an output's name, whatever the name. Returns nullopt,
  /// with one line in `error`, if the text is not a loss.
  static std::optional<LossSpec> parse(const std::string &text, std::string &error);
};

/// A number that is reported beside the loss, given to --metric: the share of rows in which the
/// largest logit, the first of equal ones, is the label's.
struct MetricSpec {
  std::string name; ///< of the output: "accuracy"
  std::string text; ///< as the user wrote it
  std::string prediction, target;
  std::optional<int64_t> ignoreIndex;
  int64_t axis = -1;

  /// Parses kMetricGrammar, as LossSpec::parse does.
  static std::optional<MetricSpec> parse(const std::string &text, std::string &error);
};

/// The grammars of the parsers, for help and errors.
extern const char *const kLossGrammar;
extern const char *const kMetricGrammar;

/// The type of a new input that is the target: for cross_entropy and metrics i64 without the class
/// axis, for others the prediction's type. Null, with one line in `error`, if the prediction does
/// not fit; null with an empty `error` for Kind::Output.
mlir::RankedTensorType getTargetType(const LossSpec &loss, mlir::RankedTensorType prediction,
                                     std::string &error);
mlir::RankedTensorType getTargetType(const MetricSpec &metric, mlir::RankedTensorType prediction,
                                     std::string &error);

/// The sum over all elements and the number by which a mean divides it: f32 [], or f64 [] if the
/// prediction is f64.
struct LossParts {
  Term sum, count;
  double numRows; ///< or elements: the count if no label is ignored; 1 for a sum
};

/// Builds the loss at the prediction's place. Predictions are floats; the target has the shape of
/// getTargetType, with integers of any width for labels, else floats of any width. Computes in f32,
/// or in f64 if the prediction is f64. Along the class axis there are only elementwise operations,
/// and reductions whose cotangent nothing else shares, so that a split class dimension stays split.
/// Returns nullopt, with one line in `error` and nothing built, if shapes or types do not fit.
std::optional<LossParts> buildLoss(const LossSpec &loss, Term prediction,
                                   std::optional<Term> target, std::string &error);

/// Builds a metric: the number of correct rows and the number of rows, both without ignored ones.
/// As buildLoss; labels that are no class are never correct.
std::optional<LossParts> buildMetric(const MetricSpec &metric, Term prediction, Term target,
                                     std::string &error);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_LOSSES_H
