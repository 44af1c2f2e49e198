//===- ModelSummary.h - contents of an ONNX file ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H
#define GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H

#include <string>

namespace gridloom {
class Document;
} // namespace gridloom

namespace gridloom::onnx_import {

/// Describes a model's inputs, outputs, operators and weights. Reads no weights. The error is one
/// line; empty on success.
std::string summarizeModel(const std::string &path, Document &document);

/// "float" for 1, ...
std::string formatElementType(int type);

} // namespace gridloom::onnx_import

#endif // GRIDLOOM_COMPILER_ONNX_MODELSUMMARY_H
