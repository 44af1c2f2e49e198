//===- OpTable.h - the operators the importer knows -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// One row per operator and form. A row covers the operator-set versions in which the operator has
// that form; a function covers differences that concern only where an argument comes from.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_OPTABLE_H
#define GRIDLOOM_COMPILER_ONNX_OPTABLE_H

#include "compiler/onnx/Node.h"

namespace gridloom::onnx_import {

/// Operator sets of the standard domain that can be imported. After 28, operators may have changed
/// in ways unknown here.
inline constexpr int64_t kFirstOpset = 1, kLastOpset = 28;
/// From this version on all operators have rows; before, only those that have not changed since.
/// Earlier versions had broadcasting as an attribute.
inline constexpr int64_t kFirstWholeOpset = 7;

/// ONNX's domain of derivatives and optimizers.
inline constexpr llvm::StringLiteral kTrainingDomain = "ai.onnx.preview.training";

/// Builds what a node becomes and sets its results. Fails with a diagnostic.
using ImportFunction = llvm::LogicalResult (*)(Node &node);

struct OpRule {
  llvm::StringLiteral name;
  /// Versions of the operator set of `domain`.
  int64_t firstOpset, lastOpset;
  ImportFunction import;
  /// Empty for the standard one.
  llvm::StringLiteral domain = "";
};

/// Normalises a domain's name: "ai.onnx" is the standard domain, "".
inline llvm::StringRef normalizeDomain(llvm::StringRef domain) {
  return domain == "ai.onnx" ? "" : domain;
}
/// "Add", "com.microsoft.Gelu"
std::string getQualifiedName(llvm::StringRef domain, llvm::StringRef opType);

/// The row of an operator, by its qualified name; null if there is none.
const OpRule *findRule(llvm::StringRef name, int64_t opset);
/// Whether an operator, by its qualified name, only moves elements of its operands.
bool movesElements(llvm::StringRef name);
/// Whether it may have operands of fewer than 8 bits an element: it converts them, or moves them
/// only.
bool takesNarrow(llvm::StringRef name);
/// The same for 8-bit floats.
bool takesFloat8(llvm::StringRef name);
/// Whether all its operands must be floats.
bool takesOnlyFloats(llvm::StringRef name);
/// Whether none of its operands may be floats.
bool takesNoFloats(llvm::StringRef name);
/// Whether it may have operands that are sequences.
bool takesSequences(llvm::StringRef name);
/// Qualified names of all operators with a row, sorted.
std::vector<llvm::StringRef> getSupportedOperators();

// Rows by kind.
llvm::ArrayRef<OpRule> getConstantRules();
llvm::ArrayRef<OpRule> getControlRules();
llvm::ArrayRef<OpRule> getElementwiseRules();
llvm::ArrayRef<OpRule> getActivationRules();
llvm::ArrayRef<OpRule> getShapeRules();
llvm::ArrayRef<OpRule> getIndexingRules();
llvm::ArrayRef<OpRule> getSelectionRules();
llvm::ArrayRef<OpRule> getReductionRules();
llvm::ArrayRef<OpRule> getContractionRules();
llvm::ArrayRef<OpRule> getNormalizationRules();
llvm::ArrayRef<OpRule> getLossRules();
llvm::ArrayRef<OpRule> getAttentionRules();
llvm::ArrayRef<OpRule> getLinearAttentionRules();
llvm::ArrayRef<OpRule> getContribRules();
llvm::ArrayRef<OpRule> getQuantizationRules();
llvm::ArrayRef<OpRule> getContribAttentionRules();
llvm::ArrayRef<OpRule> getContribQuantizedRules();
llvm::ArrayRef<OpRule> getRecurrentRules();
llvm::ArrayRef<OpRule> getConvolutionRules();
llvm::ArrayRef<OpRule> getPoolingRules();
llvm::ArrayRef<OpRule> getResizeRules();
llvm::ArrayRef<OpRule> getSamplingRules();
llvm::ArrayRef<OpRule> getSignalRules();
llvm::ArrayRef<OpRule> getFourierRules();
llvm::ArrayRef<OpRule> getSequenceRules();
llvm::ArrayRef<OpRule> getDataSelectionRules();
llvm::ArrayRef<OpRule> getTrainingRules();
llvm::ArrayRef<OpRule> getOptimizerRules();
llvm::ArrayRef<OpRule> getGradientRules();

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_OPTABLE_H
