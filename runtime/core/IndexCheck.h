//===- IndexCheck.h - indices that are out of range -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H
#define GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H

#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"

namespace gridloom::rt {

/// That the values of an input that is used as indices (Argument::indices) are within the dimension
/// they index; negative ones count from its end, as ONNX has it. Throws InvalidArgument that names
/// the node, the input, the value and the dimension's size. So do labels (Argument::labels) that
/// are no class, with the row of the batch that has one. Other inputs pass.
void checkIndices(const Argument &input, const HostArray &values);

/// The first label that is neither a class of its loss nor what it ignores; nothing where all are,
/// and for inputs that hold no labels. `values` is as the input: the first dimension is the batch.
struct WrongLabel {
  int64_t row = 0;        ///< of the batch
  std::string holds, why; ///< "label 12", "loss 'cross_entropy(y, labels)' has the classes 0 to 9"
};
std::optional<WrongLabel> findWrongLabel(const Argument &input, const HostArray &values);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H
