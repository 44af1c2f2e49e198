//===- CostSheet.h - compare what plans cost --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_COSTSHEET_H
#define GRIDLOOM_SUPPORT_COSTSHEET_H

#include "support/Document.h"

#include <map>
#include <optional>

namespace gridloom {

/// What a plan takes, part by part. Milliseconds are simulated; a pipeline's parts are those of one
/// rank of each stage.
struct CostSheet {
  /// One specialisation of an entry.
  struct Program {
    std::string name; ///< "main batch=8"
    double stepMs = 0, computeMs = 0, commMs = 0, exposedMs = 0;
    double bubble = 0; ///< share of the step
  };
  /// Equal steps of one program for one ONNX node.
  struct Part {
    std::string program; ///< its name
    std::string kind;    ///< "matmul", "all_reduce"
    std::string over;    ///< of communication: "model", of a transfer "stage 1"
    std::string node;
    int64_t times = 0;
    double ms = 0;
  };
  std::vector<Program> programs;
  std::vector<Part> parts;
  /// Of a device of the stage that takes most: "total", "weights", ...
  std::map<std::string, uint64_t> memory;

  /// Of all programs together: by this plans are compared.
  double getStepMs() const;
};

/// Reads the sheet off a report: its lists `estimates` and `costs`, and `memory`. None where it has
/// no times, as those of older compilers do.
std::optional<CostSheet> readCosts(const nlohmann::ordered_json &report);
/// The same of a report's text.
std::optional<CostSheet> parseCosts(const std::string &report);

/// "main batch=8", or "main" without dimensions.
std::string nameProgram(const std::string &entry, const std::string &dims);
/// "all_reduce over model", "matmul", "send to stage 1", of which `over` may be "to stage 1" too.
std::string nameKind(const std::string &kind, const std::string &over);

/// What the columns of two plans are called.
struct CostNames {
  std::string first = "first", second = "second";
};

/// Adds tables of what differs, the largest difference first: times of programs, of kinds of steps,
/// of scopes, of collectives that come, go or change (layers alike together), and memory. Times are
/// compared of programs that both plans have; those that one of them has alone are listed. Tables
/// of equal costs are left out, and rows beyond `most`. Returns whether there is any.
bool addCostChanges(Document &document, const CostSheet &first, const CostSheet &second,
                    const CostNames &names, size_t most);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_COSTSHEET_H
