//===- Gradient.cpp - derivatives as nodes --------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Gradient of domain ai.onnx.preview.training, version 1, names tensors of the graph: y as a
// function of xs and zs, whatever computed those. Its operands are the values of xs and zs that the
// derivative by xs is taken at, which may differ from the graph's.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"
#include "dialects/loom/Control.h"
#include "dialects/loom/Derivatives.h"
#include "passes/differentiate/Gradients.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

namespace {

/// The computation of y from xs and zs, as a function of its own.
class Slice {
public:
  /// `ends` are the graph's xs and zs, `points` the operands.
  Slice(Node &node, Value y, ArrayRef<Value> ends, ArrayRef<Value> points)
      : node(node), y(y), ends(ends), points(points) {}

  /// The derivatives of the sum of y by the first `count` ends, zero where y does not depend on
  /// one. Fails with a diagnostic.
  FailureOr<SmallVector<Value>> differentiate(StringRef name, ArrayRef<std::string> xs);

private:
  void find();
  void build();
  void takeBack();

  Node &node;
  Value y;
  ArrayRef<Value> ends, points;
  /// Operations that y needs, up to the ends, and block arguments that they read.
  llvm::SmallPtrSet<Operation *, 32> needed;
  llvm::SetVector<Value> free;
  func::FuncOp function; ///< in the module while this differentiates
  /// Map the graph's values into the function, and the function's to the place of the node.
  IRMapping into, back;
};

void Slice::find() {
  SmallVector<Value> pending{y};
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (llvm::is_contained(ends, value))
      continue;
    Operation *op = value.getDefiningOp();
    if (!op)
      free.insert(value);
    else if (needed.insert(op).second)
      llvm::append_range(pending, op->getOperands());
  }
}

/// Copies the operations in their order.
void Slice::build() {
  function = node.getImporter().createBody(node.getLoc(), "gradient");
  Block &block = function.front();
  auto addArgument = [&](Value outside, Value point) {
    into.map(outside, block.addArgument(outside.getType(), outside.getLoc()));
    back.map(into.lookup(outside), point);
  };
  for (auto [end, point] : llvm::zip_equal(ends, points))
    addArgument(end, point);
  for (Value value : free)
    addArgument(value, value);
  OpBuilder builder = OpBuilder::atBlockEnd(&block);
  for (Operation &op : *node.getBuilder().getInsertionBlock())
    if (needed.contains(&op)) {
      Operation *copy = builder.clone(op, into);
      // If the points are the graph's own values, the results exist already.
      if (ends == points)
        back.map(copy->getResults(), op.getResults());
    }
  func::ReturnOp::create(builder, node.getLoc(), into.lookup(y));
}

void Slice::takeBack() {
  for (Operation &op : function.front().without_terminator())
    if (op.getNumResults() == 0 || !back.contains(op.getResult(0)))
      node.getBuilder().clone(op, back);
}

/// Whether a body that the operation runs reads a weight of `names`.
static bool readsInside(Operation *op, ArrayRef<std::string> names) {
  return llvm::any_of(loom::getBodies(op), [&](const loom::BodyLink &link) {
    return llvm::any_of(func::FuncOp(link.body).front(), [&](Operation &inner) {
      auto weight = dyn_cast<loom::GetWeightOp>(inner);
      return weight ? llvm::is_contained(names, weight.getName()) : readsInside(&inner, names);
    });
  });
}

FailureOr<SmallVector<Value>> Slice::differentiate(StringRef name, ArrayRef<std::string> xs) {
  find();
  build();
  GradientSources sources;
  for (auto [x, end] : llvm::zip(xs, ends))
    sources[StringAttr::get(node.getContext(), x)].push_back(into.lookup(end));
  Value of = into.lookup(y);
  OpBuilder builder(function.front().getTerminator());
  Term one = Term(builder, node.getLoc(), of).splat(1);
  Gradients sweep(function, (node.getName() + ": '" + name + "'").str(), sources);
  auto gradients = sweep.build({{of, one}}, [&](Operation *op) { return readsInside(op, xs); });
  if (succeeded(gradients))
    takeBack();
  function.erase();
  if (failed(gradients))
    return failure();
  SmallVector<Value> results;
  for (auto [x, point] : llvm::zip(xs, points)) {
    Value gradient = gradients->lookup(StringAttr::get(node.getContext(), x));
    results.push_back(gradient ? back.lookup(gradient) : node.splatLike(point, 0));
  }
  return results;
}

} // namespace

/// The graph's value called `name`. Null, with an error, if it cannot be differentiated (by).
static Value getFloats(Node &node, StringRef attribute, StringRef name) {
  Value value = node.getImporter().getValue(name, node);
  if (!value || loom::isFloatTensor(value))
    return value;
  node.error() << attribute << " names '" << name << "', which is " << value.getType()
               << "; only floats have gradients";
  return {};
}

/// Fails, with an error, where the operands are not values of the graph's `ends`.
static LogicalResult checkPoints(Node &node, ArrayRef<std::string> names, ArrayRef<Value> ends) {
  for (auto [i, name, end] : llvm::enumerate(names, ends)) {
    Value point = node.operand(i);
    if (!point)
      return failure();
    if (point.getType() != end.getType())
      return node.error() << "operand " << i << " is " << point.getType() << ", but '" << name
                          << "', whose value it gives, is " << end.getType();
  }
  return success();
}

static LogicalResult importGradient(Node &node) {
  std::string y = node.stringAttribute("y", "");
  auto xs = node.stringsAttribute("xs"), zs = node.stringsAttribute("zs");
  if (y.empty() || !xs || xs->empty())
    return node.error() << "lacks attribute " << (y.empty() ? "'y'" : "'xs'");
  if (node.getImporter().isInBody())
    return node.error() << "is in a loop or branch that is not unrolled (--unroll)";
  std::vector<std::string> names = *xs;
  if (zs)
    llvm::append_range(names, *zs);
  if (node.getNumOperands() != names.size())
    return node.error() << "has " << node.getNumOperands() << " operands for " << names.size()
                        << " tensors in xs and zs";
  Value target = getFloats(node, "y", y);
  SmallVector<Value> ends, points;
  for (auto [i, name] : llvm::enumerate(names)) {
    bool isX = i < xs->size();
    Value end = isX ? getFloats(node, "xs", name) : node.getImporter().getValue(name, node);
    if (!end || !target)
      return failure();
    if (isX && end.getDefiningOp<loom::ConstantOp>())
      return node.error() << "xs names '" << name << "', which is a constant of the program, as "
                          << "all initializers of one element are; make it an input";
    if (const auto *same = llvm::find(ends, end); same != ends.end())
      return node.error() << "xs and zs name '" << names[same - ends.begin()] << "' and '" << name
                          << "', which are one value";
    ends.push_back(end);
  }
  if (failed(checkPoints(node, names, ends)))
    return failure();
  for (unsigned i = 0; i < names.size(); ++i)
    points.push_back(node.operand(i));
  auto gradients = Slice(node, target, ends, points).differentiate(y, *xs);
  if (failed(gradients))
    return failure();
  for (auto [i, gradient] : llvm::enumerate(*gradients))
    if (failed(node.setResult(i, gradient)))
      return failure();
  return success();
}

ArrayRef<OpRule> onnx_import::getGradientRules() {
  static constexpr OpRule rules[] = {{"Gradient", 1, 1, importGradient, kTrainingDomain}};
  return rules;
}
