//===- CheckInputs.cpp - values for a program's inputs --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/CheckInputs.h"

#include "compiler/interpreter/PlanRun.h"
#include "dialects/loom/Training.h"

#include "llvm/Support/Format.h"

using namespace mlir;
using namespace gridloom;
using loom::ElementKind;
using loom::HostTensor;

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

/// The plan's learning rate, for the setting of that name.
static std::optional<std::string> getSetting(BlockArgument input) {
  auto function = cast<func::FuncOp>(input.getOwner()->getParentOp());
  auto role = function.getArgAttrOfType<StringAttr>(input.getArgNumber(), loom::kRole);
  auto training = function->getParentOp()->getAttrOfType<DictionaryAttr>(loom::kTraining);
  if (!role || role != loom::kSetting || !training)
    return std::nullopt;
  auto number = training.getAs<FloatAttr>(
      function.getArgAttrOfType<StringAttr>(input.getArgNumber(), loom::kName));
  if (!number)
    return std::nullopt;
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.17g", number.getValueAsDouble());
  return text;
}

/// The default value of an input.
static std::string getDefault(BlockArgument input) {
  if (std::optional<std::string> number = getSetting(input))
    return *number;
  Type type = cast<RankedTensorType>(input.getType()).getElementType();
  if (isa<FloatType>(type))
    return "uniform(-1,1)";
  // Indices are within the range of their type.
  unsigned bits = std::min(type.getIntOrFloatBitWidth() - !type.isUnsignedInteger(), 62u);
  int64_t most = type.isInteger(1) ? 2 : int64_t(1) << bits, bound = getIndexBound(input);
  auto function = cast<func::FuncOp>(input.getOwner()->getParentOp());
  auto use = function.getArgAttrOfType<DictionaryAttr>(input.getArgNumber(), loom::kIndices);
  if (use)
    bound = use.getAs<IntegerAttr>("size").getInt() - use.getAs<IntegerAttr>("last").getInt();
  bool isBound = bool(use);
  if (auto of = function.getArgAttrOfType<ArrayAttr>(input.getArgNumber(), loom::kLabels))
    for (auto loss : of.getAsRange<DictionaryAttr>()) {
      int64_t classes = loss.getAs<IntegerAttr>("classes").getInt();
      bound = std::exchange(isBound, true) ? std::min(bound, classes) : classes;
    }
  return "randint(0," + std::to_string(std::clamp<int64_t>(bound, 1, most)) + ")";
}

static FailureOr<HostTensor> makeInput(func::FuncOp function, BlockArgument input, StringRef name,
                                       std::optional<StringRef> given, uint64_t seed) {
  auto type = cast<RankedTensorType>(input.getType());
  std::optional<ElementKind> kind = loom::getElementKind(type.getElementType());
  if (!kind)
    return function.emitError() << "input '" << name << "' has element type "
                                << type.getElementType();
  std::string error;
  PlanTensor made = makeInputTensor(name.str(), given ? given->str() : getDefault(input),
                                    loom::nameOf(*kind).str(),
                                    std::vector<int64_t>(type.getShape()), seed, error);
  if (!error.empty())
    return function.emitError() << "input '" << name << "': " << error;
  HostTensor tensor(*kind, type.getShape());
  if (tensor.getNumBytes() != made.bytes.size())
    return function.emitError() << "input '" << name << "' has " << made.bytes.size()
                                << " bytes, its type needs " << tensor.getNumBytes();
  llvm::copy(made.bytes, tensor.getMutableData());
  return tensor;
}

FailureOr<NamedTensors> gridloom::makeInputs(func::FuncOp function, ArrayRef<std::string> given,
                                             uint64_t seed) {
  llvm::StringMap<StringRef> specs;
  for (StringRef text : given) {
    auto [name, value] = text.split('=');
    if (value.empty())
      return function.emitError() << "'" << text << "' is not NAME=VALUE";
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
    FailureOr<HostTensor> tensor =
        makeInput(function, function.getArgument(i), name.getValue(), spec, seed);
    if (failed(tensor))
      return failure();
    inputs[name.getValue()] = *std::move(tensor);
  }
  if (!specs.empty())
    return function.emitError() << "the program has no input '" << specs.begin()->first() << "'";
  return inputs;
}
