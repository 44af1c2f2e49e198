//===- ModelSummary.h - what an ONNX file holds -----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H
#define GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H

#include <iosfwd>
#include <string>

namespace gridloom::onnx_import {

/// Writes what a model takes, gives, computes and weighs, as text or JSON. Reads no weights. The
/// error is one line; empty on success.
std::string writeModelSummary(const std::string &path, bool asJson, std::ostream &out);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H
