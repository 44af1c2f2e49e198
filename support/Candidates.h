//===- Candidates.h - plans that were weighed -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_CANDIDATES_H
#define GRIDLOOM_SUPPORT_CANDIDATES_H

#include "support/Document.h"

namespace gridloom {

/// The verdict on what planning was stopped before: it might have been faster.
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

/// By what they cost: the chosen one, the slower ones, of which those that were measured are
/// the nearest and those that were simulated the next, then those that were left, then the refused
/// ones.
void sortCandidates(std::vector<PlanCandidate> &candidates);

/// Adds a table of them, the first `most`; none of one alone, of which nothing was compared.
void addCandidates(Document &document, const std::vector<PlanCandidate> &candidates, size_t most);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_CANDIDATES_H
