//===- OnnxRewriter.h - replace an ONNX file's weights ----------*- C++ -*-===//
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
  /// The file beside the model with its external data; empty if it has none.
  std::filesystem::path data;
  uint64_t dataBytes = 0;
};

/// Throws InvalidArgument, naming the first tensor and both types and shapes, unless the ONNX file
/// `model` has a weight (an initializer, or a Constant node's output, of the main graph) of each
/// name with this type and shape. `what` names the source of the weights: "the checkpoint".
void requireWeights(const std::filesystem::path &model,
                    const std::map<std::string, HostArray> &weights, const std::string &what);

/// The values of all initializers of the ONNX file `model`, except those that pack several numbers
/// into a byte. Throws InvalidArgument naming the file and the reason.
std::map<std::string, HostArray> readInitializers(const std::filesystem::path &model);

/// Writes the ONNX file `model` to `output` with other values for `weights`, which must fit it (see
/// requireWeights); all other fields are copied byte for byte. Replaced values that were in the
/// model file become raw_data. All external data goes into one new file OUTPUT.data, so that the
/// result needs no file of the source. Existing files are replaced only with `force`, by rename
/// once both are written, and files of the source model never. Memory is in proportion to the
/// graph, not to the weights. Throws InvalidArgument naming the file and the reason.
RewrittenModel rewriteModel(const std::filesystem::path &model,
                            const std::map<std::string, HostArray> &weights,
                            const std::filesystem::path &output, bool force);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CORE_ONNXREWRITER_H
