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

/// A plan's times, part by part. Milliseconds are simulated; a pipeline's parts are those of one
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
    std::string program; ///< the program's name
    std::string kind;    ///< "matmul", "all_reduce"
    std::string over;    ///< of communication: "model", of a transfer "stage 1"
    std::string node;
    int64_t times = 0;
    double ms = 0;
  };
  std::vector<Program> programs;
  std::vector<Part> parts;
  /// Of a device of the stage that needs most: "total", "weights", ...
  std::map<std::string, uint64_t> memory;

  /// Of all programs together; plans are compared by it.
  double getStepMs() const;
};

/// Reads the sheet from a report: its lists `estimates` and `costs`, and `memory`. None if the
/// report has no times, as from older compilers.
std::optional<CostSheet> readCosts(const nlohmann::ordered_json &report);
/// The same for a report's text.
std::optional<CostSheet> parseCosts(const std::string &report);

/// "main batch=8", or "main" without dimensions.
std::string nameProgram(const std::string &entry, const std::string &dims);
/// "all_reduce over model", "matmul", "send to stage 1", where `over` may also be "to stage 1".
std::string nameKind(const std::string &kind, const std::string &over);

/// The names of two plans in the columns.
struct CostNames {
  std::string first = "first", second = "second";
};

/// Adds tables of what differs, the largest difference first: times of programs, of kinds of steps,
/// of scopes, of collectives that come, go or change (layers alike together), and memory. Compares
/// times of programs that both plans have and lists the others. Leaves out tables of equal costs,
/// and rows beyond `most`. Returns whether there is any table.
bool addCostChanges(Document &document, const CostSheet &first, const CostSheet &second,
                    const CostNames &names, size_t most);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_COSTSHEET_H
