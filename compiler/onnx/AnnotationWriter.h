//===- AnnotationWriter.h - a model with its shardings in it ----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_ONNX_ANNOTATIONWRITER_H
#define GRIDLOOM_COMPILER_ONNX_ANNOTATIONWRITER_H

#include "mlir/IR/BuiltinOps.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gridloom {

/// The shardings of a program, by the ONNX model's names of tensors and nodes.
struct ModelShardings {
  struct Dim {
    int64_t axis, size, parts, granule;
  };
  struct Tensor {
    std::vector<Dim> dims;                    ///< those that are cut
    std::vector<std::vector<int64_t>> groups; ///< devices of each shard, shards row-major over dims
  };

  int64_t devices = 1;
  std::string mesh, stageAxis;           ///< "data=2,pipe=2", "pipe"
  std::string storage;                   ///< lines of "w=stored[{data},{}]"
  bool hasSizes = false;                 ///< no dimension was bound by the user
  std::map<std::string, Tensor> tensors; ///< inputs, weights and results
  std::map<std::string, int64_t> stages; ///< by node
};

/// The shardings of the first specialisation of a program as the shard phase leaves it. `model` is
/// the file it was imported from. The error is one line; empty on success.
std::string collectShardings(mlir::ModuleOp module, const std::filesystem::path &model,
                             ModelShardings &shardings);

/// Writes `model` with the shardings as ONNX multi-device annotations. Weights outside the model
/// file stay where they are. Those in it do, too, if they are above 1 GiB: then `output` must be in
/// the model's folder. The error is one line; empty on success.
std::string writeAnnotated(const std::filesystem::path &model, const ModelShardings &shardings,
                           const std::filesystem::path &output);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_ONNX_ANNOTATIONWRITER_H
