//===- ChromeTrace.h - traces as text ---------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_TRACE_CHROMETRACE_H
#define GRIDLOOM_RUNTIME_TRACE_CHROMETRACE_H

#include <span>
#include <string>

namespace gridloom::rt {

/// The text of a file that Perfetto and chrome://tracing open, from parts as toChromeEvents makes
/// them; empty parts are left out.
std::string formatChromeTrace(std::span<const std::string> parts);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_TRACE_CHROMETRACE_H
