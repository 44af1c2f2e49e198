//===- FormConvolutions.cpp - convolutions to library calls ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Passes.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {
#define GEN_PASS_DEF_FORMCONVOLUTIONS
#include "passes/fuse/Passes.h.inc"

namespace {

/// A convolution and the operations after it that are part of its call.
struct Call {
  loom::ConvolutionOp convolution;
  Value bias, residual, result;
  bool relu = false;
  SmallVector<Operation *> absorbed; // beginning with the convolution
};

ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// The only reader of `value`, if it is an Op, and its other operand.
template <typename Op> std::pair<Op, Value> matchOnlyUser(Value value) {
  auto user = value.hasOneUse() ? dyn_cast<Op>(*value.getUsers().begin()) : Op();
  if (!user)
    return {};
  return {user, user.getLhs() == value ? user.getRhs() : user.getLhs()};
}

/// The tensor with an element per channel that `value` repeats; null if there is none.
Value matchChannels(Value value) {
  auto broadcast = value.getDefiningOp<loom::BroadcastOp>();
  if (!broadcast)
    return {};
  Value input = broadcast.getInput();
  int64_t channels = getShape(value)[1];
  if (cast<RankedTensorType>(input.getType()).getNumElements() != channels)
    return {};
  if (channels == 1)
    return input;
  for (auto [size, dim] : llvm::zip_equal(getShape(input), broadcast.getDims()))
    if (size != 1 && dim != 1)
      return {};
  return input;
}

/// True if a value is written to memory whether the call reads it or not.
bool liesInMemory(Value value) {
  Operation *op = value.getDefiningOp();
  if (auto add = dyn_cast_or_null<loom::AddOp>(op))
    for (auto [sum, bias] : {std::pair(add.getLhs(), add.getRhs()), {add.getRhs(), add.getLhs()}})
      if (sum.getDefiningOp<loom::ConvolutionOp>() && sum.hasOneUse() && matchChannels(bias))
        return true;
  return !op || isa<loom::ConvolutionOp, plan::ConvolutionOp, plan::MatmulOp>(op) ||
         (!isa<loom::BroadcastOp, loom::ConstantOp>(op) && !value.hasOneUse());
}

/// With `epilogues`, the library adds residuals and applies relu.
Call match(loom::ConvolutionOp convolution, bool epilogues) {
  Call call;
  call.convolution = convolution;
  call.result = convolution.getOutput();
  call.absorbed = {convolution};
  Call longest = call; // with all that is worth absorbing
  auto take = [&](Operation *op) {
    call.absorbed.push_back(op);
    call.result = op->getResult(0);
  };
  while (!call.relu) {
    if (auto [add, other] = matchOnlyUser<loom::AddOp>(call.result); add) {
      Value channels = matchChannels(other);
      if (channels && !call.bias && !call.residual)
        call.bias = channels;
      else if (epilogues && !channels && !call.residual && liesInMemory(other))
        call.residual = other;
      else
        break;
      take(add);
    } else if (auto [peak, zero] = matchOnlyUser<loom::MaximumOp>(call.result);
               epilogues && peak && getFloatSplat(zero) == 0.0) {
      call.relu = true;
      take(peak);
    } else {
      break;
    }
    // The library adds residuals and applies relu only after a bias.
    if (call.bias && (call.relu || !feedsKernel(call.result)))
      longest = call;
  }
  return longest;
}

struct FormConvolutions : impl::FormConvolutionsBase<FormConvolutions> {
  using FormConvolutionsBase::FormConvolutionsBase;

  void runOnOperation() override {
    SmallVector<loom::ConvolutionOp> convolutions;
    getOperation().walk([&](loom::ConvolutionOp op) { convolutions.push_back(op); });
    for (loom::ConvolutionOp op : convolutions)
      convert(match(op, epilogues));
  }

  static void convert(Call call) {
    loom::ConvolutionOp op = call.convolution;
    OpBuilder builder(call.absorbed.back());
    Type element = op.getType().getElementType();
    if (call.bias && getShape(call.bias).size() != 1)
      call.bias = loom::ReshapeOp::create(
          builder, call.bias.getLoc(), RankedTensorType::get({op.getType().getDimSize(1)}, element),
          call.bias);
    auto descriptor = plan::ConvolutionAttr::get(
        op.getContext(), getShape(op.getInput()), getMemoryStrides(op.getInput()),
        getShape(op.getWeight()), getMemoryStrides(op.getWeight()), getShape(op.getOutput()),
        getMemoryStrides(op.getOutput()), op.getStrides(), op.getLow(), op.getHigh(),
        op.getDilations(), op.getGroups(),
        plan::EpilogueAttr::get(op.getContext(), call.bias != nullptr, call.residual != nullptr,
                                call.relu ? plan::Activation::Relu : plan::Activation::None),
        op.getTf32());
    auto locs = llvm::map_to_vector(call.absorbed, [](Operation *each) { return each->getLoc(); });
    auto made =
        plan::ConvolutionOp::create(builder, builder.getFusedLoc(locs), op.getType(), op.getInput(),
                                    op.getWeight(), call.bias, call.residual, descriptor);
    call.result.replaceAllUsesWith(made.getOutput());
    for (Operation *each : llvm::reverse(call.absorbed))
      each->erase();
  }
};

} // namespace
} // namespace gridloom
