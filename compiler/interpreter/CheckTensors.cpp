//===- CheckTensors.cpp - values and states that a check passes on --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/interpreter/CheckTensors.h"

#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace gridloom;
using loom::HostTensor;

PlanTensor gridloom::toPlanTensor(const HostTensor &tensor) {
  return {loom::nameOf(tensor.getKind()).str(), std::vector<int64_t>(tensor.getShape()),
          std::vector<char>(tensor.getData(), tensor.getData() + tensor.getNumBytes())};
}

static FailureOr<HostTensor> fromPlanTensor(const PlanTensor &plan) {
  for (int i = 0; i <= static_cast<int>(loom::ElementKind::F64); ++i) {
    auto kind = static_cast<loom::ElementKind>(i);
    if (loom::nameOf(kind) != plan.type)
      continue;
    HostTensor tensor(kind, plan.shape);
    if (tensor.getNumBytes() != plan.bytes.size())
      return failure();
    llvm::copy(plan.bytes, tensor.getMutableData());
    return tensor;
  }
  return failure();
}

FailureOr<NamedTensors> gridloom::toTensors(const std::map<std::string, PlanTensor> &outputs,
                                            MLIRContext *context) {
  NamedTensors tensors;
  for (const auto &[name, tensor] : outputs) {
    FailureOr<HostTensor> converted = fromPlanTensor(tensor);
    if (failed(converted))
      return emitError(UnknownLoc::get(context))
             << "output '" << name << "' has the unknown type " << tensor.type;
    tensors[name] = *std::move(converted);
  }
  return tensors;
}

PlanCall gridloom::makeCall(const Specialisation &specialisation, const NamedTensors &inputs) {
  PlanCall call;
  call.entry = specialisation.entry;
  for (const auto &entry : inputs)
    call.inputs[entry.first().str()] = toPlanTensor(entry.second);
  if (specialisation.dims)
    for (NamedAttribute dim : specialisation.dims)
      call.dims[dim.getName().str()] = cast<IntegerAttr>(dim.getValue()).getInt();
  return call;
}

bool gridloom::haveStates(ArrayRef<Specialisation> specialisations) {
  return llvm::any_of(specialisations, [](const Specialisation &specialisation) {
    return llvm::any_of(specialisation.stages, [](func::FuncOp function) {
      return llvm::any_of(llvm::seq(function.getNumArguments()), [&](unsigned i) {
        return function.getArgAttr(i, loom::kState) != nullptr;
      });
    });
  });
}

void gridloom::widenStates(const Specialisation &specialisation, NamedTensors &outputs) {
  for (func::FuncOp stage : specialisation.stages)
    for (unsigned i = 0; i < stage.getNumResults(); ++i) {
      auto name = stage.getResultAttrOfType<StringAttr>(i, loom::kName);
      auto found = name && stage.getResultAttr(i, loom::kState) ? outputs.find(name.getValue())
                                                                : outputs.end();
      if (found == outputs.end())
        continue;
      HostTensor &state = found->second;
      if (state.getKind() == loom::ElementKind::F16 || state.getKind() == loom::ElementKind::BF16)
        state =
            HostTensor::fromDoubles(loom::ElementKind::F32, state.getShape(), state.toDoubles());
    }
}

void gridloom::dropStates(const Specialisation &specialisation, NamedTensors &outputs) {
  for (func::FuncOp program : specialisation.stages)
    for (unsigned i = 0; i < program.getNumResults(); ++i)
      if (program.getResultAttr(i, loom::kState))
        outputs.erase(program.getResultAttrOfType<StringAttr>(i, loom::kName).getValue());
}

void gridloom::addStates(const Specialisation &specialisation,
                         std::map<std::string, PlanTensor> &feeds) {
  func::FuncOp program = specialisation.stages.front();
  for (BlockArgument argument : program.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto name = program.getArgAttrOfType<StringAttr>(index, loom::kName);
    auto type = cast<RankedTensorType>(argument.getType());
    std::optional<loom::ElementKind> kind = loom::getElementKind(type.getElementType());
    if (name && kind && program.getArgAttr(index, loom::kState))
      feeds.try_emplace(name.str(), toPlanTensor(HostTensor(*kind, type.getShape())));
  }
}

void gridloom::passStates(const Specialisation &specialisation, const PlanRunResult &result,
                          std::map<std::string, PlanTensor> &states) {
  func::FuncOp function = specialisation.stages.front();
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    for (unsigned k = 0; k < function.getNumResults(); ++k)
      if (Attribute state = function.getArgAttr(i, loom::kState);
          state && function.getResultAttr(k, loom::kState) == state)
        states[function.getArgAttrOfType<StringAttr>(i, loom::kName).str()] =
            result.outputs.at(function.getResultAttrOfType<StringAttr>(k, loom::kName).str());
}

void gridloom::readStates(const Specialisation &specialisation, PlanCall &call) {
  func::FuncOp function = specialisation.stages.front();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (auto state = function.getResultAttrOfType<StringAttr>(i, loom::kState))
      call.states[state.str()] = {function.getResultAttrOfType<StringAttr>(i, loom::kName).str(),
                                  std::vector<int64_t>(cast<RankedTensorType>(type).getShape())};
}
