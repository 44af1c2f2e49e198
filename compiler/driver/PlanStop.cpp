//===- PlanStop.cpp - planning that ends early ----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Compilation.h"
#include "compiler/driver/Interrupt.h"
#include "support/Text.h"

#include "llvm/Support/Format.h"

#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace gridloom;

//===----------------------------------------------------------------------===//
// What stops planning
//===----------------------------------------------------------------------===//

PlanLimits Compilation::makeLimits() const {
  PlanLimits limits;
  limits.isOver = [this] { return isPlanTimeOver() || isInterrupted(); };
  if (options.planWork)
    limits.mostSteps = static_cast<uint64_t>(options.planWork);
  limits.isQuickFirst = options.planTime >= 0 || options.planWork;
  return limits;
}

bool Compilation::isPlanTimeOver() const {
  return options.planTime >= 0 &&
         std::chrono::duration<double>(std::chrono::steady_clock::now() - planBegin).count() >=
             options.planTime;
}

bool Compilation::isInterrupted() const {
  return options.isInterruptible && InterruptOnce::wasInterrupted();
}

//===----------------------------------------------------------------------===//
// Reports of the stop
//===----------------------------------------------------------------------===//

void Compilation::recordStop() {
  if (!stoppedBy.empty())
    return;
  if (choice.countLeft() == 0 && !choice.hasCutSearch())
    return;
  std::string seconds;
  llvm::raw_string_ostream(seconds) << llvm::format("%g", options.planTime);
  stoppedBy = isInterrupted()    ? "Ctrl-C"
              : isPlanTimeOver() ? "--plan-time " + seconds
                                 : "--plan-work " + std::to_string(options.planWork);
}

std::string Compilation::describeStop() const {
  if (stoppedBy.empty())
    return "";
  std::string text = "by " + stoppedBy;
  if (size_t left = choice.countLeft())
    text += ", which left " + std::to_string(left) + " of " +
            std::to_string(choice.candidates.size()) + " candidates that may be faster";
  if (choice.hasCutSearch())
    text += choice.countLeft() ? " and ended a search" : ", which ended a search";
  return text;
}

llvm::json::Object Compilation::describePlanning() const {
  llvm::json::Object object{{"steps", static_cast<int64_t>(choice.countSteps())}};
  if (!stoppedBy.empty()) {
    object["stopped"] = describeStop();
    object["left"] = static_cast<int64_t>(choice.countLeft());
    object["cut_search"] = choice.hasCutSearch();
  }
  return object;
}

//===----------------------------------------------------------------------===//
// The status line
//===----------------------------------------------------------------------===//

void Compilation::showStatus(const std::string &text) const {
  if (options.quiet || !::isatty(STDERR_FILENO))
    return;
  // A longer line would scroll instead of being overwritten.
  winsize size{};
  size_t width = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
  std::cerr << "\r\033[K" << text.substr(0, width - 1) << std::flush;
}

std::ostream &Compilation::say() const {
  showStatus("");
  return messages;
}

/// "[3/10] shard: 56 of 56 weighed, 2 simulated, best 13.2 ms; Ctrl-C takes it". An interrupt comes
/// first: a narrow terminal shows only the beginning of the line.
void Compilation::showProgress(const PlanProgress &progress) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << statusOfPhase << ": " << (isInterrupted() ? "ending, Ctrl-C again aborts; " : "")
     << std::min(progress.weighed, progress.candidates) << " of " << progress.candidates
     << " weighed";
  if (progress.simulated)
    os << ", " << progress.simulated << " simulated";
  if (progress.bestSeconds > 0)
    os << llvm::format(", best %.3g ms", progress.bestSeconds * 1e3);
  if (!isInterrupted() && options.isInterruptible && progress.bestSeconds > 0)
    os << "; Ctrl-C takes it";
  showStatus(text);
}
