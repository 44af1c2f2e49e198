//===- WhyNotVerb.h - gridloom explain, where it plans again ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_DRIVER_WHYNOTVERB_H
#define GRIDLOOM_COMPILER_DRIVER_WHYNOTVERB_H

#include "support/OutputFormat.h"

#include <cstdint>
#include <string>

namespace gridloom {

struct WhyNotOptions {
  std::string plan, pin, value;
  int64_t collective = -1, stage = -1;
  bool alternatives = false;
  OutputFormat format;
};

CLI::App *addWhyNot(CLI::App &app, WhyNotOptions &options);

/// Prints what a pin, or each alternative to a collective, would cost. Errors go to standard error.
/// Returns the exit code.
int runWhyNot(const WhyNotOptions &options);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_DRIVER_WHYNOTVERB_H
