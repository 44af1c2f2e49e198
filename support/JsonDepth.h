//===- JsonDepth.h - a limit on nested lists and objects --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Readers, writers and copies of JSON values recurse, and a file of some hundred kilobytes can nest
// deep enough to overflow the stack. Files that others may have written are checked first.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_JSONDEPTH_H
#define GRIDLOOM_SUPPORT_JSONDEPTH_H

#include <string>
#include <string_view>

namespace gridloom {

/// The most lists and objects in each other. Reports, timelines and traces have fewer than 10.
inline constexpr int kMaxJsonDepth = 64;

/// Whether the text nests more than kMaxJsonDepth lists and objects. Does not check its syntax
/// otherwise.
bool isDeepJson(std::string_view text);

/// "more than 64 lists and objects in each other"
std::string describeDeepJson();

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_JSONDEPTH_H
