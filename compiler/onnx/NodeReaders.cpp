//===- NodeReaders.cpp - where a node's result goes -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/NodeReaders.h"

#include "compiler/onnx/Annotations.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"

#include "onnx-ml.pb.h"

using namespace gridloom;
using namespace gridloom::onnx_import;

std::optional<NodeReaders> gridloom::findReaders(const std::filesystem::path &path,
                                                 const std::string &name) {
  Model model;
  if (!readGraph(path, model).empty())
    return std::nullopt;
  const onnx::GraphProto &graph = model.proto->graph();
  llvm::StringMap<llvm::SmallVector<int, 2>> readers; // by tensor
  int start = -1, maker = -1;
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string &input : graph.node(i).input())
      readers[input].push_back(i);
    if (GraphIndex::getNodeName(graph, i) == name)
      start = i;
    if (llvm::is_contained(graph.node(i).output(), name))
      maker = i;
  }
  start = start < 0 ? maker : start;
  if (start < 0)
    return std::nullopt;
  NodeReaders found{GraphIndex::getNodeName(graph, start), {}};
  llvm::BitVector seen(static_cast<unsigned>(graph.node_size()));
  std::vector<int> queue{start};
  for (size_t next = 0; next < queue.size(); ++next)
    for (const std::string &output : graph.node(queue[next]).output())
      for (int reader : readers.lookup(output))
        if (!seen.test(static_cast<unsigned>(reader))) {
          seen.set(static_cast<unsigned>(reader));
          queue.push_back(reader);
          found.readers.push_back(GraphIndex::getNodeName(graph, reader));
        }
  return found;
}
