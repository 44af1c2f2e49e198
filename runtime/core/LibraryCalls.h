//===- LibraryCalls.h - a plan's library calls ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_LIBRARYCALLS_H
#define GRIDLOOM_RUNTIME_CORE_LIBRARYCALLS_H

#include "runtime/core/plan.pb.h"
#include "runtime/device/Device.h"

namespace gridloom::rt {

/// The problem as the device takes it; its spans point into the message.
MatmulProblem toProblem(const schema::Matmul &matmul);
/// As above.
ConvolutionProblem toProblem(const schema::Convolution &convolution);
/// As above; the mask is of the attention's type.
AttentionProblem toProblem(const schema::Attention &attention);

/// "matmul 2x128x768x768 + bias", "convolution 1x3x8x8 with 16x3x3x3 + bias + relu",
/// "attention 2x4x128x128x64x64 masked".
std::string describe(const schema::Library &call);
/// Operations of one call; a multiply-add counts as two.
double getFlops(const schema::Library &call);
/// Bytes of its operands and result; elements that are read repeatedly (stride 0) count once.
uint64_t getBytes(const schema::Library &call);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_LIBRARYCALLS_H
