//===- Error.h - errors as values -------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The runtime reports failure by throwing `Error`. Nothing it throws crosses the C interface.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_ERROR_H
#define GRIDLOOM_RUNTIME_CORE_ERROR_H

#include "support/Text.h"

#include <optional>
#include <stdexcept>
#include <string>

namespace gridloom::rt {

/// The kind of error, coarse enough for a caller to act on. The values are the C interface's.
enum class ErrorCode {
  InvalidArgument = 1, // the caller's inputs are wrong
  InvalidPlan = 2,     // the plan is damaged, or needs what this machine lacks
  Unavailable = 3,     // a library, driver or device is missing
  PeerFailed = 4,      // a rank died or left
  DeadlineExceeded = 5,
  OutOfMemory = 6,
  Internal = 7,
};

/// A step of a rank's program, and the ONNX node it computes; the node may be empty.
struct ErrorPlace {
  int rank;
  std::string step, node;

  /// "step all_reduce #3 (onnx node /MatMul) of rank 1"
  std::string describe() const {
    return "step " + step + (node.empty() ? "" : " (onnx node " + node + ")") + " of rank " +
           std::to_string(rank);
  }
};

/// An error with a one-line message: lower case, names the thing, both numbers, and the remedy.
class Error : public std::runtime_error {
public:
  Error(ErrorCode code, const std::string &message)
      : std::runtime_error(makePrintable(message)), code(code) {}
  /// "MESSAGE; step all_reduce #3 (onnx node /MatMul) of rank 1"
  Error(ErrorCode code, const std::string &message, ErrorPlace place)
      : Error(code, message + "; " + place.describe()) {
    this->place = std::move(place);
  }
  /// Wraps `cause` with its context: "WHERE: CAUSE", with the cause's code.
  Error(const std::string &where, const Error &cause)
      : Error(cause.code, where + ": " + cause.what()) {
    this->where = makePrintable(where) + (cause.where.empty() ? "" : ": " + cause.where);
  }

  ErrorCode getCode() const { return code; }
  /// The step that failed, if known.
  const std::optional<ErrorPlace> &getPlace() const { return place; }
  /// The context of a wrapped error: its message without the innermost cause's; empty otherwise.
  const std::string &getWhere() const { return where; }

private:
  ErrorCode code;
  std::optional<ErrorPlace> place;
  std::string where;
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ERROR_H
