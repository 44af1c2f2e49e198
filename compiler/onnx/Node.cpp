//===- Node.cpp - one ONNX node being imported ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/GraphImporter.h"
#include "compiler/onnx/Narrow.h"
#include "dialects/loom/Derivatives.h"

#include "passes/simplify/Folding.h"

#include "onnx-ml.pb.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

Type onnx_import::getElementType(MLIRContext *context, int64_t onnxType) {
  switch (onnxType) {
  case onnx::TensorProto::FLOAT:
    return Float32Type::get(context);
  case onnx::TensorProto::DOUBLE:
    return Float64Type::get(context);
  case onnx::TensorProto::FLOAT16:
    return Float16Type::get(context);
  case onnx::TensorProto::BFLOAT16:
    return BFloat16Type::get(context);
  case onnx::TensorProto::FLOAT8E4M3FN:
    return Float8E4M3FNType::get(context);
  case onnx::TensorProto::FLOAT8E5M2:
    return Float8E5M2Type::get(context);
  case onnx::TensorProto::FLOAT8E4M3FNUZ:
    return Float8E4M3FNUZType::get(context);
  case onnx::TensorProto::FLOAT8E5M2FNUZ:
    return Float8E5M2FNUZType::get(context);
  case onnx::TensorProto::BOOL:
    return IntegerType::get(context, 1);
  case onnx::TensorProto::INT8:
    return IntegerType::get(context, 8);
  case onnx::TensorProto::INT16:
    return IntegerType::get(context, 16);
  case onnx::TensorProto::INT32:
    return IntegerType::get(context, 32);
  case onnx::TensorProto::INT64:
    return IntegerType::get(context, 64);
  case onnx::TensorProto::UINT8:
    return IntegerType::get(context, 8, IntegerType::Unsigned);
  case onnx::TensorProto::UINT16:
    return IntegerType::get(context, 16, IntegerType::Unsigned);
  case onnx::TensorProto::UINT32:
    return IntegerType::get(context, 32, IntegerType::Unsigned);
  case onnx::TensorProto::UINT64:
    return IntegerType::get(context, 64, IntegerType::Unsigned);
  default:
    return {};
  }
}

std::string onnx_import::getTypeName(int64_t onnxType) {
  int number = static_cast<int>(onnxType);
  if (number != onnxType || !onnx::TensorProto::DataType_IsValid(number))
    return "number " + std::to_string(onnxType);
  return onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(number));
}

loom::ElementKind onnx_import::getElementKind(rt::DataType type) {
  switch (type) {
  case rt::DataType::F32:
    return loom::ElementKind::F32;
  case rt::DataType::F64:
    return loom::ElementKind::F64;
  case rt::DataType::F16:
    return loom::ElementKind::F16;
  case rt::DataType::BF16:
    return loom::ElementKind::BF16;
  case rt::DataType::F8E4M3FN:
    return loom::ElementKind::F8E4M3FN;
  case rt::DataType::F8E5M2:
    return loom::ElementKind::F8E5M2;
  case rt::DataType::F8E4M3FNUZ:
    return loom::ElementKind::F8E4M3FNUZ;
  case rt::DataType::F8E5M2FNUZ:
    return loom::ElementKind::F8E5M2FNUZ;
  case rt::DataType::I8:
    return loom::ElementKind::I8;
  case rt::DataType::I16:
    return loom::ElementKind::I16;
  case rt::DataType::I32:
    return loom::ElementKind::I32;
  case rt::DataType::I64:
    return loom::ElementKind::I64;
  case rt::DataType::U8:
    return loom::ElementKind::U8;
  case rt::DataType::U16:
    return loom::ElementKind::U16;
  case rt::DataType::U32:
    return loom::ElementKind::U32;
  case rt::DataType::U64:
    return loom::ElementKind::U64;
  case rt::DataType::Bool:
    return loom::ElementKind::Bool;
  }
  llvm_unreachable("all element types are listed");
}

//===----------------------------------------------------------------------===//
// Operands and results
//===----------------------------------------------------------------------===//

Node::Node(GraphImporter &importer, const onnx::NodeProto &proto, OpBuilder &builder, Location loc,
           int64_t opset)
    : Emitter(builder, loc, proto.op_type() + " '" + loom::getNodeName(loc) + "'"),
      importer(importer), proto(proto), opset(opset) {}

LogicalResult Node::readOperands() {
  for (const std::string &name : proto.input()) {
    bool isGiven = !name.empty() && !importer.isAbsent(name);
    operands.push_back(isGiven ? importer.getValue(name, *this) : Value());
    if (isGiven && !operands.back())
      return failure();
    narrowTypes.push_back(isGiven ? importer.getNarrow(name) : Type());
  }
  return success();
}

StringRef Node::getOpType() const { return proto.op_type(); }

Value Node::operand(unsigned index) const {
  if (hasOperand(index))
    return operands[index];
  error() << "input " << index << " is missing";
  return {};
}

Type Node::getNarrow(unsigned index) const {
  return index < narrowTypes.size() ? narrowTypes[index] : Type();
}

Type Node::getElement(unsigned index) const {
  Type narrow = getNarrow(index);
  return narrow ? narrow : getTensorType(operands[index]).getElementType();
}

std::optional<loom::HostTensor> Node::constantOperand(unsigned index) const {
  if (!hasOperand(index))
    return std::nullopt;
  FailureOr<DenseElementsAttr> value = evaluateConstant(operands[index]);
  if (failed(value) || !*value || loom::getByteSize(value->getType()) > kMaxFoldedBytes)
    return std::nullopt;
  return loom::HostTensor::fromAttribute(*value);
}

std::optional<loom::HostTensor> Node::foldedOperand(unsigned index) const {
  if (!hasOperand(index))
    return std::nullopt;
  auto weight = operands[index].getDefiningOp<loom::GetWeightOp>();
  if (!weight)
    return constantOperand(index);
  Value value = importer.getPool().materializeSmall(weight.getName(), getBuilder());
  if (!value)
    return std::nullopt;
  return loom::HostTensor::fromAttribute(getConstant(value));
}

std::optional<Dims> Node::intsOperand(unsigned index, StringRef name) const {
  if (!operand(index))
    return std::nullopt;
  std::optional<loom::HostTensor> tensor = constantOperand(index);
  if (!tensor || loom::isFloatKind(tensor->getKind())) {
    error() << "input '" << name << "' must be integers known at compile time, but is computed at "
            << "run time as " << operand(index).getType();
    return std::nullopt;
  }
  return llvm::to_vector<6>(tensor->toInts());
}

FailureOr<std::optional<double>> Node::numberOperand(unsigned index, StringRef name) const {
  if (!hasOperand(index))
    return std::optional<double>();
  // Training keeps vectors of one element as weights.
  auto type = dyn_cast<RankedTensorType>(operands[index].getType());
  bool isOne = type && type.hasStaticShape() && type.getNumElements() == 1;
  std::optional<loom::HostTensor> tensor = isOne ? foldedOperand(index) : std::nullopt;
  if (!tensor)
    return error() << "input '" << name << "' must be one number known at compile time, but is "
                   << operands[index].getType();
  return std::optional(tensor->toDoubles().front());
}

unsigned Node::getNumResults() const { return proto.output_size(); }

bool Node::hasResult(unsigned index) const {
  return index < getNumResults() && importer.isUsed(proto.output(index));
}

LogicalResult Node::setResult(unsigned index, Value value, Type narrow) {
  if (!value)
    return failure();
  if (index < getNumResults() && !proto.output(index).empty())
    importer.setValue(proto.output(index), value, narrow);
  return success();
}

bool Node::isDifferentiated() const { return importer.marksTies(); }

Value Node::markTies(Value extremum, StringRef side) const {
  Operation *op = extremum ? extremum.getDefiningOp() : nullptr;
  if (isDifferentiated() && op && isa<loom::MaximumOp, loom::MinimumOp>(op))
    op->setAttr(loom::kTies, getBuilder().getStringAttr(side));
  return extremum;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

const onnx::AttributeProto *Node::findAttribute(StringRef name) const {
  for (const onnx::AttributeProto &attribute : proto.attribute())
    if (attribute.name() == name)
      return importer.resolve(attribute);
  return nullptr;
}

const onnx::AttributeProto *Node::findAttribute(StringRef name, int type) const {
  const onnx::AttributeProto *attribute = findAttribute(name);
  // Files of old exporters lack the type.
  if (!attribute || attribute->type() == type ||
      attribute->type() == onnx::AttributeProto::UNDEFINED)
    return attribute;
  auto nameOf = [](int type) {
    return onnx::AttributeProto::AttributeType_Name(
        static_cast<onnx::AttributeProto::AttributeType>(type));
  };
  error() << "attribute '" << name << "' is " << nameOf(attribute->type()) << ", expected "
          << nameOf(type);
  hasBadAttribute = true;
  return nullptr;
}

int64_t Node::intAttribute(StringRef name, int64_t otherwise) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::INT);
  return attribute ? attribute->i() : otherwise;
}

double Node::floatAttribute(StringRef name, double otherwise) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::FLOAT);
  return attribute ? attribute->f() : otherwise;
}

std::string Node::stringAttribute(StringRef name, StringRef otherwise) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::STRING);
  return attribute ? attribute->s() : otherwise.str();
}

std::optional<Dims> Node::intsAttribute(StringRef name) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::INTS);
  if (!attribute)
    return std::nullopt;
  return Dims(attribute->ints().begin(), attribute->ints().end());
}

std::optional<std::vector<double>> Node::floatsAttribute(StringRef name) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::FLOATS);
  if (!attribute)
    return std::nullopt;
  return std::vector<double>(attribute->floats().begin(), attribute->floats().end());
}

std::optional<std::vector<std::string>> Node::stringsAttribute(StringRef name) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::STRINGS);
  if (!attribute)
    return std::nullopt;
  return std::vector<std::string>(attribute->strings().begin(), attribute->strings().end());
}

const onnx::GraphProto *Node::graphAttribute(StringRef name) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::GRAPH);
  if (attribute)
    return &attribute->g();
  if (!hasBadAttribute)
    error() << "has no attribute '" << name << "'";
  return nullptr;
}

/// The bytes of a one-element tensor; empty if it does not hold exactly one.
static std::vector<char> getElementBytes(const onnx::TensorProto &tensor, loom::ElementKind kind) {
  std::vector<char> bytes(loom::sizeOf(kind));
  auto take = [&](const auto &values) {
    if (values.size() != 1)
      return std::vector<char>();
    auto value = values.Get(0);
    std::memcpy(bytes.data(), &value, std::min(bytes.size(), sizeof(value)));
    return bytes;
  };
  if (tensor.has_raw_data()) {
    const std::string &raw = tensor.raw_data();
    return raw.size() == bytes.size() ? std::vector<char>(raw.begin(), raw.end())
                                      : std::vector<char>();
  }
  switch (kind) {
  case loom::ElementKind::F32:
    return take(tensor.float_data());
  case loom::ElementKind::F64:
    return take(tensor.double_data());
  case loom::ElementKind::I64:
    return take(tensor.int64_data());
  case loom::ElementKind::U32:
  case loom::ElementKind::U64:
    return take(tensor.uint64_data());
  default:
    return take(tensor.int32_data());
  }
}

FailureOr<std::optional<loom::HostTensor>> Node::elementAttribute(StringRef name) const {
  const onnx::AttributeProto *attribute = findAttribute(name, onnx::AttributeProto::TENSOR);
  if (!attribute)
    return std::optional<loom::HostTensor>();
  const onnx::TensorProto &tensor = attribute->t();
  Type type = elementType(tensor.data_type());
  if (!type)
    return failure();
  loom::ElementKind kind = *loom::getElementKind(type);
  std::vector<char> bytes = getElementBytes(tensor, kind);
  if (bytes.empty())
    return error() << "attribute '" << name << "' is not a tensor of one element";
  loom::HostTensor result(kind, {});
  std::memcpy(result.getMutableData(), bytes.data(), bytes.size());
  if (kind == loom::ElementKind::Bool)
    result.getMutableValues<uint8_t>()[0] = bytes[0] != 0;
  return std::optional(result);
}

Value Node::constantTensor() const { return importer.getTensor(proto.output(0), *this); }

//===----------------------------------------------------------------------===//
// Helpers for many operators
//===----------------------------------------------------------------------===//

std::optional<int64_t> Node::normalizeAxis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank) {
    error() << "axis " << axis << " is not a dimension of a tensor of rank " << rank;
    return std::nullopt;
  }
  return axis < 0 ? axis + rank : axis;
}

std::optional<Dims> Node::normalizeAxes(ArrayRef<int64_t> axes, int64_t rank) const {
  Dims result;
  for (int64_t axis : axes) {
    std::optional<int64_t> normal = normalizeAxis(axis, rank);
    if (!normal)
      return std::nullopt;
    if (llvm::is_contained(result, *normal)) {
      error() << "axis " << axis << " is named twice";
      return std::nullopt;
    }
    result.push_back(*normal);
  }
  llvm::sort(result);
  return result;
}

std::optional<std::optional<Dims>> Node::intsAttributeOrOperand(StringRef name,
                                                                unsigned index) const {
  if (hasAttribute(name))
    return intsAttribute(name);
  if (!hasOperand(index))
    return std::optional<Dims>();
  std::optional<Dims> ints = intsOperand(index, name);
  if (!ints)
    return std::nullopt;
  return ints;
}

LogicalResult Node::checkSameElementType(Value x, Value y) const {
  if (!x || !y)
    return failure();
  if (getTensorType(x).getElementType() == getTensorType(y).getElementType())
    return success();
  return error() << "operands " << x.getType() << " and " << y.getType()
                 << " differ in element type";
}

Type Node::elementType(int64_t onnxType) const {
  Type type = getElementType(getContext(), onnxType);
  if (!type)
    error() << "element type " << getTypeName(onnxType) << " is not supported";
  return type;
}

Type Node::convertedType(int64_t onnxType) const {
  Type narrow = getNarrowType(getContext(), onnxType);
  return narrow ? narrow : elementType(onnxType);
}
