//===- Usage.h - command lines that cannot be understood --------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_USAGE_H
#define GRIDLOOM_SUPPORT_USAGE_H

#include <cstdint>
#include <span>
#include <string>

namespace CLI {
class App;
class ParseError;
class Validator;
} // namespace CLI

namespace gridloom {

/// "; did you mean 'schedule'?" for a name that is one or two slips away from one of `known`, else
/// empty.
std::string suggest(const std::string &name, std::span<const std::string> known);

/// Refuses an empty text, which would count as the option's absence.
CLI::Validator notEmpty();

/// Accepts numbers from `least` to `most`. CLI::Range accepts NaN, too.
CLI::Validator numberWithin(double least, double most);

/// Accepts whole numbers from `least` to 2^64 - 1. CLI::Range accepts -1 as the largest number
/// without a sign.
CLI::Validator wholeNumberFrom(uint64_t least);

/// One line that says what is wrong with a command line, what may have been meant, and which --help
/// gives more: that of `program`, or of a verb of it. `app` has parsed as far as it could.
std::string describeUsageError(const CLI::App &app, const CLI::ParseError &error,
                               const std::string &program = "gridloom");

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_USAGE_H
