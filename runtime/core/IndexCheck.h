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
/// the node, the input, the value and the dimension's size. Other inputs pass.
void checkIndices(const Argument &input, const HostArray &values);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_INDEXCHECK_H
