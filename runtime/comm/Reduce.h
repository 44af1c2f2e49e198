//===- Reduce.h - elementwise reduction on the host -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_REDUCE_H
#define GRIDLOOM_RUNTIME_COMM_REDUCE_H

#include "runtime/comm/Transport.h"

#include <span>
#include <string_view>

namespace gridloom::rt {

/// The name used in messages: sum, max, min, prod.
std::string_view nameOf(Reduction reduction);

/// out[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ..., always in this order, so that all
/// ranks get the same bits. f16 and bf16 are accumulated in f32 and rounded once; integers wrap;
/// max and min propagate NaN; bool is "or" for sum and max, "and" for prod and min. `inputs` must
/// not be empty; `out` may be one of the inputs but must not partially overlap one.
void reduceOnHost(void *out, std::span<const void *const> inputs, size_t count, DataType type,
                  Reduction reduction);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_REDUCE_H
