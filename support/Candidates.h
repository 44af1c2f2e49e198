//===- Candidates.h - plans that were compared ------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_CANDIDATES_H
#define GRIDLOOM_SUPPORT_CANDIDATES_H

#include "support/Document.h"

namespace gridloom {

/// The verdict on candidates that planning did not get to: they might be faster.
inline constexpr const char *kLeftVerdict = "left: planning was stopped";

/// A way to use the devices, and what became of it.
struct PlanCandidate {
  std::string strategy;
  std::string verdict;      ///< "chosen", "slower", "slower, extrapolated", kLeftVerdict, or why it
                            ///< was refused
  double simulatedMs = 0;   ///< of all programs; 0: not simulated
  double sumMs = 0;         ///< of all that it computes and sends; 0: not known
  uint64_t memoryBytes = 0; ///< 0: not known
  double measuredMs = 0;    ///< of all programs, as run; 0: not run

  bool isChosen() const { return verdict == "chosen"; }
  bool isLeft() const { return verdict == kLeftVerdict; }
  bool isRefused() const { return !isChosen() && !isLeft() && !verdict.starts_with("slower"); }
};

/// Sorts by cost: the chosen one, then the slower ones (measured before simulated before others),
/// then those that were left, then the refused ones.
void sortCandidates(std::vector<PlanCandidate> &candidates);

/// Adds a table of the first `most`; none of a single one, which was compared with nothing.
void addCandidates(Document &document, const std::vector<PlanCandidate> &candidates, size_t most);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_CANDIDATES_H
