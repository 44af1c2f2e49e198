//===- Functions.cpp - functions that a model defines ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A call is replaced by the function's nodes. Their names begin with the call's: "call/node".
// Operators the importer knows are operators even if the model also defines them as a function.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Functions.h"

#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// FunctionTable
//===----------------------------------------------------------------------===//

template <typename ProtoT> static std::string getKey(const ProtoT &proto, StringRef name) {
  // Lengths come first, so that no name can imitate a separator.
  std::string domain = normalizeDomain(proto.domain()).str();
  return std::to_string(domain.size()) + ":" + std::to_string(name.size()) + ":" + domain +
         name.str() + proto.overload();
}

FunctionTable::FunctionTable(const onnx::ModelProto &model) {
  for (const onnx::FunctionProto &function : model.functions()) {
    auto graph = std::make_shared<onnx::GraphProto>();
    *graph->mutable_node() = function.node();
    for (const std::string &input : function.input())
      graph->add_input()->set_name(input);
    for (const std::string &output : function.output())
      graph->add_output()->set_name(output);
    functions.try_emplace(getKey(function, function.name()), Function{&function, graph});
  }
}

const Function *FunctionTable::find(const onnx::NodeProto &node) const {
  auto place = functions.find(getKey(node, node.op_type()));
  return place == functions.end() ? nullptr : &place->second;
}

bool FunctionTable::countExpanded() { return ++numExpanded <= kMaxExpanded; }

//===----------------------------------------------------------------------===//
// Operators and operator sets
//===----------------------------------------------------------------------===//

int64_t GraphImporter::getOpset(StringRef domain) const {
  auto find = [&](const auto &opsets) -> int64_t {
    for (const onnx::OperatorSetIdProto &opset : opsets)
      if (normalizeDomain(opset.domain()) == normalizeDomain(domain))
        return opset.version();
    return 0;
  };
  int64_t version = callee ? find(callee->proto->opset_import()) : 0;
  if (version == 0)
    version = find(model.proto->opset_import());
  // Some exporters use contributed operators without importing their domain.
  return version == 0 && !normalizeDomain(domain).empty() ? 1 : version;
}

const OpRule *GraphImporter::getRule(const onnx::NodeProto &node) const {
  return findRule(getQualifiedName(node.domain(), node.op_type()), getOpset(node.domain()));
}

LogicalResult GraphImporter::survey(OperatorSurvey &found) {
  if (failed(sortNodes()))
    return failure();
  for (int index : order) {
    const onnx::NodeProto &node = graph.node(index);
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g() &&
          failed(GraphImporter(*this, attribute.g(), getNodeLoc(index), builder, nullptr)
                     .survey(found)))
        return failure();
    if (getRule(node))
      continue;
    if (const Function *function = functions->find(node)) {
      if (failed(surveyFunction(*function, node, getNodeLoc(index), found)))
        return failure();
      continue;
    }
    std::string name = getQualifiedName(node.domain(), node.op_type());
    found.unsupported[builder.getStringAttr(name)].push_back(loom::getNodeName(getNodeLoc(index)));
  }
  return success();
}

LogicalResult GraphImporter::surveyFunction(const Function &function, const onnx::NodeProto &call,
                                            Location loc, OperatorSurvey &found) {
  auto fail = [&](const Twine &reason) {
    return emitError(loc) << call.op_type() << " '" << loom::getNodeName(loc) << "': function '"
                          << getQualifiedName(function.proto->domain(), function.proto->name())
                          << "' " << reason.str();
  };
  auto [place, isNew] = found.depths.try_emplace(&function, OperatorSurvey::kOpen);
  if (!isNew && place->second == OperatorSurvey::kOpen)
    return fail("calls itself");
  if (isNew) {
    if (++found.active > OperatorSurvey::kMaxDepth)
      return fail("nests calls more than " + Twine(OperatorSurvey::kMaxDepth) + " deep");
    GraphImporter body(*this, function, call, loc);
    if (failed(body.survey(found)))
      return failure();
    --found.active;
    int depth = 0;
    for (const onnx::NodeProto &inner : function.graph->node())
      if (const Function *callee = functions->find(inner))
        depth = std::max(depth, found.depths.lookup(callee));
    found.depths[&function] = depth + 1;
  }
  // Functions seen before may make this one deeper than the recursion was.
  if (found.depths[&function] > OperatorSurvey::kMaxDepth)
    return fail("nests calls more than " + Twine(OperatorSurvey::kMaxDepth) + " deep");
  return success();
}

LogicalResult GraphImporter::checkOperators() {
  OperatorSurvey found;
  if (failed(survey(found)))
    return failure();
  if (found.unsupported.empty())
    return success();
  constexpr size_t kNamed = 3;
  size_t count = found.unsupported.size();
  InFlightDiagnostic error = emitError(NameLoc::get(builder.getStringAttr(model.path.string())));
  int64_t opset = getOpset("");
  error << count << (count == 1 ? " operator is" : " operators are") << " not supported";
  if (opset > 0)
    error << " at opset " << opset;
  error << ": ";
  llvm::interleaveComma(found.unsupported, error, [&](auto &entry) {
    ArrayRef<std::string> nodes = entry.second;
    error << entry.first.getValue() << " (" << nodes.size()
          << (nodes.size() == 1 ? " node: '" : " nodes: '")
          << llvm::join(nodes.take_front(kNamed), "', '") << "'";
    if (nodes.size() > kNamed)
      error << " and " << nodes.size() - kNamed << " more";
    error << ")";
  });
  if (opset > 0 && opset < kFirstWholeOpset)
    error << "; convert the model to opset " << kFirstWholeOpset
          << " or newer with onnx.version_converter";
  if (llvm::any_of(found.unsupported, [](const auto &entry) {
        return entry.first.getValue().starts_with("com.microsoft.nchwc.");
      }))
    error << "; nchwc is ONNX Runtime's layout for one processor: save the model optimized to "
             "ORT_ENABLE_EXTENDED, not ORT_ENABLE_ALL";
  return error;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

GraphImporter::GraphImporter(GraphImporter &caller, const Function &function,
                             const onnx::NodeProto &call, Location loc)
    : parent(&caller), seesOuter(false), callee(&function), prefix(loom::getNodeName(loc) + "/"),
      callPrefix(prefix), model(caller.model), graph(*function.graph), pool(caller.pool),
      bindings(caller.bindings), builder(caller.builder), function(caller.function),
      options(caller.options), functions(caller.functions), lengths(caller.lengths),
      marks(caller.marks) {
  for (const onnx::AttributeProto &attribute : function.proto->attribute_proto())
    attributes[attribute.name()] = &attribute;
  for (const onnx::AttributeProto &attribute : call.attribute())
    if (const onnx::AttributeProto *given = caller.resolve(attribute))
      attributes[attribute.name()] = given;
}

const onnx::AttributeProto *GraphImporter::resolve(const onnx::AttributeProto &attribute) const {
  return attribute.ref_attr_name().empty() ? &attribute
                                           : attributes.lookup(attribute.ref_attr_name());
}

bool GraphImporter::isAbsent(StringRef name) const {
  return absent.contains(name) || (parent && seesOuter && parent->isAbsent(name));
}

FailureOr<SmallVector<Value>> GraphImporter::importCall(const Node &call) {
  if (static_cast<int>(call.getNumOperands()) > graph.input_size() ||
      static_cast<int>(call.getNumResults()) > graph.output_size())
    return call.error() << "has " << call.getNumOperands() << " inputs and " << call.getNumResults()
                        << " outputs, but the function has " << graph.input_size() << " and "
                        << graph.output_size();
  if (failed(sortNodes()))
    return failure();
  for (auto [i, input] : llvm::enumerate(graph.input())) {
    if (call.hasOperand(i))
      setValue(input.name(), call.operand(i), call.getNarrow(i));
    else
      absent.insert(input.name());
  }
  for (int index : order)
    if (failed(importNode(index)))
      return failure();
  SmallVector<Value> outputs;
  for (unsigned i = 0; i < call.getNumResults(); ++i) {
    outputs.push_back(getValue(graph.output(i).name(), call));
    if (!outputs.back())
      return failure();
  }
  return outputs;
}
