//===- Bisect.cpp - the first node where a split program differs ----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/Bisect.h"

#include "dialects/dist/Sharding.h"

#include "llvm/ADT/MapVector.h"

#include <set>

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

namespace {

/// A value of the split program: the expected tensor, overwritten by the shards that were computed.
/// If replicas differ, a wrong one stays.
struct Gathered {
  HostTensor tensor;
  std::set<std::vector<int64_t>> wrong; // starts

  void insert(const HostTensor &shard, const ShardBox &box, const HostTensor &expected,
              Tolerance tolerance) {
    std::vector<int64_t> key(box.starts.begin(), box.starts.end());
    if (wrong.contains(key))
      return;
    tensor.insert(shard, box.starts);
    if (!compare(expected.extract(box.starts, box.sizes), tensor.extract(box.starts, box.sizes),
                 tolerance)
             .equal)
      wrong.insert(key);
  }
};

/// A result of the unsplit program that another node reads, and what the split program has for it.
struct NodeValue {
  Operation *op;
  std::string node;
  HostTensor expected;
  /// The operation results of the split program that may be this value.
  llvm::MapVector<Value, Gathered> candidates;
};

class Bisector {
public:
  Bisector(bool partitioned, const DeviceMesh &mesh, Tolerance tolerance)
      : partitioned(partitioned), mesh(mesh), tolerance(tolerance) {}

  void recordExpected(Operation *op, ArrayRef<HostTensor> results);
  void recordActual(Operation *op, Place place, ArrayRef<HostTensor> results);
  std::string report() const;

private:
  bool partitioned;
  const DeviceMesh &mesh;
  Tolerance tolerance;
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
        if (isNew)
          entry->second.tensor = value.expected;
        entry->second.insert(tensor, box, value.expected, tolerance);
      }
    }
  }
}

std::string Bisector::report() const {
  for (const NodeValue &value : values) {
    // The candidate that is nearest; a node's other values may have the same shape.
    const HostTensor *nearest = nullptr;
    Difference least;
    for (const auto &[result, actual] : value.candidates) {
      Difference difference = compare(value.expected, actual.tensor, tolerance);
      if (!nearest || difference.equal || (!least.equal && difference.wrong < least.wrong)) {
        nearest = &actual.tensor;
        least = difference;
      }
    }
    if (nearest && !least.equal)
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
  Bisector bisector(split.specialisation->partitioned, shape.getMesh(), tolerance);
  options.observer = [&](Operation *op, Place, ArrayRef<HostTensor> results) {
    bisector.recordExpected(op, results);
  };
  if (failed(Interpreter(unsplit.module, weights, options).run(*unsplit.specialisation, inputs)))
    return failure();
  options.observer = [&](Operation *op, Place place, ArrayRef<HostTensor> results) {
    bisector.recordActual(op, place, results);
  };
  // A run that fails has recorded results up to there.
  (void)Interpreter(split.module, weights, options).run(*split.specialisation, inputs);
  return bisector.report();
}
