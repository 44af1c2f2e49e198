//===- Messages.cpp - several values in one message -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/Messages.h"

#include "dialects/loom/Loom.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace gridloom {

bool isMessage(Operation *op) {
  auto reduce = dyn_cast<dist::AllReduceOp>(op);
  return reduce && reduce.getInputs().size() > 1;
}

Message layOutMessage(dist::AllReduceOp op) {
  constexpr int64_t kLine =
      64; // bytes, of which kernels and libraries take buffers to be multiples
  Message message;
  int64_t end = 0; // in elements
  for (Value input : op.getInputs()) {
    auto type = cast<RankedTensorType>(input.getType());
    int64_t element = loom::getByteSize(RankedTensorType::get({}, type.getElementType()));
    message.offsets.push_back(llvm::alignTo(end, std::max<int64_t>(1, kLine / element)));
    end = message.offsets.back() + type.getNumElements();
  }
  auto element = cast<RankedTensorType>(op.getInputs()[0].getType()).getElementType();
  message.type = RankedTensorType::get({end}, element);
  return message;
}

bool isOfMessageAlone(Value root) {
  while (root.hasOneUse()) {
    Operation *user = *root.getUsers().begin();
    if (isMessage(user))
      return true;
    auto reshape = dyn_cast<loom::ReshapeOp>(user);
    if (!reshape)
      return false;
    root = reshape.getOutput();
  }
  return false;
}

} // namespace gridloom
