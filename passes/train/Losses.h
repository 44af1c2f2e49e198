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

/// A loss as --loss says it.
struct LossSpec {
  enum class Kind { Output, CrossEntropy, MeanSquaredError, BinaryCrossEntropy, KlDivergence };

  Kind kind = Kind::Output;
  std::string text;       ///< as the user wrote it
  std::string prediction; ///< an output of the model
  std::string target;     ///< an input, known or new, or another output; empty for Output
  double factor = 1;      ///< finite, not 0; the caller multiplies sum / count by it
  double labelSmoothing = 0;
  llvm::SmallVector<double, 0> classWeights; ///< of cross_entropy; empty: 1 each
  std::optional<int64_t> ignoreIndex;        ///< may lie outside the classes
  int64_t axis = -1;                         ///< of the classes; from the end if negative
  bool isMean = true;

  /// Reads kLossGrammar; a word alone is an output's name, whatever the name. Returns nothing and
  /// one line in `error` where the text is not a loss.
  static std::optional<LossSpec> parse(const std::string &text, std::string &error);
};

/// A number that is reported beside the loss, as --metric says it: the share of rows in which the
/// largest of the logits, of equal ones the first, is at the label.
struct MetricSpec {
  std::string name; ///< of the output: "accuracy"
  std::string text; ///< as the user wrote it
  std::string prediction, target;
  std::optional<int64_t> ignoreIndex;
  int64_t axis = -1;

  /// Reads kMetricGrammar, as LossSpec::parse does.
  static std::optional<MetricSpec> parse(const std::string &text, std::string &error);
};

/// What the parsers read, for help and errors.
extern const char *const kLossGrammar;
extern const char *const kMetricGrammar;

/// The type of a new input that is the target: i64 without the class axis for cross_entropy and
/// metrics, for others that of the prediction. Null where the prediction does not fit, with one
/// line in `error`; for Kind::Output null with `error` empty.
mlir::RankedTensorType getTargetType(const LossSpec &loss, mlir::RankedTensorType prediction,
                                     std::string &error);
mlir::RankedTensorType getTargetType(const MetricSpec &metric, mlir::RankedTensorType prediction,
                                     std::string &error);

/// Sum over all elements and the number that a mean divides by: f32 [], f64 [] where the prediction
/// is f64.
struct LossParts {
  Term sum, count;
  double numRows; ///< or elements: what the count is where no label is ignored; 1 for a sum
};

/// Builds the loss at the prediction's place. Predictions are floats; the target has the shape of
/// getTargetType, integers of any width for labels, else floats of any width. All is computed in
/// f32, in f64 where the prediction is f64. Along the class axis there are only elementwise
/// operations and reductions, and reductions have no cotangent to share, so that a split class
/// dimension stays split. Returns nothing and one line in `error` where shapes or types do not
/// fit; then nothing was built.
std::optional<LossParts> buildLoss(const LossSpec &loss, Term prediction,
                                   std::optional<Term> target, std::string &error);

/// Builds a metric: the number of right rows and the number of rows, without ignored ones. As
/// buildLoss; labels that are no class are never right.
std::optional<LossParts> buildMetric(const MetricSpec &metric, Term prediction, Term target,
                                     std::string &error);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_LOSSES_H
