//===- Sequences.cpp - lists of tensors at import -------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Sequences.h"
#include "compiler/onnx/DataLengths.h"
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/OpTable.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The longest sequence: each tensor of it is at least one operation.
static constexpr size_t kMaxLength = 4096;

SmallVector<Value> onnx_import::getElements(Value sequence) {
  return llvm::to_vector(sequence.getDefiningOp<UnrealizedConversionCastOp>().getInputs());
}

Value onnx_import::makeSequence(OpBuilder &builder, Location loc, ValueRange elements) {
  auto type = TupleType::get(builder.getContext(), elements.getTypes());
  return UnrealizedConversionCastOp::create(builder, loc, type, elements).getResult(0);
}

SmallVector<Value> onnx_import::flattenSequences(ValueRange values) {
  SmallVector<Value> flat;
  for (Value value : values) {
    if (isSequence(value))
      llvm::append_range(flat, getElements(value));
    else
      flat.push_back(value);
  }
  return flat;
}

SmallVector<Value> onnx_import::regroupSequences(OpBuilder &builder, Location loc, ValueRange flat,
                                                 TypeRange types) {
  SmallVector<Value> values;
  for (Type type : types) {
    auto tuple = dyn_cast<TupleType>(type);
    size_t count = tuple ? tuple.size() : 1;
    values.push_back(tuple ? makeSequence(builder, loc, flat.take_front(count)) : flat.front());
    flat = flat.drop_front(count);
  }
  return values;
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

/// The tensors of operand `index`. Fails, with an error, if it is absent or a tensor.
static FailureOr<SmallVector<Value>> sequenceOperand(Node &node, unsigned index) {
  Value sequence = node.operand(index);
  if (!sequence)
    return failure();
  if (!isSequence(sequence))
    return node.error() << "input " << index << " is " << sequence.getType()
                        << ", expected a sequence";
  return getElements(sequence);
}

/// Fails, with an error, if a sequence holds tensors of different element types or too many.
static LogicalResult setSequence(Node &node, unsigned index, ArrayRef<Value> elements) {
  if (elements.size() > kMaxLength)
    return node.error() << "makes a sequence of " << elements.size() << " tensors, more than "
                        << kMaxLength;
  for (Value element : elements)
    if (failed(node.checkSameElementType(elements.front(), element)))
      return failure();
  return node.setResult(index, makeSequence(node.getBuilder(), node.getLoc(), elements));
}

/// The tensor that operand `index` is. Null, with an error, if it is absent or a sequence.
static Value tensorOperand(Node &node, unsigned index) {
  Value tensor = node.operand(index);
  if (!isSequence(tensor))
    return tensor;
  node.error() << "input " << index << " is a sequence, expected a tensor";
  return {};
}

/// The place that operand 1 or 2 gives among `count`, which may be counted from the end;
/// `otherwise` if it is absent. Nothing, with an error, if there is no such place.
static std::optional<size_t> getPosition(Node &node, unsigned index, size_t count,
                                         std::optional<int64_t> otherwise) {
  auto limit = static_cast<int64_t>(count);
  if (!node.hasOperand(index) && otherwise)
    return *otherwise;
  if (!tensorOperand(node, index))
    return std::nullopt;
  std::optional<Dims> given = node.intsOperand(index, "position");
  if (!given)
    return std::nullopt;
  if (given->size() != 1 || given->front() < -limit || given->front() >= limit) {
    node.error() << "position " << toString(*given) << " is not one of the sequence's " << limit;
    return std::nullopt;
  }
  return given->front() < 0 ? given->front() + limit : given->front();
}

static LogicalResult importSequenceConstruct(Node &node) {
  SmallVector<Value> elements;
  for (unsigned i = 0; i < node.getNumOperands(); ++i)
    if (!elements.emplace_back(tensorOperand(node, i)))
      return failure();
  return setSequence(node, 0, elements);
}

static LogicalResult importSequenceEmpty(Node &node) {
  constexpr int64_t kFloat = 1;
  if (!node.elementType(node.intAttribute("dtype", kFloat)))
    return failure();
  return setSequence(node, 0, {});
}

static LogicalResult importSequenceAt(Node &node) {
  FailureOr<SmallVector<Value>> elements = sequenceOperand(node, 0);
  if (failed(elements))
    return failure();
  std::optional<size_t> at = getPosition(node, 1, elements->size(), std::nullopt);
  return at ? node.setResult((*elements)[*at]) : failure();
}

static LogicalResult importSequenceLength(Node &node) {
  FailureOr<SmallVector<Value>> elements = sequenceOperand(node, 0);
  if (failed(elements))
    return failure();
  return node.setResult(node.reshape(node.ints({static_cast<int64_t>(elements->size())}), {}));
}

/// One may insert before each tensor and at the end.
static LogicalResult importSequenceInsert(Node &node) {
  FailureOr<SmallVector<Value>> elements = sequenceOperand(node, 0);
  Value tensor = succeeded(elements) ? tensorOperand(node, 1) : Value();
  if (!tensor)
    return failure();
  size_t count = elements->size();
  // Negative places count from the end of what is there, not of the result.
  std::optional<int64_t> given;
  if (node.hasOperand(2)) {
    std::optional<Dims> ints =
        tensorOperand(node, 2) ? node.intsOperand(2, "position") : std::nullopt;
    if (!ints)
      return failure();
    if (ints->size() == 1 && ints->front() == static_cast<int64_t>(count))
      given = ints->front();
  } else {
    given = static_cast<int64_t>(count);
  }
  std::optional<size_t> at =
      given ? std::optional<size_t>(*given) : getPosition(node, 2, count, std::nullopt);
  if (!at)
    return failure();
  elements->insert(elements->begin() + *at, tensor);
  return setSequence(node, 0, *elements);
}

static LogicalResult importSequenceErase(Node &node) {
  FailureOr<SmallVector<Value>> elements = sequenceOperand(node, 0);
  if (failed(elements))
    return failure();
  if (elements->empty())
    return node.error() << "erases from an empty sequence";
  auto last = static_cast<int64_t>(elements->size()) - 1;
  std::optional<size_t> at = getPosition(node, 1, elements->size(), last);
  if (!at)
    return failure();
  elements->erase(elements->begin() + *at);
  return setSequence(node, 0, *elements);
}

/// The sizes of parts of a dimension of `size`: given, all of one size but the last, or 1. Nothing,
/// with an error, if they do not add up or are too many.
static std::optional<Dims> getPartSizes(Node &node, int64_t size) {
  Dims parts;
  int64_t step = 1, sum = 0;
  bool isListed = node.hasOperand(1) && getShape(node.operand(1)).size() == 1;
  if (node.hasOperand(1)) {
    std::optional<Dims> given =
        tensorOperand(node, 1) ? node.intsOperand(1, "split") : std::nullopt;
    if (!given)
      return std::nullopt;
    if (isListed)
      parts = *given;
    else
      step = given->size() == 1 ? given->front() : 0;
  }
  if (!isListed && (step < 1 || size / step > static_cast<int64_t>(kMaxLength))) {
    node.error() << "cannot split " << size << " into parts of " << step << ", at most "
                 << kMaxLength;
    return std::nullopt;
  }
  for (int64_t start = 0; !isListed && start < size; start += step)
    parts.push_back(std::min(step, size - start));
  for (int64_t part : parts)
    if (part < 0 || part > size || (sum += part) > size)
      break;
  if (sum == size && llvm::all_of(parts, [](int64_t part) { return part >= 0; }))
    return parts;
  node.error() << "parts " << toString(parts) << " do not make up " << size;
  return std::nullopt;
}

static LogicalResult importSplitToSequence(Node &node) {
  Value x = tensorOperand(node, 0);
  if (!x)
    return failure();
  auto axis = node.normalizeAxis(node.intAttribute("axis", 0), getTensorType(x).getRank());
  if (!axis || failed(checkFixedLength(node, x, *axis)))
    return failure();
  std::optional<Dims> parts = getPartSizes(node, getShape(x)[*axis]);
  if (!parts)
    return failure();
  bool drops = !node.hasOperand(1) && node.intAttribute("keepdims", 1) == 0;
  SmallVector<Value> elements;
  int64_t start = 0;
  for (int64_t part : *parts) {
    Value element = node.slice(x, *axis, start, start + part);
    start += part;
    if (!element)
      return failure();
    Dims shape(getShape(element));
    if (drops)
      shape.erase(shape.begin() + *axis);
    elements.push_back(node.reshape(element, shape));
  }
  return setSequence(node, 0, elements);
}

/// Joins along a dimension there is or, as stacking does, a new one.
static LogicalResult importConcatFromSequence(Node &node) {
  FailureOr<SmallVector<Value>> elements = sequenceOperand(node, 0);
  if (failed(elements))
    return failure();
  if (elements->empty())
    return node.error() << "joins an empty sequence";
  bool stacks = node.intAttribute("new_axis", 0) != 0;
  int64_t rank = getTensorType(elements->front()).getRank() + stacks;
  auto axis = node.normalizeAxis(node.intAttribute("axis", 0), rank);
  if (!axis)
    return failure();
  Dims first;
  for (Value &element : *elements) {
    Dims shape(getShape(element)), fits(shape);
    if (stacks)
      shape.insert(shape.begin() + *axis, 1);
    else if (*axis < static_cast<int64_t>(fits.size()))
      fits[*axis] = 0;
    if (&element == &elements->front())
      first = fits;
    else if (fits != first)
      return node.error() << "tensors " << toString(getShape(elements->front())) << " and "
                          << toString(getShape(element)) << " cannot be joined along axis "
                          << *axis;
    element = node.reshape(element, shape);
  }
  return node.setResult(node.concatenate(*elements, *axis));
}

/// Imports the body for each tensor of the first sequence; other sequences give it their tensors,
/// too.
static LogicalResult importSequenceMap(Node &node) {
  const onnx::GraphProto *graph = node.graphAttribute("body");
  FailureOr<SmallVector<Value>> first = sequenceOperand(node, 0);
  if (!graph || failed(first))
    return failure();
  if (graph->input_size() != static_cast<int>(node.getNumOperands()) ||
      graph->output_size() != static_cast<int>(node.getNumResults()))
    return node.error() << "has " << node.getNumOperands() << " inputs and " << node.getNumResults()
                        << " outputs, its body " << graph->input_size() << " and "
                        << graph->output_size();
  SmallVector<SmallVector<Value>> results(graph->output_size());
  for (size_t i = 0; i < first->size(); ++i) {
    SmallVector<Value> given;
    for (unsigned k = 0; k < node.getNumOperands(); ++k) {
      Value operand = node.operand(k);
      if (!operand)
        return failure();
      if (isSequence(operand) && getElements(operand).size() != first->size())
        return node.error() << "sequences of " << first->size() << " and "
                            << getElements(operand).size() << " tensors differ in length";
      given.push_back(isSequence(operand) ? getElements(operand)[i] : operand);
    }
    GraphImporter importer(node.getImporter(), *graph, node.getLoc(), node.getBuilder(), nullptr);
    FailureOr<SmallVector<Value>> outputs = importer.importSubgraph(given);
    if (failed(outputs))
      return failure();
    for (auto [list, output] : llvm::zip_equal(results, *outputs)) {
      if (isSequence(output))
        return node.error() << "its body gives a sequence; a sequence holds tensors only";
      list.push_back(output);
    }
  }
  for (auto [i, list] : llvm::enumerate(results))
    if (failed(setSequence(node, i, list)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Optional values
//===----------------------------------------------------------------------===//

/// Known at import: what is not given is absent.
static LogicalResult importOptionalHasElement(Node &node) {
  auto type = RankedTensorType::get({}, IntegerType::get(node.getContext(), 1));
  return node.setResult(node.splat(type, node.hasOperand(0)));
}

static LogicalResult importOptionalGetElement(Node &node) {
  return node.setResult(node.operand(0));
}

ArrayRef<OpRule> onnx_import::getSequenceRules() {
  static constexpr OpRule rules[] = {
      {"ConcatFromSequence", 11, 28, importConcatFromSequence},
      {"OptionalGetElement", 15, 28, importOptionalGetElement},
      {"OptionalHasElement", 15, 28, importOptionalHasElement},
      {"SequenceAt", 11, 28, importSequenceAt},
      {"SequenceConstruct", 11, 28, importSequenceConstruct},
      {"SequenceEmpty", 11, 28, importSequenceEmpty},
      {"SequenceErase", 11, 28, importSequenceErase},
      {"SequenceInsert", 11, 28, importSequenceInsert},
      {"SequenceLength", 11, 28, importSequenceLength},
      {"SequenceMap", 17, 28, importSequenceMap},
      {"SplitToSequence", 11, 28, importSplitToSequence},
  };
  return rules;
}
