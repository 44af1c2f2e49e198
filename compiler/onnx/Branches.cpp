//===- Branches.cpp - If ---------------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ControlFlow.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Sequences.h"
#include "passes/simplify/Folding.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static SmallVector<DictionaryAttr> nameAll(MLIRContext *context, unsigned count,
                                           ArrayRef<std::string> names) {
  Builder builder(context);
  SmallVector<DictionaryAttr> attributes;
  for (unsigned i = 0; i < count; ++i) {
    std::string name = i < names.size() && !names[i].empty() ? names[i] : "#" + std::to_string(i);
    attributes.push_back(
        builder.getDictionaryAttr(builder.getNamedAttr(loom::kName, builder.getStringAttr(name))));
  }
  return attributes;
}

void Body::finish(ValueRange results, ArrayRef<std::string> argumentNames,
                  ArrayRef<std::string> resultNames) {
  MLIRContext *context = function.getContext();
  OpBuilder builder(context);
  builder.setInsertionPointToEnd(&getBlock());
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setFunctionType(
      builder.getFunctionType(getBlock().getArgumentTypes(), results.getTypes()));
  function.setAllArgAttrs(nameAll(context, function.getNumArguments(), argumentNames));
  function.setAllResultAttrs(nameAll(context, function.getNumResults(), resultNames));
  eraseDeadOps(function);
}

void Body::setCaptures(unsigned carried, ArrayRef<Value> all) {
  Block &block = getBlock();
  unsigned old = block.getNumArguments();
  Captures next;
  for (Value outer : all) {
    Value argument = block.addArgument(outer.getType(), outer.getLoc());
    if (Value before = captures.lookup(outer))
      before.replaceAllUsesWith(argument);
    next[outer] = argument;
  }
  block.eraseArguments(carried, old - carried);
  captures = std::move(next);
}

Value onnx_import::toScalar(Emitter &emitter, Value value, StringRef name) {
  if (!value)
    return {};
  if (isSequence(value) || getTensorType(value).getNumElements() != 1) {
    emitter.error() << "'" << name << "' is " << value.getType() << ", expected one element";
    return {};
  }
  return emitter.reshape(value, {});
}

std::optional<int64_t> onnx_import::getKnown(Value value) {
  DenseElementsAttr constant = value ? getConstant(value) : DenseElementsAttr();
  if (!constant || constant.getNumElements() != 1)
    return std::nullopt;
  auto element = dyn_cast<IntegerAttr>(*constant.value_begin<Attribute>());
  if (!element)
    return std::nullopt;
  Type type = constant.getElementType();
  APInt number = element.getValue();
  if (type.isInteger(1) || type.isUnsignedInteger())
    return static_cast<int64_t>(number.getLimitedValue(std::numeric_limits<int64_t>::max()));
  return number.getSExtValue();
}

//===----------------------------------------------------------------------===//
// If
//===----------------------------------------------------------------------===//

static LogicalResult setResults(Node &node, ValueRange values) {
  if (values.size() != node.getNumResults())
    return node.error() << "has " << node.getNumResults() << " outputs, its branch "
                        << values.size();
  for (auto [i, value] : llvm::enumerate(values))
    if (failed(node.setResult(i, value)))
      return failure();
  return success();
}

static FailureOr<Body> importBranch(Node &node, const onnx::GraphProto &graph, StringRef suffix,
                                    SmallVector<Type> &types) {
  Body body{node.getImporter().createBody(node.getLoc(), suffix), {}};
  OpBuilder inside(node.getContext());
  inside.setInsertionPointToEnd(&body.getBlock());
  GraphImporter importer(node.getImporter(), graph, node.getLoc(), inside, &body.captures);
  FailureOr<SmallVector<Value>> outputs = importer.importSubgraph({});
  if (failed(outputs))
    return failure();
  SmallVector<std::string> names;
  for (auto [output, value] : llvm::zip_equal(graph.output(), *outputs))
    for (size_t i = 0, count = isSequence(value) ? getElements(value).size() : 1; i < count; ++i)
      names.push_back(output.name() + (isSequence(value) ? "[" + std::to_string(i) + "]" : ""));
  // Finishing the body flattens its sequences.
  types = llvm::to_vector(ValueRange(*outputs).getTypes());
  body.finish(flattenSequences(*outputs), {}, names);
  return body;
}

static LogicalResult importIf(Node &node) {
  Value condition = toScalar(node, node.operand(0), "cond");
  const onnx::GraphProto *graphs[] = {node.graphAttribute("then_branch"),
                                      node.graphAttribute("else_branch")};
  if (!condition || !graphs[0] || !graphs[1])
    return failure();
  if (std::optional<int64_t> known = getKnown(condition)) {
    GraphImporter importer(node.getImporter(), *graphs[*known ? 0 : 1], node.getLoc(),
                           node.getBuilder(), nullptr);
    FailureOr<SmallVector<Value>> outputs = importer.importSubgraph({});
    return failed(outputs) ? failure() : setResults(node, *outputs);
  }
  SmallVector<Type> types[2];
  FailureOr<Body> yes = importBranch(node, *graphs[0], "then", types[0]);
  if (failed(yes))
    return failure();
  FailureOr<Body> no = importBranch(node, *graphs[1], "else", types[1]);
  if (failed(no))
    return failure();
  if (types[0] != types[1])
    return node.error() << "its branches give " << TypeRange(types[0]) << " and "
                        << TypeRange(types[1])
                        << "; both must give the same shapes where the condition is computed at "
                           "run time";
  llvm::SetVector<Value> all;
  for (Body *body : {&*yes, &*no})
    for (auto &[outer, argument] : body->captures)
      all.insert(outer);
  for (Body *body : {&*yes, &*no}) {
    body->setCaptures(0, all.getArrayRef());
    func::FuncOp function = body->function;
    function.setFunctionType(FunctionType::get(
        node.getContext(), ValueRange(all.getArrayRef()).getTypes(), function.getResultTypes()));
    function.setAllArgAttrs(nameAll(node.getContext(), all.size(), {}));
  }
  auto branch =
      loom::IfOp::create(node.getBuilder(), node.getLoc(), yes->function.getResultTypes(),
                         FlatSymbolRefAttr::get(yes->function),
                         FlatSymbolRefAttr::get(no->function), condition, all.getArrayRef());
  return setResults(
      node, regroupSequences(node.getBuilder(), node.getLoc(), branch.getResults(), types[0]));
}

ArrayRef<OpRule> onnx_import::getControlRules() {
  static constexpr OpRule rules[] = {
      {"If", 1, 28, importIf},
      {"Loop", 1, 28, importLoop},
      {"Scan", 8, 8, importBatchedScan},
      {"Scan", 9, 28, importScan},
  };
  return rules;
}
