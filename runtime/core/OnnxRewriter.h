//===- OnnxRewriter.h - an ONNX file with other weights ---------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CORE_ONNXREWRITER_H
#define GRIDLOOM_RUNTIME_CORE_ONNXREWRITER_H

#include "runtime/core/HostArray.h"

#include <filesystem>
#include <map>
#include <string>

namespace gridloom::rt {

struct RewrittenModel {
  uint64_t bytes = 0;
  /// The file beside it that has its external data; empty where the model has none.
  std::filesystem::path data;
  uint64_t dataBytes = 0;
};

/// Throws InvalidArgument, naming the first tensor and both types and shapes, unless the ONNX file
/// `model` has a weight (an initializer, or a Constant node's output, of the main graph) of each
/// name with this type and shape. `what` is where the weights come from: "the checkpoint".
void requireWeights(const std::filesystem::path &model,
                    const std::map<std::string, HostArray> &weights, const std::string &what);

/// The values of all initializers of the ONNX file `model` but of those that pack several numbers
/// into a byte. Throws InvalidArgument naming the file and the reason.
std::map<std::string, HostArray> readInitializers(const std::filesystem::path &model);

/// Writes the ONNX file `model` to `output` with other values of `weights`, which fit it (see
/// requireWeights); every other field keeps its bytes. Values that were in the file come to lie
/// there as raw_data. Where the model has external data, all of it goes into the one new file
/// OUTPUT.data, so that the result needs no file of the source. Files that exist are replaced, in
/// one step each once both are written, with `force` only, and files of the model itself never.
/// Memory taken is in proportion to the graph, not to the weights. Throws InvalidArgument naming
/// the file and the reason.
RewrittenModel rewriteModel(const std::filesystem::path &model,
                            const std::map<std::string, HostArray> &weights,
                            const std::filesystem::path &output, bool force);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ONNXREWRITER_H
