//===- Page.h - a plan as one page of HTML ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H
#define GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H

#include "runtime/core/Plan.h"

namespace gridloom::rt {

/// The text of a self-contained page: markup, style, script and the plan's data; the page says what
/// was left out for size, and which of the plan's report.json and timeline.json is missing or
/// damaged. `trace` is a file of `gridloom run --trace`, or empty. Throws InvalidArgument if it is
/// not a trace of this plan.
std::string makePage(const Plan &plan, const std::filesystem::path &trace);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H
