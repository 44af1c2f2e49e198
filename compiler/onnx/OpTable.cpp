//===- OpTable.cpp - the operators the importer knows ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace gridloom::onnx_import;

using Table = StringMap<SmallVector<const OpRule *, 1>>;

static const Table &getTable() {
  static const Table table = [] {
    Table table;
    for (ArrayRef<OpRule> rules : {getConstantRules(),        getElementwiseRules(),
                                   getActivationRules(),      getShapeRules(),
                                   getSelectionRules(),       getIndexingRules(),
                                   getReductionRules(),       getContractionRules(),
                                   getNormalizationRules(),   getConvolutionRules(),
                                   getPoolingRules(),         getResizeRules(),
                                   getSamplingRules(),        getAttentionRules(),
                                   getLinearAttentionRules(), getRecurrentRules(),
                                   getContribRules(),         getContribAttentionRules(),
                                   getQuantizationRules(),    getLossRules(),
                                   getControlRules(),         getContribQuantizedRules(),
                                   getSignalRules(),          getFourierRules(),
                                   getSequenceRules(),        getDataSelectionRules(),
                                   getTrainingRules(),        getOptimizerRules(),
                                   getGradientRules()})
      for (const OpRule &rule : rules)
        table[getQualifiedName(rule.domain, rule.name)].push_back(&rule);
    return table;
  }();
  return table;
}

std::string gridloom::onnx_import::getQualifiedName(StringRef domain, StringRef opType) {
  domain = normalizeDomain(domain);
  return domain.empty() ? opType.str() : (domain + "." + opType).str();
}

const OpRule *gridloom::onnx_import::findRule(StringRef name, int64_t opset) {
  auto place = getTable().find(name);
  if (place == getTable().end())
    return nullptr;
  for (const OpRule *rule : place->second)
    if (rule->firstOpset <= opset && opset <= rule->lastOpset)
      return rule;
  return nullptr;
}

bool gridloom::onnx_import::movesElements(StringRef name) {
  return StringSwitch<bool>(name)
      .Cases({"Constant", "Identity", "Dropout", "Expand", "Tile", "Transpose", "Where"}, true)
      .Cases({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Pad"},
             true)
      .Cases({"DepthToSpace", "SpaceToDepth"}, true)
      .Cases({"Gather", "GatherElements", "GatherND", "TensorScatter"}, true)
      .Default(false);
}

bool gridloom::onnx_import::takesNarrow(StringRef name) {
  return movesElements(name) ||
         StringSwitch<bool>(name)
             .Cases({"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"}, true)
             .Cases({"com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear"}, true)
             .Cases({"Shape", "Size"}, true)
             .Default(false);
}

bool gridloom::onnx_import::takesFloat8(StringRef name) {
  return takesNarrow(name) || StringSwitch<bool>(name)
                                  .Cases({"BitCast", "IsInf", "IsNaN"}, true)
                                  .Cases({"If", "Loop", "Scan"}, true)
                                  .Default(false);
}

bool gridloom::onnx_import::takesOnlyFloats(StringRef name) {
  return StringSwitch<bool>(name)
      .Cases({"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh"},
             true)
      .Cases({"Celu", "Elu", "Erf", "Exp", "Gelu", "Log", "LpPool", "Mish", "Selu"}, true)
      .Cases({"Sigmoid", "Softplus", "Sqrt", "SwiGLU", "Swish", "Tan", "Tanh"}, true)
      .Cases({"GlobalLpPool", "LogSoftmax", "LpNormalization", "Softmax"}, true)
      .Cases({"LayerNormalization", "MeanVarianceNormalization", "RMSNormalization"}, true)
      .Cases({"com.microsoft.Gelu", "com.microsoft.QuickGelu"}, true)
      .Default(false);
}

bool gridloom::onnx_import::takesNoFloats(StringRef name) {
  return StringSwitch<bool>(name)
      .Cases({"And", "Not", "Or"}, true)
      .Cases({"BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"}, true)
      .Default(false);
}

bool gridloom::onnx_import::takesSequences(StringRef name) {
  return name.starts_with("Sequence") ||
         StringSwitch<bool>(name)
             .Cases({"ConcatFromSequence", "Identity", "Loop"}, true)
             .Cases({"OptionalGetElement", "OptionalHasElement"}, true)
             .Default(false);
}

std::vector<StringRef> gridloom::onnx_import::getSupportedOperators() {
  std::vector<StringRef> names;
  for (const auto &entry : getTable())
    names.push_back(entry.getKey());
  llvm::sort(names);
  return names;
}
