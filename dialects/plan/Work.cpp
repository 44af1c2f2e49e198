//===- Work.cpp - kernels and library calls as the cost library sees them -===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/plan/Work.h"

#include "cluster/KernelClass.h"
#include "dialects/dist/MachineAttr.h"
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::plan;

/// The tensor of a value, in registers or in a buffer; null for others.
static RankedTensorType getTensor(Value value) {
  if (auto buffer = dyn_cast<BufferType>(value.getType()))
    return buffer.getTensor();
  return dyn_cast<RankedTensorType>(value.getType());
}

static double getBytes(Value value) {
  RankedTensorType type = getTensor(value);
  return type ? static_cast<double>(loom::getByteSize(type)) : 0;
}

/// Bytes that a kernel reads of an input: rows that are looked up and slices, or all of it.
static double getReadBytes(Value argument) {
  double parts = 0, all = getBytes(argument);
  for (OpOperand &use : argument.getUses()) {
    Operation *reader = use.getOwner();
    bool isPart = use.getOperandNumber() == 0 && isa<loom::GatherOp, loom::SliceOp>(reader);
    if (!isPart)
      return all;
    parts += getBytes(reader->getResult(0));
  }
  return std::min(parts, all);
}

/// Descriptor or kernel, inputs and outputs of an operation.
struct Step {
  Attribute descriptor; ///< null for kernels and copies
  FlatSymbolRefAttr kernel;
  ValueRange inputs, outputs;
};

static Step readStep(Operation *op) {
  return llvm::TypeSwitch<Operation *, Step>(op)
      .Case<MatmulOp, ConvolutionOp, AttentionOp>([](auto call) {
        return Step{call.getDescriptor(), {}, call->getOperands(), call->getResults()};
      })
      .Case([](CallOp call) {
        return Step{{}, call.getKernelAttr(), call.getInputs(), call.getOutputs()};
      })
      .Case([](LibraryOp call) {
        return Step{call.getDescriptor(), {}, call.getInputs(), call.getOutputs()};
      })
      .Case([](LaunchOp launch) {
        return Step{{}, launch.getKernelAttr(), launch.getInputs(), launch.getOutputs()};
      })
      .Case([](CopyOp copy) { return Step{{}, {}, copy.getInputs(), copy.getOutputs()}; });
}

static void setProduct(cluster::Work &work, double flops, bool isTf32) {
  work.kind = cluster::WorkClass::Contraction;
  work.flops = flops;
  if (isTf32)
    work.type = cluster::NumberType::Tf32;
}

cluster::Work gridloom::plan::getWork(Operation *op, SymbolTableCollection &symbols) {
  cluster::Work work;
  Step step = readStep(op);
  auto kernel =
      step.kernel ? symbols.lookupNearestSymbolFrom<KernelOp>(op, step.kernel) : KernelOp();
  Value first = step.inputs.empty() ? step.outputs.front() : step.inputs.front();
  work.type = dist::getNumberType(getTensor(first).getElementType());
  for (auto [i, input] : llvm::enumerate(step.inputs))
    work.readBytes +=
        kernel ? getReadBytes(kernel.getBody().front().getArgument(i)) : getBytes(input);
  for (Value output : step.outputs)
    work.writtenBytes += getBytes(output);
  if (kernel) {
    kernel.getBody().walk(
        [&](loom::CostInterface part) { work.flops += static_cast<double>(part.getFlops()); });
    work.kind = cluster::getKernelClass(work);
  }
  if (auto convolution = dyn_cast_or_null<ConvolutionAttr>(step.descriptor)) {
    setProduct(work, convolution.getFlops(), convolution.getTf32());
  } else if (auto attention = dyn_cast_or_null<AttentionAttr>(step.descriptor)) {
    setProduct(work, attention.getFlops(), /*isTf32=*/false);
  } else if (auto matmul = dyn_cast_or_null<MatmulAttr>(step.descriptor)) {
    double flops = 2;
    for (int64_t size : matmul.getSizes())
      flops *= static_cast<double>(size);
    setProduct(work, flops, matmul.getTf32());
  }
  return work;
}
