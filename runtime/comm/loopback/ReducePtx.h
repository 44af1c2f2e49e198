//===- ReducePtx.h - elementwise reduction as PTX ---------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_COMM_LOOPBACK_REDUCEPTX_H
#define GRIDLOOM_RUNTIME_COMM_LOOPBACK_REDUCEPTX_H

#include "runtime/comm/Transport.h"

#include <string>

namespace gridloom::rt {

/// Bytes that a thread reads from each input at a time, and the alignment of vectors.
inline constexpr size_t reduceVectorBytes = 16;

/// The name of the kernel: "gridloom_reduce_sum_f32_4".
std::string getReduceName(DataType type, Reduction reduction, int inputs);

/// PTX for sm_80 and later with one kernel that reduces `inputs` arrays as reduceOnHost does, bit
/// for bit for finite numbers. Its 8-byte parameters: the input pointers, the output pointer, the
/// number of vectors of reduceVectorBytes at the start of the arrays, and the number of elements in
/// all. Pointers are aligned to vectors unless there are none. Any one-dimensional grid works. The
/// output may be one of the inputs.
std::string makeReducePtx(DataType type, Reduction reduction, int inputs);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_COMM_LOOPBACK_REDUCEPTX_H
