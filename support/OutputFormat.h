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

/// To be called first. A program may be started with its standard files closed; the next file it
/// opens, or the memory that ranks share, would then be printed into. Opens /dev/null in their
/// place, for reading only, so that printing fails. Lets writes beyond the limit of file sizes
/// (ulimit -f) fail, too, which by default end the process.
void prepareFiles();

/// Flushes standard output, which may go to a full disk. Returns one line with the system's reason
/// if it cannot be written; empty if all is.
std::string tryFlushOutput();

/// Throws std::runtime_error when standard output cannot be written.
void flushOutput();

/// The options --format text|json, --json and --wide, and their effect. A terminal gets tables that
/// fit it; a pipe or a file gets all of them.
class OutputFormat {
public:
  /// `others` are formats that the verb writes itself.
  void addOptions(CLI::App &verb, const std::vector<std::string> &others = {});
  const std::string &getName() const { return name; }
  /// Whether the output is for a tool, which wants everything.
  bool isJson() const;
  /// To standard output.
  void write(const Document &document) const;

private:
  std::string name = "text";
  bool asJson = false, isWide = false;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_OUTPUTFORMAT_H
