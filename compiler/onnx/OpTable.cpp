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
    for (ArrayRef<OpRule> rules :
         {getConstantRules(),     getElementwiseRules(), getActivationRules(),
          getShapeRules(),        getSelectionRules(),   getIndexingRules(),
          getReductionRules(),    getContractionRules(), getNormalizationRules(),
          getConvolutionRules(),  getPoolingRules(),     getResizeRules(),
          getSamplingRules(),     getAttentionRules(),   getLinearAttentionRules(),
          getRecurrentRules(),    getContribRules(),     getContribAttentionRules(),
          getQuantizationRules(), getControlRules()})
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

bool gridloom::onnx_import::takesFloat8(StringRef name) {
  return StringSwitch<bool>(name)
      .Cases({"Cast", "CastLike", "BitCast", "IsInf", "IsNaN"}, true)
      .Cases({"QuantizeLinear", "DequantizeLinear"}, true)
      .Cases({"com.microsoft.QuantizeLinear", "com.microsoft.DequantizeLinear"}, true)
      .Cases({"Identity", "Dropout", "If", "Loop", "Scan", "Shape", "Size"}, true)
      .Cases({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile"}, true)
      .Cases({"Concat", "Split", "Slice", "Pad", "DepthToSpace", "SpaceToDepth"}, true)
      .Cases({"Gather", "GatherElements", "GatherND", "TensorScatter", "Where"}, true)
      .Default(false);
}

std::vector<StringRef> gridloom::onnx_import::getSupportedOperators() {
  std::vector<StringRef> names;
  for (const auto &entry : getTable())
    names.push_back(entry.getKey());
  llvm::sort(names);
  return names;
}
