//===- IndexCheck.h - range checks of indices and labels --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H
#define GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H

#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"

namespace gridloom::rt {

/// Checks that indices (Argument::indices) are within the dimension they index, where negative ones
/// count from its end as in ONNX, and that labels (Argument::labels) are classes. Throws
/// InvalidArgument naming the node, the input, the value and the dimension's size; for labels, the
/// row of the batch. Other inputs pass.
void checkIndices(const Argument &input, const HostArray &values);

/// The first label that is neither a class of its loss nor the ignored label; nothing if all are
/// valid or the input holds no labels. The first dimension of `values` is the batch.
struct WrongLabel {
  int64_t row = 0;        ///< of the batch
  std::string holds, why; ///< "label 12", "loss 'cross_entropy(y, labels)' has the classes 0 to 9"
};
std::optional<WrongLabel> findWrongLabel(const Argument &input, const HostArray &values);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H
