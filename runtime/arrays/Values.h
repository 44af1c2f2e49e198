//===- Values.h - elements and summaries of arrays --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_ARRAYS_VALUES_H
#define GRIDLOOM_RUNTIME_ARRAYS_VALUES_H

#include "runtime/core/HostArray.h"

#include <string>

namespace gridloom::rt {

double getElement(const HostArray &array, int64_t index);
/// Rounds to the nearest float of the array's type, ties to even; drops an integer's fraction.
void setElement(HostArray &array, int64_t index, double value);

/// "f32 [8, 384]  min -0.21  max 0.34  mean 0.0012  first -0.04 0.11 0.03"
std::string summarize(const HostArray &array);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_ARRAYS_VALUES_H
