//===- CostSheet.h - compare what plans cost --------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_SUPPORT_COSTSHEET_H
#define GRIDLOOM_SUPPORT_COSTSHEET_H

#include "support/Document.h"

#include <map>

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
    std::string kind; ///< "matmul", "all_reduce"
    std::string over; ///< of communication: "model", of a transfer "stage 1"
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

/// The node's name with a star for each number that counts layers, so that layers are alike:
/// "/encoder/layer.*/attention/MatMul". Of nodes joined by " + " the first counts.
std::string foldLayers(const std::string &node);

/// The part of a model that a node is in, layers alike: "/encoder/layer.*/attention" of
/// "/encoder/layer.3/attention/MatMul". A name without '/' is its own scope.
std::string getScope(const std::string &node);

/// What the columns of two plans are called.
struct CostNames {
  std::string first = "first", second = "second";
};

/// Adds tables of what differs, the largest difference first: times of programs, of kinds of steps,
/// of scopes, of collectives that come, go or change (layers alike together), and memory. Tables of
/// equal costs are left out, and rows beyond `most`. Returns whether there is any.
bool addCostChanges(Document &document, const CostSheet &first, const CostSheet &second,
                    const CostNames &names, size_t most);

} // namespace gridloom

#endif // GRIDLOOM_SUPPORT_COSTSHEET_H
