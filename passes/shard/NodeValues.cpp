//===- NodeValues.cpp - the values of ONNX nodes --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Loom.h"
#include "passes/shard/DeviceConfiguration.h"

using namespace mlir;
using namespace gridloom;

static SmallVector<std::string> getNodes(Operation *op) {
  SmallVector<std::string> nodes;
  std::string names = loom::getNodeName(op->getLoc());
  for (StringRef part : llvm::split(names, " + "))
    nodes.push_back(part.str());
  return nodes;
}

NodeValues::NodeValues(func::FuncOp func) {
  for (Operation &op : func.front().without_terminator()) {
    if (op.hasAttr(dist::kPart))
      continue;
    for (const std::string &node : getNodes(&op))
      byNode[node].push_back(&op);
  }
}

ArrayRef<Operation *> NodeValues::getOperations(StringRef node) const {
  auto found = byNode.find(node);
  return found == byNode.end() ? ArrayRef<Operation *>() : ArrayRef(found->second);
}

/// True when something but the node itself reads the value.
static bool leavesNode(Value value, StringRef node) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    return isa<func::ReturnOp>(user) || !llvm::is_contained(getNodes(user), node);
  });
}

Value NodeValues::find(const NodeResult &result) const {
  SmallVector<Value> candidates;
  for (Operation *op : getOperations(result.node)) {
    SmallVector<std::string> nodes = getNodes(op);
    // The result of an operation fused from several nodes belongs to the last one: the others'
    // results are read inside.
    bool isLast = nodes.size() == 1 || result.isOutput ||
                  llvm::any_of(result.readers, [&](const std::string &reader) {
                    return !llvm::is_contained(nodes, reader);
                  });
    for (Value value : op->getResults())
      if (isLast && leavesNode(value, result.node))
        candidates.push_back(value);
  }
  if (candidates.empty())
    return {};
  if (result.count == 1)
    return candidates.back();
  return candidates.size() == result.count ? candidates[result.index] : Value();
}
