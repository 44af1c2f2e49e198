//===- LibraryMessages.h - library calls as protobuf ------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_EMIT_LIBRARYMESSAGES_H
#define GRIDLOOM_COMPILER_EMIT_LIBRARYMESSAGES_H

#include "dialects/plan/Plan.h"
#include "runtime/core/plan.pb.h"

namespace gridloom {

/// Sets what the call computes, without its buffers.
void fillLibrary(plan::LibraryOp op, schema::Library &library);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_EMIT_LIBRARYMESSAGES_H
