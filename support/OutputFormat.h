//===- OutputFormat.h - print documents -------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_OUTPUTFORMAT_H
#define GRIDLOOM_SUPPORT_OUTPUTFORMAT_H

#include "support/Document.h"

namespace CLI {
class App;
} // namespace CLI

namespace gridloom {

/// A program may be started with its standard files closed. The next file it opens, or the memory
/// that ranks share, would take their place and be printed into: this has /dev/null take it, not to
/// be written, so that printing fails. The first thing a program does.
void openStandardFiles();

/// Standard output may be buffered, and go to a full disk. What is wrong with it, with the system's
/// reason, as one line; empty when all that was printed is written.
std::string tryFlushOutput();

/// Throws std::runtime_error when standard output cannot be written.
void flushOutput();

/// The options --format text|json, --json and --wide, and what they mean. A terminal gets tables
/// that fit it; a pipe or a file gets all of them.
class OutputFormat {
public:
  /// `others` are formats that the verb writes itself.
  void addOptions(CLI::App &verb, const std::vector<std::string> &others = {});
  const std::string &getName() const { return name; }
  /// Whether a tool reads, who wants everything.
  bool isJson() const;
  /// To standard output.
  void write(const Document &document) const;

private:
  std::string name = "text";
  bool asJson = false, isWide = false;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_OUTPUTFORMAT_H
