//===- JsonDepth.h - lists in lists that no reader is to follow -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Readers, writers and copies of JSON values call themselves for what is nested, and a file of some
// hundred kilobytes can nest deeper than a stack is long. Files that others may have written are
// measured first.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_JSONDEPTH_H
#define GRIDLOOM_SUPPORT_JSONDEPTH_H

#include <string>
#include <string_view>

namespace gridloom {

/// Lists and objects that are open at once at most. Reports, timelines and traces have less than
/// 10.
inline constexpr int kMaxJsonDepth = 64;

/// Whether the text opens more of them before it goes wrong in another way.
bool isDeepJson(std::string_view text);

/// "more than 64 lists and objects in each other"
std::string describeDeepJson();

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_JSONDEPTH_H
