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

/// Alignment in bytes that kernels and libraries require of buffers.
constexpr int64_t kLine = 64;

static bool fillsLines(Value value) {
  return loom::getByteSize(cast<RankedTensorType>(value.getType())) % kLine == 0;
}

bool isMessage(Operation *op) {
  auto reduce = dyn_cast<dist::AllReduceOp>(op);
  return reduce && reduce.getInputs().size() > 1;
}

Message layOutMessage(dist::AllReduceOp op) {
  Message message;
  message.offsets.resize(op.getInputs().size());
  auto element = cast<RankedTensorType>(op.getInputs()[0].getType()).getElementType();
  int64_t size = loom::getByteSize(RankedTensorType::get({1}, element));
  int64_t end = 0; // in elements
  // Values that fill no whole lines come last: the last one has no gap behind it.
  for (bool fills : {true, false})
    for (auto [input, offset] : llvm::zip_equal(op.getInputs(), message.offsets))
      if (fillsLines(input) == fills) {
        offset = llvm::alignTo(end * size, kLine) / size;
        if (offset > end)
          message.gaps.push_back({end, offset - end});
        end = offset + cast<RankedTensorType>(input.getType()).getNumElements();
      }
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
