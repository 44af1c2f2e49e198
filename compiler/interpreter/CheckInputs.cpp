//===- CheckInputs.cpp - values for a program's inputs --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/CheckInputs.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

#include <cstring>
#include <numbers>

using namespace mlir;
using namespace gridloom;
using loom::ElementKind;
using loom::HostTensor;

//===----------------------------------------------------------------------===//
// .npy files
//===----------------------------------------------------------------------===//

/// What follows `'key':` in a .npy header, up to a comma that is not in parentheses.
static StringRef getHeaderField(StringRef header, StringRef key) {
  size_t at = header.find(("'" + key + "':").str());
  if (at == StringRef::npos)
    return {};
  StringRef rest = header.drop_front(at + key.size() + 3).ltrim();
  if (rest.consume_front("("))
    return rest.take_until([](char c) { return c == ')'; });
  return rest.take_until([](char c) { return c == ',' || c == '}'; }).trim(" '");
}

static std::optional<ElementKind> getNumpyKind(StringRef type) {
  return llvm::StringSwitch<std::optional<ElementKind>>(type.ltrim("<=|"))
      .Case("b1", ElementKind::Bool)
      .Case("i1", ElementKind::I8)
      .Case("u1", ElementKind::U8)
      .Case("u2", ElementKind::U16)
      .Case("u4", ElementKind::U32)
      .Case("u8", ElementKind::U64)
      .Case("i2", ElementKind::I16)
      .Case("i4", ElementKind::I32)
      .Case("i8", ElementKind::I64)
      .Case("f2", ElementKind::F16)
      .Case("f4", ElementKind::F32)
      .Case("f8", ElementKind::F64)
      // numpy's extensions: bf16, and 8-bit floats, of which the file does not tell them apart.
      .Case("V2", ElementKind::BF16)
      .Cases({"V1", "f1"}, ElementKind::U8)
      .Default(std::nullopt);
}

FailureOr<HostTensor> gridloom::readNumpy(StringRef path, std::string &error) {
  auto fail = [&](const Twine &message) {
    error = ("'" + path + "' " + message).str();
    return failure();
  };
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return fail("cannot be read: " + file.getError().message());
  StringRef content = (*file)->getBuffer();
  if (!content.starts_with("\x93NUMPY") || content.size() < 12)
    return fail("is no .npy file");
  bool wide = content[6] >= 2; // version 1 has a 16-bit header length
  size_t length = static_cast<uint8_t>(content[8]) | static_cast<uint8_t>(content[9]) << 8;
  StringRef header = content.substr(wide ? 12 : 10, length),
            data = content.substr((wide ? 12 : 10) + length);
  std::optional<ElementKind> kind = getNumpyKind(getHeaderField(header, "descr"));
  if (!kind)
    return fail("has elements of type '" + getHeaderField(header, "descr") +
                "', which are not supported");
  if (getHeaderField(header, "fortran_order") != "False")
    return fail("is in column-major order; save a C-contiguous array");
  SmallVector<StringRef> sizes;
  SmallVector<int64_t> shape;
  getHeaderField(header, "shape").split(sizes, ',', -1, /*KeepEmpty=*/false);
  for (StringRef size : sizes)
    if (!size.trim().empty() && size.trim().getAsInteger(10, shape.emplace_back()))
      return fail("has a header that cannot be read");
  HostTensor tensor(*kind, shape);
  if (data.size() != tensor.getNumBytes())
    return fail("has " + Twine(data.size()) + " bytes of data, its shape needs " +
                Twine(tensor.getNumBytes()));
  if (!data.empty())
    std::memcpy(tensor.getMutableData(), data.data(), data.size());
  return tensor;
}

//===----------------------------------------------------------------------===//
// Random values
//===----------------------------------------------------------------------===//

/// The least size of a dimension that `value` indexes, looking through operations that keep its
/// elements; 2 when it indexes nothing.
static int64_t getIndexBound(Value value) {
  int64_t bound = std::numeric_limits<int64_t>::max();
  SmallVector<Value> queue{value};
  while (!queue.empty()) {
    Value next = queue.pop_back_val();
    for (Operation *user : next.getUsers()) {
      if (auto gather = dyn_cast<loom::GatherOp>(user); gather && gather.getIndices() == next)
        bound = std::min(
            bound, cast<RankedTensorType>(gather.getInput().getType()).getDimSize(gather.getDim()));
      else if (isa<loom::ReshapeOp, loom::BroadcastOp, loom::TransposeOp, loom::ConvertOp,
                   loom::SliceOp>(user))
        queue.push_back(user->getResult(0));
    }
  }
  return bound == std::numeric_limits<int64_t>::max() ? 2 : bound;
}

/// name(a, b) or a number.
struct ValueSpec {
  std::string name = "constant";
  double first = 0, second = 0;
};

static std::optional<ValueSpec> parseSpec(StringRef text) {
  ValueSpec spec;
  if (!text.getAsDouble(spec.first))
    return spec;
  auto [name, arguments] = text.split('(');
  auto [first, second] = arguments.split(',');
  spec.name = name.str();
  if (!second.consume_back(")") || first.trim().getAsDouble(spec.first) ||
      second.trim().getAsDouble(spec.second))
    return std::nullopt;
  if (name != "randint" && name != "uniform" && name != "normal")
    return std::nullopt;
  return spec;
}

static std::vector<double> makeValues(const ValueSpec &spec, uint64_t seed, int64_t count) {
  std::vector<double> values = makeUniform(seed, count);
  std::vector<double> angles;
  if (spec.name == "normal")
    angles = makeUniform(~seed, count);
  for (auto [i, value] : llvm::enumerate(values)) {
    if (spec.name == "constant")
      value = spec.first;
    else if (spec.name == "randint")
      value = std::floor(spec.first + value * (spec.second - spec.first));
    else if (spec.name == "uniform")
      value = spec.first + value * (spec.second - spec.first);
    else // Box and Muller
      value = spec.first + spec.second * std::sqrt(-2 * std::log(1 - value)) *
                               std::cos(2 * std::numbers::pi * angles[i]);
  }
  return values;
}

static FailureOr<HostTensor> makeInput(func::FuncOp function, unsigned index, StringRef name,
                                       std::optional<StringRef> given, uint64_t seed) {
  auto type = cast<RankedTensorType>(function.getArgumentTypes()[index]);
  std::optional<ElementKind> kind = loom::getElementKind(type.getElementType());
  if (!kind)
    return function.emitError() << "input '" << name << "' has element type "
                                << type.getElementType();
  if (given && given->ends_with(".npy")) {
    std::string error;
    FailureOr<HostTensor> tensor = readNumpy(*given, error);
    if (failed(tensor))
      return function.emitError() << "input '" << name << "': " << error;
    if (tensor->getKind() == ElementKind::U8 && loom::isFloat8(type.getElementType())) {
      HostTensor codes(*kind, tensor->getShape());
      llvm::copy(tensor->getValues<uint8_t>(), codes.getMutableValues<uint8_t>().begin());
      tensor = codes;
    }
    if (tensor->getKind() != *kind || tensor->getShape() != type.getShape())
      return function.emitError() << "input '" << name << "': '" << *given << "' holds "
                                  << loom::nameOf(tensor->getKind()) << " of shape ["
                                  << tensor->getShape() << "], the program takes " << type;
    return tensor;
  }
  std::optional<ValueSpec> spec;
  if (given)
    spec = parseSpec(*given);
  else if (loom::isFloatKind(*kind))
    spec = ValueSpec{"uniform", -1, 1};
  else
    spec = ValueSpec{"randint", 0, static_cast<double>(getIndexBound(function.getArgument(index)))};
  if (!spec)
    return function.emitError() << "input '" << name << "': '" << *given
                                << "' is none of randint(LOW,HIGH), uniform(LOW,HIGH), "
                                   "normal(MEAN,DEVIATION), a number, FILE.npy";
  uint64_t stream = seed ^ llvm::xxh3_64bits(name);
  return HostTensor::fromDoubles(*kind, type.getShape(),
                                 makeValues(*spec, stream, type.getNumElements()));
}

FailureOr<NamedTensors> gridloom::makeInputs(func::FuncOp function, ArrayRef<std::string> given,
                                             uint64_t seed) {
  llvm::StringMap<StringRef> specs;
  for (StringRef text : given) {
    auto [name, value] = text.split('=');
    if (value.empty())
      return function.emitError() << "'" << text << "' is no NAME=VALUE";
    specs[name] = value;
  }
  NamedTensors inputs;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto name = function.getArgAttrOfType<StringAttr>(i, loom::kName);
    if (!name)
      return function.emitError() << "argument " << i << " has no name";
    auto found = specs.find(name.getValue());
    if (found == specs.end() && function.getArgAttr(i, loom::kState))
      continue; // zeros, as in a new session
    std::optional<StringRef> spec;
    if (found != specs.end()) {
      spec = found->second;
      specs.erase(found);
    }
    FailureOr<HostTensor> tensor = makeInput(function, i, name.getValue(), spec, seed);
    if (failed(tensor))
      return failure();
    inputs[name.getValue()] = *std::move(tensor);
  }
  if (!specs.empty())
    return function.emitError() << "the program has no input '" << specs.begin()->first() << "'";
  return inputs;
}
