//===- Page.h - a plan as one page of HTML ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H
#define GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H

#include "runtime/core/Plan.h"

namespace gridloom::rt {

/// The text of a page that needs no other file: markup, style, script and the plan's data, of which
/// the page says what was left out for size. `trace` is a file that `gridloom run --trace` wrote,
/// or empty. Throws InvalidArgument where that is none of this plan, and InvalidPlan where the
/// plan's report.json or timeline.json are damaged; without these the page lacks times.
std::string makePage(const Plan &plan, const std::filesystem::path &trace);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_PAGE_PAGE_H
