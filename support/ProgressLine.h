//===- ProgressLine.h - progress on a terminal ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_PROGRESSLINE_H
#define GRIDLOOM_SUPPORT_PROGRESSLINE_H

#include "support/Text.h"

#include <cstdio>
#include <string>
#include <unistd.h>

namespace gridloom {

/// A line on standard error, if that is a terminal, which its end erases.
class ProgressLine {
public:
  ProgressLine() = default;
  ProgressLine(const ProgressLine &) = delete;
  ProgressLine &operator=(const ProgressLine &) = delete;
  ~ProgressLine() {
    if (isShown)
      fprintf(stderr, "\r\x1b[K");
  }
  /// In place of what it showed before.
  void show(const std::string &text) {
    if (!isatty(STDERR_FILENO))
      return;
    isShown = true;
    fprintf(stderr, "\r\x1b[K%s", makePrintable(text).c_str());
  }

private:
  bool isShown = false;
};

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_PROGRESSLINE_H
