//===- ProblemReader.h - problem.json and problem.json.gz -------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SOLVER_PROBLEMREADER_H
#define GRIDLOOM_SOLVER_PROBLEMREADER_H

#include "compiler/solver/Problem.h"

#include <string_view>

namespace gridloom::solver {

/// Reads the contest's JSON:
///
///   {"problem": {"nodes": {"intervals": [[begin, end]...], "costs": [[...]...], "usages": ...},
///                "edges": {"nodes": [[first, second]...], "costs": [[...]...]},
///                "usage_limit": ...}}
///
/// Returns what is wrong in one line; empty if `problem` is read and `findFault` finds nothing.
std::string parseProblem(std::string_view text, Problem &problem);

/// The same for a file, which may be compressed by gzip.
std::string readProblem(const std::string &path, Problem &problem);

} // namespace gridloom::solver

#endif // GRIDLOOM_SOLVER_PROBLEMREADER_H
