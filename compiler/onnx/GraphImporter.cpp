//===- GraphImporter.cpp - one specialisation of a model ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"

#include "compiler/onnx/Annotations.h"
#include "compiler/onnx/DataLengths.h"
#include "compiler/onnx/Narrow.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Sequences.h"
#include "dialects/loom/Training.h"
#include "dialects/loom/WeightUse.h"
#include "passes/simplify/Folding.h"
#include "support/Sha256.h"

#include "onnx-ml.pb.h"

#include <queue>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

int64_t onnx_import::getOpset(const Model &model) {
  for (const onnx::OperatorSetIdProto &opset : model.proto->opset_import())
    if (normalizeDomain(opset.domain()).empty())
      return opset.version();
  return 0;
}

std::string onnx_import::getDimName(const onnx::ValueInfoProto &input, int index) {
  const auto &dim = input.type().tensor_type().shape().dim(index);
  if (dim.has_dim_value() && dim.dim_value() >= 0)
    return "";
  return dim.dim_param().empty() ? input.name() + "." + std::to_string(index) : dim.dim_param();
}

//===----------------------------------------------------------------------===//
// TensorPool
//===----------------------------------------------------------------------===//

TensorPool::TensorPool(const Model &model, ModuleOp module, bool isTraining)
    : model(model), module(module), isTraining(isTraining) {
  for (const rt::OnnxTensor &tensor : model.tensors)
    tensors[tensor.name] = &tensor;
}

/// Small values are part of the program if they are not floats, are constants of the graph or have
/// one element; other floats are weights, which may be replaced without compiling again. Training
/// keeps float vectors of one element as weights, too: the bias of one column is a parameter.
bool TensorPool::isConstant(const rt::OnnxTensor &tensor) const {
  if (tensor.getSize() <= rt::sizeOf(tensor.type))
    return !isTraining || !tensor.isInitializer || tensor.shape.empty() || tensor.getSize() == 0 ||
           !loom::isFloatKind(getElementKind(tensor.type));
  if (tensor.getSize() > static_cast<uint64_t>(kMaxFoldedBytes))
    return false;
  return !tensor.isInitializer || !loom::isFloatKind(getElementKind(tensor.type));
}

const rt::PackedNumbers *TensorPool::getPacked(StringRef name) const {
  auto place = tensors.find(name);
  return place != tensors.end() && place->second->packed ? &*place->second->packed : nullptr;
}

Value TensorPool::materialize(StringRef name, OpBuilder &builder) {
  const rt::OnnxTensor &tensor = *tensors.at(name);
  return isConstant(tensor) ? materializeConstant(tensor, builder)
                            : materializeWeight(tensor, builder);
}

Value TensorPool::materializeSmall(StringRef name, OpBuilder &builder) {
  auto place = tensors.find(name);
  if (place == tensors.end() || place->second->getSize() > static_cast<uint64_t>(kMaxFoldedBytes))
    return {};
  return materializeConstant(*place->second, builder);
}

Value TensorPool::materializeConstant(const rt::OnnxTensor &tensor, OpBuilder &builder) {
  Location loc = NameLoc::get(builder.getStringAttr(tensor.name));
  std::vector<char> data;
  if (std::string error = readTensor(model, tensor, data); !error.empty()) {
    emitError(loc) << error;
    return {};
  }
  // Constant nodes are the program's own; initializers may come from another file at run time.
  if (tensor.isInitializer && !folded.contains(tensor.name))
    folded[tensor.name] = sha256(std::string_view(data.data(), data.size()));
  loom::HostTensor value(getElementKind(tensor.type), tensor.shape);
  if (tensor.type == rt::DataType::Bool)
    llvm::transform(data, value.getMutableValues<uint8_t>().begin(),
                    [](char byte) { return byte != 0; });
  else if (!data.empty())
    std::memcpy(value.getMutableData(), data.data(), data.size());
  return loom::ConstantOp::create(builder, loc, value.toAttribute(builder.getContext()));
}

Value TensorPool::materializeWeight(const rt::OnnxTensor &tensor, OpBuilder &builder) {
  MLIRContext *context = builder.getContext();
  Location loc = NameLoc::get(builder.getStringAttr(tensor.name));
  Type element = loom::getElementType(getElementKind(tensor.type), context);
  auto type = RankedTensorType::get(tensor.shape, element);
  if (weights.insert(tensor.name).second) {
    if (!tensor.inPlace) {
      emitError(loc) << "'" << tensor.name << "' stores its " << tensor.getSize()
                     << " bytes as varints, which cannot be read in place; save the model with "
                        "raw data (onnx.numpy_helper.from_array)";
      return {};
    }
    if (std::string error = checkTensor(model, tensor); !error.empty()) {
      emitError(loc) << error;
      return {};
    }
    OpBuilder::InsertionGuard guard(builder);
    if (lastWeight)
      builder.setInsertionPointAfter(lastWeight);
    else
      builder.setInsertionPointToStart(module.getBody());
    auto source = loom::SourceAttr::get(context, tensor.file, tensor.offset, tensor.bytes);
    lastWeight = loom::WeightOp::create(builder, loc, tensor.name, type, source);
  }
  auto read =
      loom::GetWeightOp::create(builder, loc, type, tensor.name, Attribute(), loom::LayoutAttr());
  if (isTraining && !tensor.isInitializer)
    read->setAttr(loom::kFrozen, builder.getStringAttr(loom::kFrozenConstant));
  return read;
}

ArrayAttr TensorPool::getFolded() {
  Builder builder(module.getContext());
  // The first reader of each, as locations name it.
  llvm::StringMap<std::string> readers;
  const onnx::GraphProto &graph = model.proto->graph();
  for (int node = 0; node < graph.node_size(); ++node)
    for (const std::string &input : graph.node(node).input())
      if (folded.contains(input))
        readers.try_emplace(input, GraphIndex::getNodeName(graph, node));
  SmallVector<Attribute> entries;
  for (const auto &[name, digest] : folded) {
    NamedAttrList entry;
    entry.append("name", builder.getStringAttr(name));
    entry.append("sha256", builder.getStringAttr(digest));
    if (auto reader = readers.find(name); reader != readers.end())
      entry.append("reader", builder.getStringAttr(reader->second));
    entries.push_back(entry.getDictionary(module.getContext()));
  }
  return builder.getArrayAttr(entries);
}

//===----------------------------------------------------------------------===//
// Order and operators
//===----------------------------------------------------------------------===//

GraphImporter::GraphImporter(const Model &model, TensorPool &pool, const Bindings &bindings,
                             const ImportOptions &options)
    : model(model), graph(model.proto->graph()), pool(pool), bindings(bindings),
      builder(pool.getContext()), options(options),
      functions(std::make_shared<FunctionTable>(*model.proto)),
      lengths(std::make_shared<DataLengths>()), marks(std::make_shared<TrainingMarks>()) {}

Location GraphImporter::getNodeLoc(int index) {
  const onnx::NodeProto &node = graph.node(index);
  std::string name = node.name().empty() ? prefix + node.op_type() + "_" + std::to_string(index)
                                         : callPrefix + node.name();
  return NameLoc::get(builder.getStringAttr(name));
}

LogicalResult GraphImporter::sortNodes() {
  if (std::exchange(isSorted, true))
    return success();
  llvm::StringSet<> given;
  for (const onnx::TensorProto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  for (const onnx::ValueInfoProto &input : graph.input())
    given.insert(input.name());
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string &output : graph.node(i).output()) {
      if (output.empty())
        continue;
      if (given.contains(output) || initializers.contains(output) ||
          !producers.try_emplace(output, i).second)
        return emitError(getNodeLoc(i)) << "'" << output << "' is defined more than once";
    }

  // Nodes that the outputs need, found backwards.
  SmallVector<int> pending;
  SmallVector<bool> needed(graph.node_size(), false);
  auto need = [&](StringRef name) {
    used.insert(name);
    auto producer = producers.find(name);
    if (producer != producers.end() && !std::exchange(needed[producer->second], true))
      pending.push_back(producer->second);
  };
  for (const onnx::ValueInfoProto &output : graph.output())
    need(output.name());
  while (!pending.empty())
    for (const std::string &input : getReadNames(graph.node(pending.pop_back_val())))
      need(input);

  // The next node is the earliest of the file whose operands exist: the file's own order if it is
  // sorted, as it should be.
  std::vector<int> missing(graph.node_size(), 0);
  std::vector<std::vector<int>> readers(graph.node_size());
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  int count = 0;
  for (int i = 0; i < graph.node_size(); ++i) {
    if (!needed[i])
      continue;
    ++count;
    for (const std::string &input : getReadNames(graph.node(i)))
      if (auto producer = producers.find(input); producer != producers.end()) {
        readers[producer->second].push_back(i);
        ++missing[i];
      }
    if (missing[i] == 0)
      ready.push(i);
  }
  while (!ready.empty()) {
    int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (int reader : readers[node])
      if (--missing[reader] == 0)
        ready.push(reader);
  }
  if (static_cast<int>(order.size()) == count)
    return success();
  for (int i = 0; i < graph.node_size(); ++i)
    if (needed[i] && missing[i] > 0)
      return emitError(getNodeLoc(i))
             << "node '" << loom::getNodeName(getNodeLoc(i)) << "' is on a cycle or reads one; "
             << count - order.size() << " nodes cannot be ordered";
  llvm_unreachable("an unordered node is missing an operand");
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

func::FuncOp GraphImporter::import(ModuleOp module, StringRef symbol) {
  if (failed(sortNodes()) || failed(checkOperators()) || failed(importInputs(module, symbol)))
    return {};
  for (int index : order)
    if (failed(importNode(index)))
      return {};
  if (failed(importOutputs()))
    return {};
  eraseDeadOps(function);
  return function;
}

RankedTensorType GraphImporter::getInputType(const onnx::ValueInfoProto &input) {
  Location loc = NameLoc::get(builder.getStringAttr(input.name()));
  if (!input.type().has_tensor_type()) {
    emitError(loc) << "input '" << input.name() << "' is "
                   << (input.type().has_sequence_type()   ? "a sequence"
                       : input.type().has_optional_type() ? "optional"
                                                          : "no tensor")
                   << "; only tensors can be given";
    return {};
  }
  const auto &tensor = input.type().tensor_type();
  Type element = getElementType(builder.getContext(), tensor.elem_type());
  if (Type narrow = getNarrowType(builder.getContext(), tensor.elem_type())) {
    narrowTypes[input.name()] = narrow;
    element = getCarrier(narrow);
  }
  if (!element) {
    emitError(loc) << "input '" << input.name() << "' has element type "
                   << getTypeName(tensor.elem_type()) << ", which is not supported";
    return {};
  }
  SmallVector<int64_t> shape;
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    std::string name = getDimName(input, i);
    shape.push_back(name.empty() ? tensor.shape().dim(i).dim_value() : bindings.find(name)->second);
  }
  if (!isReasonable(shape)) {
    emitError(loc) << "input '" << input.name() << "' has the impossible shape " << toString(shape);
    return {};
  }
  return RankedTensorType::get(shape, element);
}

DictionaryAttr GraphImporter::describe(const onnx::ValueInfoProto &value, ArrayRef<int64_t> shape) {
  const auto &declared = value.type().tensor_type().shape();
  SmallVector<StringRef> names(shape.size());
  for (int i = 0; i < static_cast<int>(shape.size()) && i < declared.dim_size(); ++i) {
    auto binding = bindings.find(getDimName(value, i));
    if (binding != bindings.end() && binding->second == shape[i])
      names[i] = binding->first;
  }
  return builder.getDictionaryAttr(
      {builder.getNamedAttr(loom::kName, builder.getStringAttr(value.name())),
       builder.getNamedAttr(loom::kDimNames, builder.getStrArrayAttr(names))});
}

LogicalResult GraphImporter::importInputs(ModuleOp module, StringRef symbol) {
  SmallVector<Type> types;
  SmallVector<const onnx::ValueInfoProto *> inputs;
  SmallVector<DictionaryAttr> attributes;
  SmallVector<Location> locs;
  for (const onnx::ValueInfoProto &input : graph.input()) {
    // Up to IR version 3, and where a default is meant, initializers are inputs too.
    if (initializers.contains(input.name()))
      continue;
    RankedTensorType type = getInputType(input);
    if (!type)
      return failure();
    types.push_back(type);
    inputs.push_back(&input);
    attributes.push_back(describe(input, type.getShape()));
    locs.push_back(NameLoc::get(builder.getStringAttr(input.name())));
  }
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = NameLoc::get(builder.getStringAttr(graph.name().empty() ? "main" : graph.name()));
  function = func::FuncOp::create(builder, loc, symbol, builder.getFunctionType(types, {}));
  function.setAllArgAttrs(attributes);
  Block *block = builder.createBlock(&function.getBody(), {}, types, locs);
  for (auto [input, argument] : llvm::zip_equal(inputs, block->getArguments()))
    if (!values.try_emplace(input->name(), argument).second)
      return emitError(argument.getLoc()) << "two inputs are called '" << input->name() << "'";
  return success();
}

/// ONNX lets 8-bit floats and narrower numbers be moved and converted only, and few operators take
/// sequences.
static LogicalResult checkOperands(const Node &node, const OpRule &rule) {
  std::string name = getQualifiedName(rule.domain, rule.name);
  for (unsigned i = 0; i < node.getNumOperands(); ++i) {
    if (!node.hasOperand(i))
      continue;
    if (isSequence(node.operand(i)) && takesSequences(name))
      continue;
    if (isSequence(node.operand(i)))
      return node.error() << "operand " << i << " is a sequence; take a tensor of it (SequenceAt) "
                          << "or join them (ConcatFromSequence)";
    Type element = node.getElement(i);
    if ((isNarrow(element) && !takesNarrow(name)) ||
        (loom::isFloat8(element) && !takesFloat8(name)))
      return node.error() << "nothing is computed of operand " << i << ", "
                          << RankedTensorType::get(getShape(node.operand(i)), element)
                          << "; convert it (Cast, DequantizeLinear)";
    bool isFloat = isa<FloatType>(element);
    if (isFloat ? takesNoFloats(name) : takesOnlyFloats(name))
      return node.error() << "operand " << i << " is " << node.operand(i).getType() << ", expected "
                          << (isFloat ? "integers or booleans" : "floats") << "; convert it (Cast)";
  }
  return success();
}

/// The narrow type of the operands whose elements are moved; null if there is none. Fails if
/// another operand has its carrier's type.
static FailureOr<Type> getMovedNarrow(const Node &node) {
  SmallVector<unsigned> indices;
  for (unsigned i = 0; i < node.getNumOperands(); ++i)
    if (node.hasOperand(i) && !isSequence(node.operand(i)))
      indices.push_back(i);
  const auto *first =
      llvm::find_if(indices, [&](unsigned i) { return isNarrow(node.getElement(i)); });
  if (first == indices.end())
    return Type();
  Type narrow = node.getElement(*first);
  for (unsigned i : indices)
    if (node.getElement(i) != narrow &&
        getTensorType(node.operand(i)).getElementType() == getCarrier(narrow))
      return node.error() << "operands " << i << " and " << *first << " are of "
                          << node.getElement(i) << " and " << narrow << "; convert one (Cast)";
  return narrow;
}

LogicalResult GraphImporter::importOperator(Node &node, const OpRule &rule,
                                            const onnx::NodeProto &proto) {
  if (failed(checkOperands(node, rule)))
    return failure();
  FailureOr<Type> narrow = movesElements(getQualifiedName(rule.domain, rule.name))
                               ? getMovedNarrow(node)
                               : FailureOr<Type>(Type());
  if (failed(narrow) || failed(rule.import(node)) || node.hadBadAttribute())
    return failure();
  for (const std::string &output : proto.output())
    if (Value value = *narrow ? values.lookup(output) : Value())
      if (getTensorType(value).getElementType() == getCarrier(*narrow))
        narrowTypes[output] = *narrow;
  // These operators use a tensor's true shape, or none.
  static constexpr StringRef lookAtShape[] = {"Shape", "Size", "OptionalHasElement"};
  if (llvm::is_contained(lookAtShape, rule.name))
    return success();
  auto results = llvm::map_to_vector(proto.output(), [&](const std::string &output) {
    return output.empty() ? Value() : values.lookup(output);
  });
  return checkLengthsKept(node, results);
}

LogicalResult GraphImporter::importNode(int index) {
  const onnx::NodeProto &proto = graph.node(index);
  Node node(*this, proto, builder, getNodeLoc(index), getOpset(proto.domain()));
  if ((callee || parent) && !functions->countExpanded())
    return node.error() << "the model's functions, and its loops with --unroll " << options.unroll
                        << ", expand to more than " << FunctionTable::kMaxExpanded << " nodes";
  if (failed(node.readOperands()))
    return failure();
  if (const OpRule *rule = getRule(proto)) {
    if (options.isTraining)
      markUses(node);
    if (failed(importOperator(node, *rule, proto)))
      return failure();
  } else {
    GraphImporter body(*this, *functions->find(proto), proto, node.getLoc());
    FailureOr<SmallVector<Value>> results = body.importCall(node);
    if (failed(results))
      return failure();
    for (auto [i, result] : llvm::enumerate(*results))
      if (failed(node.setResult(i, result, body.getNarrow(body.graph.output(i).name()))))
        return failure();
  }
  for (auto [i, output] : llvm::enumerate(proto.output()))
    if (isUsed(output) && !output.empty() && !values.contains(output))
      return node.error() << "output " << i << " ('" << output << "') is not supported";
  return success();
}

Value GraphImporter::getTensor(StringRef name, const Emitter &reader) {
  if (parent)
    return getSubgraphTensor(name, reader);
  if (pool.contains(name)) {
    Value value = pool.materialize(name, builder);
    const rt::PackedNumbers *packed = pool.getPacked(name);
    if (!value || !packed)
      return value;
    narrowTypes[name] = getNarrowType(builder.getContext(), packed->onnxType);
    Emitter emitter(builder, value.getLoc(), "tensor '" + name.str() + "'");
    return unpack(emitter, value, *packed);
  }
  for (const onnx::TensorProto &tensor : graph.initializer())
    if (tensor.name() == name) {
      reader.error() << "initializer '" << name << "' has element type "
                     << getTypeName(tensor.data_type()) << ", which is not supported";
      return {};
    }
  reader.error() << "the type of the constant '" << name << "' is not supported";
  return {};
}

Type GraphImporter::getNarrow(StringRef name) const {
  auto place = narrowTypes.find(name);
  if (place != narrowTypes.end())
    return place->second;
  return parent && seesOuter && !producers.contains(name) ? parent->getNarrow(name) : Type();
}

Value GraphImporter::getValue(StringRef name, const Emitter &reader) {
  if (Value value = values.lookup(name))
    return value;
  if (initializers.contains(name))
    return values[name] = getTensor(name, reader);
  if (parent && seesOuter) {
    Value outer = parent->getValue(name, reader);
    return outer ? values[name] = read(outer) : outer;
  }
  reader.error() << "reads '" << name << "', which no input, initializer or node provides";
  return {};
}

LogicalResult GraphImporter::addLengths(SmallVectorImpl<Value> &results,
                                        SmallVectorImpl<DictionaryAttr> &attributes) {
  lengths->propagate(function.front());
  for (size_t i = 0, count = results.size(); i < count; ++i) {
    const DataExtent *extent = lengths->lookup(results[i]);
    if (extent && extent->lostAt)
      return refuseLost(*extent);
    if (!extent)
      continue;
    StringRef name = attributes[i].getAs<StringAttr>(loom::kName).getValue();
    for (const DataExtent::Dim &dim : extent->dims) {
      StringAttr added = builder.getStringAttr(name + ".dim" + Twine(dim.dim));
      if (llvm::any_of(attributes, [&](DictionaryAttr other) {
            return other.getAs<StringAttr>(loom::kName) == added;
          }))
        return emitError(UnknownLoc::get(builder.getContext()))
               << "output " << added << " has the name of the length of '" << name
               << "'; rename it";
      results.push_back(dim.count);
      attributes.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr(loom::kName, added),
           builder.getNamedAttr(loom::kDimNames, builder.getArrayAttr({}))}));
    }
  }
  return success();
}

LogicalResult GraphImporter::addUpdates(SmallVectorImpl<Value> &results,
                                        SmallVectorImpl<DictionaryAttr> &attributes) {
  for (const auto &[name, next] : marks->getUpdates()) {
    if (llvm::any_of(attributes, [&](DictionaryAttr other) {
          return other.getAs<StringAttr>(loom::kName) == name;
        }))
      return emitError(UnknownLoc::get(builder.getContext()))
             << "output " << name
             << " has the name of an initializer that training updates; rename it";
    results.push_back(next);
    attributes.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr(loom::kName, name),
         builder.getNamedAttr(loom::kDimNames, builder.getStrArrayAttr(SmallVector<StringRef>(
                                                   getTensorType(next).getRank(), ""))),
         builder.getNamedAttr(loom::kUpdates, name)}));
  }
  return success();
}

/// Whether a declared shape may be `shape`, as far as it has numbers. Without dimensions it is
/// often only left out.
static bool agreesWith(const onnx::TensorShapeProto &declared, ArrayRef<int64_t> shape) {
  if (declared.dim_size() == 0)
    return true;
  if (declared.dim_size() != static_cast<int>(shape.size()))
    return false;
  for (int i = 0; i < declared.dim_size(); ++i)
    if (int64_t size = declared.dim(i).dim_value(); size > 0 && size != shape[i])
      return false;
  return true;
}

/// As the model writes it: [batch, 5].
static std::string formatDeclared(const onnx::TensorShapeProto &shape) {
  std::string text;
  for (const auto &dim : shape.dim())
    text += (text.empty() ? "" : ", ") + (!dim.dim_param().empty() ? dim.dim_param()
                                          : dim.has_dim_value()    ? std::to_string(dim.dim_value())
                                                                   : "?");
  return "[" + text + "]";
}

LogicalResult GraphImporter::importOutputs() {
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> attributes;
  for (const onnx::ValueInfoProto &output : graph.output()) {
    Location loc = NameLoc::get(builder.getStringAttr(output.name()));
    if (llvm::any_of(attributes, [&](DictionaryAttr other) {
          return other.getAs<StringAttr>(loom::kName).getValue() == output.name();
        }))
      return emitError(loc) << "output '" << output.name()
                            << "' is listed twice; list it once in the model";
    Value value = getValue(output.name(), Emitter(builder, loc, "output '" + output.name() + "'"));
    if (!value)
      return failure();
    if (isSequence(value))
      return emitError(loc) << "output '" << output.name() << "' is a sequence; only tensors can "
                            << "be given: take each of it (SequenceAt) or join them "
                            << "(ConcatFromSequence)";
    const auto &declared = output.type().tensor_type();
    Type narrow = getNarrowType(builder.getContext(), declared.elem_type());
    Type element = narrow ? narrow : getElementType(builder.getContext(), declared.elem_type());
    Type computed = getNarrow(output.name());
    computed = computed ? computed : getTensorType(value).getElementType();
    if (declared.elem_type() != 0 && element != computed)
      return emitError(loc) << "output '" << output.name() << "' is declared as "
                            << getTypeName(declared.elem_type()) << ", but computed as "
                            << RankedTensorType::get(getShape(value), computed);
    results.push_back(value);
    attributes.push_back(describe(output, getShape(value)));
  }
  if (results.empty())
    return emitError(UnknownLoc::get(builder.getContext())) << "the model has no outputs";
  if (failed(addLengths(results, attributes)) || failed(addUpdates(results, attributes)))
    return failure();
  for (auto [output, value] : llvm::zip(graph.output(), results)) {
    const auto &declared = output.type().tensor_type().shape();
    if (!lengths->lookup(value) && !agreesWith(declared, getShape(value)))
      emitWarning(NameLoc::get(builder.getStringAttr(output.name())))
          << "output '" << output.name() << "' is declared as " << formatDeclared(declared)
          << ", but computed as " << toString(getShape(value));
  }
  func::ReturnOp::create(builder, function.getLoc(), results);
  function.setFunctionType(
      builder.getFunctionType(function.getArgumentTypes(), ValueRange(results).getTypes()));
  function.setAllResultAttrs(attributes);
  if (options.isTraining)
    setEvaluated();
  return success();
}

/// Lists the nodes in evaluation mode, which would compute something else in training mode.
void GraphImporter::setEvaluated() {
  SmallVector<Attribute> nodes;
  for (const auto &[op, node] : marks->getEvaluated())
    nodes.push_back(
        builder.getDictionaryAttr({builder.getNamedAttr("node", builder.getStringAttr(node)),
                                   builder.getNamedAttr("op", builder.getStringAttr(op))}));
  if (!nodes.empty())
    function->setAttr(loom::kEvaluated, builder.getArrayAttr(nodes));
}

void onnx_import::eraseDeadOps(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}
