//===- HostTensor.cpp - tensors the compiler computes with ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/HostTensor.h"

#include "support/NarrowFloat.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <concepts>
#include <cstring>

using namespace mlir;
using namespace gridloom::loom;

//===----------------------------------------------------------------------===//
// Element kinds
//===----------------------------------------------------------------------===//

size_t gridloom::loom::sizeOf(ElementKind kind) {
  switch (kind) {
  case ElementKind::Bool:
  case ElementKind::I8:
  case ElementKind::U8:
  case ElementKind::F8E4M3FN:
  case ElementKind::F8E5M2:
  case ElementKind::F8E4M3FNUZ:
  case ElementKind::F8E5M2FNUZ:
    return 1;
  case ElementKind::I16:
  case ElementKind::U16:
  case ElementKind::F16:
  case ElementKind::BF16:
    return 2;
  case ElementKind::I32:
  case ElementKind::U32:
  case ElementKind::F32:
    return 4;
  case ElementKind::I64:
  case ElementKind::U64:
  case ElementKind::F64:
  case ElementKind::Exact:
    return 8;
  }
  return 0;
}

bool gridloom::loom::isFloatKind(ElementKind kind) {
  return kind >= ElementKind::F8E4M3FN && kind <= ElementKind::F64;
}

StringRef gridloom::loom::nameOf(ElementKind kind) {
  static constexpr StringLiteral names[] = {
      "bool",     "i8",     "i16",        "i32",        "i64", "u8",   "u16", "u32", "u64",
      "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f16", "bf16", "f32", "f64", "exact"};
  return names[static_cast<size_t>(kind)];
}

std::optional<ElementKind> gridloom::loom::getElementKind(Type type) {
  if (auto integer = dyn_cast<IntegerType>(type)) {
    switch (integer.getWidth()) {
    case 1:
      return ElementKind::Bool;
    case 8:
      return integer.isUnsigned() ? ElementKind::U8 : ElementKind::I8;
    case 16:
      return integer.isUnsigned() ? ElementKind::U16 : ElementKind::I16;
    case 32:
      return integer.isUnsigned() ? ElementKind::U32 : ElementKind::I32;
    case 64:
      return integer.isUnsigned() ? ElementKind::U64 : ElementKind::I64;
    default:
      return std::nullopt;
    }
  }
  if (isa<Float8E4M3FNType>(type))
    return ElementKind::F8E4M3FN;
  if (isa<Float8E5M2Type>(type))
    return ElementKind::F8E5M2;
  if (isa<Float8E4M3FNUZType>(type))
    return ElementKind::F8E4M3FNUZ;
  if (isa<Float8E5M2FNUZType>(type))
    return ElementKind::F8E5M2FNUZ;
  if (type.isF16())
    return ElementKind::F16;
  if (type.isBF16())
    return ElementKind::BF16;
  if (type.isF32())
    return ElementKind::F32;
  if (type.isF64())
    return ElementKind::F64;
  return std::nullopt;
}

Type gridloom::loom::getElementType(ElementKind kind, MLIRContext *context) {
  switch (kind) {
  case ElementKind::Bool:
    return IntegerType::get(context, 1);
  case ElementKind::I8:
  case ElementKind::I16:
  case ElementKind::I32:
  case ElementKind::I64:
    return IntegerType::get(context, 8 * sizeOf(kind));
  case ElementKind::U8:
  case ElementKind::U16:
  case ElementKind::U32:
  case ElementKind::U64:
    return IntegerType::get(context, 8 * sizeOf(kind), IntegerType::Unsigned);
  case ElementKind::F8E4M3FN:
    return Float8E4M3FNType::get(context);
  case ElementKind::F8E5M2:
    return Float8E5M2Type::get(context);
  case ElementKind::F8E4M3FNUZ:
    return Float8E4M3FNUZType::get(context);
  case ElementKind::F8E5M2FNUZ:
    return Float8E5M2FNUZType::get(context);
  case ElementKind::F16:
    return Float16Type::get(context);
  case ElementKind::BF16:
    return BFloat16Type::get(context);
  case ElementKind::F32:
    return Float32Type::get(context);
  case ElementKind::F64:
    return Float64Type::get(context);
  case ElementKind::Exact:
    return {};
  }
  return {};
}

bool gridloom::loom::isFloat8(Type element) {
  return isa<Float8E4M3FNType, Float8E5M2Type, Float8E4M3FNUZType, Float8E5M2FNUZType>(element);
}

//===----------------------------------------------------------------------===//
// 8-bit floats
//
// Uses APFloat, not support/NarrowFloat.h: doubles are rounded only once, saturation is optional,
// and tests compare the runtime's conversions with these.
//===----------------------------------------------------------------------===//

/// Null if the kind is no 8-bit float.
static const llvm::fltSemantics *getFloat8(ElementKind kind) {
  switch (kind) {
  case ElementKind::F8E4M3FN:
    return &APFloat::Float8E4M3FN();
  case ElementKind::F8E5M2:
    return &APFloat::Float8E5M2();
  case ElementKind::F8E4M3FNUZ:
    return &APFloat::Float8E4M3FNUZ();
  case ElementKind::F8E5M2FNUZ:
    return &APFloat::Float8E5M2FNUZ();
  default:
    return nullptr;
  }
}

static double float8ToDouble(const llvm::fltSemantics &semantics, uint8_t code) {
  return APFloat(semantics, APInt(8, code)).convertToDouble();
}

static uint8_t doubleToFloat8(const llvm::fltSemantics &semantics, double value, bool saturate) {
  bool isNegative = std::signbit(value), losesInfo = false;
  APFloat result(value);
  if (result.isNaN())
    result = APFloat::getNaN(semantics, isNegative);
  else
    result.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  if (saturate && !std::isnan(value) && !result.isFinite())
    result = APFloat::getLargest(semantics, isNegative);
  return static_cast<uint8_t>(result.bitcastToAPInt().getZExtValue());
}

//===----------------------------------------------------------------------===//
// Making tensors
//===----------------------------------------------------------------------===//

int64_t gridloom::loom::countElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

SmallVector<int64_t> gridloom::loom::getRowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

HostTensor::HostTensor(ElementKind kind, ArrayRef<int64_t> shape)
    : kind(kind), shape(shape), numElements(::countElements(shape)),
      bytes(std::make_shared<std::vector<char>>(numElements * sizeOf(kind))) {}

char *HostTensor::getMutableData() {
  if (!bytes)
    return nullptr;
  if (bytes.use_count() > 1)
    bytes = std::make_shared<std::vector<char>>(*bytes);
  return bytes->data();
}

RankedTensorType HostTensor::getType(MLIRContext *context) const {
  Type element = getElementType(kind, context);
  return element ? RankedTensorType::get(shape, element) : RankedTensorType();
}

/// Raw storage of a dense or resource attribute, and whether it is a splat.
static std::optional<std::pair<ArrayRef<char>, bool>> getRawStorage(ElementsAttr attribute) {
  if (auto dense = dyn_cast<DenseElementsAttr>(attribute))
    return std::make_pair(dense.getRawData(), dense.isSplat());
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(attribute))
    if (AsmResourceBlob *blob = resource.getRawHandle().getBlob())
      return std::make_pair(blob->getData(), false);
  return std::nullopt;
}

FailureOr<HostTensor> HostTensor::fromAttribute(ElementsAttr attribute) {
  std::optional<ElementKind> kind = getElementKind(attribute.getElementType());
  if (!kind)
    return failure();
  HostTensor tensor(*kind, attribute.getShapedType().getShape());
  // Attributes may pack i1 into bits, so their values are read instead.
  if (*kind == ElementKind::Bool) {
    std::optional values = attribute.tryGetValues<bool>();
    if (!values)
      return failure();
    for (auto [target, value] : llvm::zip_equal(tensor.getMutableValues<uint8_t>(), *values))
      target = value;
    return tensor;
  }
  auto storage = getRawStorage(attribute);
  if (!storage)
    return failure();
  auto [raw, splat] = *storage;
  char *data = tensor.getMutableData();
  size_t elementSize = tensor.getElementSize();
  if (splat) {
    for (int64_t i = 0; i < tensor.numElements; ++i)
      std::memcpy(data + i * elementSize, raw.data(), elementSize);
    return tensor;
  }
  if (raw.size() != tensor.getNumBytes())
    return failure();
  if (!raw.empty())
    std::memcpy(data, raw.data(), raw.size());
  return tensor;
}

DenseElementsAttr HostTensor::toAttribute(MLIRContext *context) const {
  RankedTensorType type = getType(context);
  bool splat = numElements > 0;
  for (int64_t i = 1; splat && i < numElements; ++i)
    splat = std::memcmp(getData(), getData() + i * getElementSize(), getElementSize()) == 0;
  int64_t count = splat ? 1 : numElements;
  if (kind == ElementKind::Bool) {
    SmallVector<bool> values;
    for (uint8_t value : getValues<uint8_t>().take_front(count))
      values.push_back(value != 0);
    return DenseElementsAttr::get(type, values);
  }
  return DenseElementsAttr::getFromRawBuffer(type,
                                             ArrayRef<char>(getData(), count * getElementSize()));
}

//===----------------------------------------------------------------------===//
// Element conversion
//===----------------------------------------------------------------------===//

/// Calls `function` with a value of the C++ type that holds an integer element of `kind`.
template <typename FunctionT> static void visitInteger(ElementKind kind, FunctionT function) {
  switch (kind) {
  case ElementKind::Bool:
  case ElementKind::U8:
    return function(uint8_t());
  case ElementKind::I8:
    return function(int8_t());
  case ElementKind::I16:
    return function(int16_t());
  case ElementKind::I32:
    return function(int32_t());
  case ElementKind::I64:
    return function(int64_t());
  case ElementKind::U16:
    return function(uint16_t());
  case ElementKind::U32:
    return function(uint32_t());
  case ElementKind::U64:
    return function(uint64_t());
  default:
    llvm_unreachable("not an integer element");
  }
}

std::vector<double> HostTensor::toDoubles() const {
  assert(kind != ElementKind::Exact && "exact elements have no value");
  std::vector<double> result(numElements);
  auto convert = [&](auto sample, auto function) {
    for (auto [target, value] : llvm::zip_equal(result, getValues<decltype(sample)>()))
      target = function(value);
  };
  if (const llvm::fltSemantics *semantics = getFloat8(kind)) {
    std::array<double, 256> values;
    for (unsigned code = 0; code < values.size(); ++code)
      values[code] = float8ToDouble(*semantics, static_cast<uint8_t>(code));
    convert(uint8_t(), [&](uint8_t code) { return values[code]; });
    return result;
  }
  switch (kind) {
  case ElementKind::F16:
    convert(uint16_t(), Half::load);
    break;
  case ElementKind::BF16:
    convert(uint16_t(), BFloat::load);
    break;
  case ElementKind::F32:
    convert(float(), [](float value) { return value; });
    break;
  case ElementKind::F64:
    convert(double(), [](double value) { return value; });
    break;
  default:
    visitInteger(kind, [&](auto sample) {
      convert(sample, [](auto value) { return static_cast<double>(value); });
    });
  }
  return result;
}

/// Truncates towards zero and saturates; NaN becomes 0.
static int64_t truncateToInt(double value) {
  if (std::isnan(value))
    return 0;
  if (value >= 0x1p63)
    return std::numeric_limits<int64_t>::max();
  if (value < -0x1p63)
    return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

std::vector<int64_t> HostTensor::toInts() const {
  assert(kind != ElementKind::Exact && "exact elements have no value");
  std::vector<int64_t> result(numElements);
  if (isFloatKind(kind)) {
    std::vector<double> values = toDoubles();
    llvm::transform(values, result.begin(), truncateToInt);
    return result;
  }
  visitInteger(kind,
               [&](auto sample) { llvm::copy(getValues<decltype(sample)>(), result.begin()); });
  return result;
}

std::vector<Exact> HostTensor::toExact() const {
  std::vector<Exact> result(numElements);
  if (kind == ElementKind::Exact) {
    llvm::copy(getValues<Exact>(), result.begin());
  } else if (isFloatKind(kind)) {
    std::vector<double> values = toDoubles();
    llvm::transform(values, result.begin(), Exact::fromDouble);
  } else {
    std::vector<int64_t> values = toInts();
    llvm::transform(values, result.begin(), Exact::fromInt);
  }
  return result;
}

HostTensor HostTensor::toExactMode() const {
  return isFloatKind(kind) ? fromExact(shape, toExact()) : *this;
}

HostTensor HostTensor::fromDoubles(ElementKind kind, ArrayRef<int64_t> shape,
                                   ArrayRef<double> values, bool saturate) {
  HostTensor tensor(kind, shape);
  assert(static_cast<int64_t>(values.size()) == tensor.numElements && "one value per element");
  auto convert = [&](auto sample, auto function) {
    for (auto [target, value] :
         llvm::zip_equal(tensor.getMutableValues<decltype(sample)>(), values))
      target = function(value);
  };
  if (const llvm::fltSemantics *semantics = getFloat8(kind)) {
    convert(uint8_t(), [&](double value) { return doubleToFloat8(*semantics, value, saturate); });
    return tensor;
  }
  switch (kind) {
  case ElementKind::F16:
    convert(uint16_t(), [](double value) { return Half::store(static_cast<float>(value)); });
    break;
  case ElementKind::BF16:
    convert(uint16_t(), [](double value) { return BFloat::store(static_cast<float>(value)); });
    break;
  case ElementKind::F32:
    convert(float(), [](double value) { return static_cast<float>(value); });
    break;
  case ElementKind::F64:
    convert(double(), [](double value) { return value; });
    break;
  case ElementKind::Bool:
    convert(uint8_t(), [](double value) { return static_cast<uint8_t>(value != 0); });
    break;
  case ElementKind::Exact:
    convert(Exact(), Exact::fromDouble);
    break;
  default:
    visitInteger(kind, [&](auto sample) {
      convert(sample, [](double value) {
        // Beyond the range of signed integers.
        if (std::same_as<decltype(sample), uint64_t> && value >= 0x1p63)
          return static_cast<decltype(sample)>(
              value < 0x1p64 ? static_cast<uint64_t>(value) : std::numeric_limits<uint64_t>::max());
        return static_cast<decltype(sample)>(truncateToInt(value));
      });
    });
  }
  return tensor;
}

HostTensor HostTensor::fromInts(ElementKind kind, ArrayRef<int64_t> shape,
                                ArrayRef<int64_t> values) {
  if (isFloatKind(kind)) {
    std::vector<double> doubles(values.begin(), values.end());
    return fromDoubles(kind, shape, doubles);
  }
  HostTensor tensor(kind, shape);
  assert(static_cast<int64_t>(values.size()) == tensor.numElements && "one value per element");
  if (kind == ElementKind::Exact) {
    llvm::transform(values, tensor.getMutableValues<Exact>().begin(), Exact::fromInt);
  } else if (kind == ElementKind::Bool) {
    llvm::transform(values, tensor.getMutableValues<uint8_t>().begin(),
                    [](int64_t value) { return value != 0; });
  } else {
    visitInteger(kind, [&](auto sample) {
      llvm::transform(values, tensor.getMutableValues<decltype(sample)>().begin(),
                      [](int64_t value) { return static_cast<decltype(sample)>(value); });
    });
  }
  return tensor;
}

HostTensor HostTensor::fromExact(ArrayRef<int64_t> shape, std::vector<Exact> values) {
  HostTensor tensor(ElementKind::Exact, shape);
  assert(static_cast<int64_t>(values.size()) == tensor.numElements && "one value per element");
  llvm::copy(values, tensor.getMutableValues<Exact>().begin());
  return tensor;
}

//===----------------------------------------------------------------------===//
// Moving elements
//===----------------------------------------------------------------------===//

HostTensor HostTensor::reshaped(ArrayRef<int64_t> newShape) const {
  assert(::countElements(newShape) == numElements && "a reshape keeps the number of elements");
  HostTensor result = *this;
  result.shape.assign(newShape.begin(), newShape.end());
  return result;
}

/// Copies a block of `sizes` elements between two row-major arrays, row by row.
static void copyBlock(const char *source, ArrayRef<int64_t> sourceStrides, char *target,
                      ArrayRef<int64_t> targetStrides, ArrayRef<int64_t> sizes,
                      size_t elementSize) {
  if (sizes.empty()) {
    std::memcpy(target, source, elementSize);
    return;
  }
  if (sizes.size() == 1) {
    if (sizes[0] > 0)
      std::memcpy(target, source, sizes[0] * elementSize);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i)
    copyBlock(source + i * sourceStrides[0] * elementSize, sourceStrides.drop_front(),
              target + i * targetStrides[0] * elementSize, targetStrides.drop_front(),
              sizes.drop_front(), elementSize);
}

static int64_t getOffset(ArrayRef<int64_t> strides, ArrayRef<int64_t> starts) {
  int64_t offset = 0;
  for (auto [stride, start] : llvm::zip_equal(strides, starts))
    offset += stride * start;
  return offset;
}

HostTensor HostTensor::extract(ArrayRef<int64_t> starts, ArrayRef<int64_t> sizes) const {
  HostTensor result(kind, sizes);
  SmallVector<int64_t> overlap;
  bool whole = true;
  for (auto [start, size, extent] : llvm::zip_equal(starts, sizes, shape)) {
    overlap.push_back(std::clamp<int64_t>(extent - start, 0, size));
    whole &= overlap.back() == size;
  }
  if (!whole)
    result.fillWithPoison();
  if (::countElements(overlap) == 0)
    return result;
  SmallVector<int64_t> strides = getRowMajorStrides(shape);
  copyBlock(getData() + getOffset(strides, starts) * getElementSize(), strides,
            result.getMutableData(), getRowMajorStrides(sizes), overlap, getElementSize());
  return result;
}

void HostTensor::insert(const HostTensor &source, ArrayRef<int64_t> starts) {
  assert(source.kind == kind && "tensors differ in element kind");
  SmallVector<int64_t> overlap;
  for (auto [start, size, extent] : llvm::zip_equal(starts, source.shape, shape))
    overlap.push_back(std::clamp<int64_t>(extent - start, 0, size));
  if (::countElements(overlap) == 0)
    return;
  SmallVector<int64_t> strides = getRowMajorStrides(shape);
  copyBlock(source.getData(), getRowMajorStrides(source.shape),
            getMutableData() + getOffset(strides, starts) * getElementSize(), strides, overlap,
            getElementSize());
}

void HostTensor::fillWithPoison() {
  if (const llvm::fltSemantics *semantics = getFloat8(kind))
    return llvm::fill(getMutableValues<uint8_t>(), doubleToFloat8(*semantics, std::nan(""), true));
  switch (kind) {
  case ElementKind::F16:
    return llvm::fill(getMutableValues<uint16_t>(), 0x7e00);
  case ElementKind::BF16:
    return llvm::fill(getMutableValues<uint16_t>(), 0x7fc0);
  case ElementKind::F32:
    return llvm::fill(getMutableValues<float>(), std::numeric_limits<float>::quiet_NaN());
  case ElementKind::F64:
    return llvm::fill(getMutableValues<double>(), std::numeric_limits<double>::quiet_NaN());
  case ElementKind::Exact:
    return llvm::fill(getMutableValues<Exact>(), Exact::nan());
  case ElementKind::Bool:
    return llvm::fill(getMutableValues<uint8_t>(), 1);
  default:
    if (numElements > 0)
      std::memset(getMutableData(), 0x5a, getNumBytes());
  }
}

bool HostTensor::isBitwiseEqual(const HostTensor &other) const {
  return kind == other.kind && ArrayRef(shape) == ArrayRef(other.shape) &&
         (numElements == 0 || std::memcmp(getData(), other.getData(), getNumBytes()) == 0);
}
