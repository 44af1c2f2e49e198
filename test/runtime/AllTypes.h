//===- AllTypes.h - operands for collectives and reductions -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_RUNTIME_ALLTYPES_H
#define GRIDLOOM_TEST_RUNTIME_ALLTYPES_H

#include "runtime/comm/Transport.h"
#include "runtime/core/DataType.h"

namespace gridloom::rt::test {

inline const DataType allTypes[] = {DataType::F32, DataType::F64,  DataType::F16, DataType::BF16,
                                    DataType::I8,  DataType::I16,  DataType::I32, DataType::I64,
                                    DataType::U8,  DataType::Bool, DataType::U16, DataType::U32,
                                    DataType::U64};
inline const Reduction allReductions[] = {Reduction::Sum, Reduction::Max, Reduction::Min,
                                          Reduction::Prod};

} // namespace gridloom::rt::test

#endif // GRIDLOOM_TEST_RUNTIME_ALLTYPES_H
