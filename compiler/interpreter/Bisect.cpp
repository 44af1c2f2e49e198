//===- Bisect.cpp - the first node where a split program differs ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Bisect.h"

#include "dialects/dist/Sharding.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

namespace {

/// A result of the unsplit program that another node reads, and what the split program has for it.
struct NodeValue {
  Operation *op;
  std::string node;
  HostTensor expected;
  /// Per operation result of the split program that may be this value: its shards put together.
  llvm::MapVector<Value, HostTensor> candidates;
};

class Bisector {
public:
  Bisector(bool partitioned, const DeviceMesh &mesh) : partitioned(partitioned), mesh(mesh) {}

  void recordExpected(Operation *op, ArrayRef<HostTensor> results);
  void recordActual(Operation *op, Place place, ArrayRef<HostTensor> results);
  std::string report(Tolerance tolerance) const;

private:
  bool partitioned;
  const DeviceMesh &mesh;
  std::vector<NodeValue> values;
  llvm::StringMap<SmallVector<size_t>> byNode;
};

/// True when something outside of the operation's node reads the value.
bool leavesNode(Value value, StringRef node) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    return isa<func::ReturnOp>(user) || loom::getNodeName(user->getLoc()) != node;
  });
}

void Bisector::recordExpected(Operation *op, ArrayRef<HostTensor> results) {
  std::string node = loom::getNodeName(op->getLoc());
  if (node.empty())
    return;
  for (auto [result, tensor] : llvm::zip_equal(op->getResults(), results)) {
    if (!leavesNode(result, node))
      continue;
    byNode[node].push_back(values.size());
    values.push_back({op, node, tensor, {}});
  }
}

void Bisector::recordActual(Operation *op, Place place, ArrayRef<HostTensor> results) {
  SmallVector<StringRef> nodes;
  std::string joined = loom::getNodeName(op->getLoc());
  StringRef(joined).split(nodes, " + ");
  for (auto [result, tensor] : llvm::zip_equal(op->getResults(), results)) {
    dist::ShardingAttr sharding = partitioned ? dist::getSharding(result) : dist::ShardingAttr();
    if (partitioned && (!sharding || !sharding.getUnreduced().empty()))
      continue;
    for (StringRef node : nodes) {
      for (size_t index : byNode.lookup(node)) {
        NodeValue &value = values[index];
        if (value.expected.getKind() != tensor.getKind() ||
            value.expected.getRank() != tensor.getRank())
          continue;
        ShardBox box = getShardBox(mesh, sharding, value.expected.getShape(), place);
        if (ArrayRef(box.sizes) != tensor.getShape())
          continue;
        auto [entry, isNew] = value.candidates.try_emplace(result);
        if (isNew) {
          entry->second = HostTensor(tensor.getKind(), value.expected.getShape());
          entry->second.fillWithPoison();
        }
        entry->second.insert(tensor, box.starts);
      }
    }
  }
}

std::string Bisector::report(Tolerance tolerance) const {
  for (const NodeValue &value : values) {
    if (value.candidates.empty())
      continue;
    // The candidate that is nearest; a node's other values may have the same shape.
    const HostTensor *nearest = nullptr;
    Difference least;
    for (const auto &[result, actual] : value.candidates) {
      Difference difference = compare(value.expected, actual, tolerance);
      if (!nearest || difference.equal || (!least.equal && difference.wrong < least.wrong)) {
        nearest = &actual;
        least = difference;
      }
    }
    if (!least.equal)
      return "node '" + value.node + "' (" + value.op->getName().getStringRef().str() + ", " +
             describeType(value.expected) +
             ") is the first that differs: " + describe(least, value.expected, *nearest);
  }
  return "no node's results differ";
}

} // namespace

FailureOr<std::string> gridloom::bisect(ProgramRun unsplit, ProgramRun split,
                                        WeightProvider &weights, const NamedTensors &inputs,
                                        InterpreterOptions options, Tolerance tolerance) {
  Interpreter shape(split.module, weights);
  Bisector bisector(split.specialisation->partitioned, shape.getMesh());
  options.observer = [&](Operation *op, Place, ArrayRef<HostTensor> results) {
    bisector.recordExpected(op, results);
  };
  if (failed(Interpreter(unsplit.module, weights, options).run(*unsplit.specialisation, inputs)))
    return failure();
  options.observer = [&](Operation *op, Place place, ArrayRef<HostTensor> results) {
    bisector.recordActual(op, place, results);
  };
  // A run that fails has shown something on the way.
  (void)Interpreter(split.module, weights, options).run(*split.specialisation, inputs);
  return bisector.report(tolerance);
}
