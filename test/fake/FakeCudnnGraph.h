//===- FakeCudnnGraph.h - semantics of cuDNN graphs -------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A graph's tensors and operations, read from descriptors; the graphs that engines support; and the
// results, computed for each operation by its definition.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_TEST_FAKE_FAKECUDNNGRAPH_H
#define GRIDLOOM_TEST_FAKE_FAKECUDNNGRAPH_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gridloom::fake {

using Dims = std::vector<int64_t>;

struct DnnTensor {
  int type = 0; // cudnnDataType_t
  Dims sizes, strides;
  int64_t uid = 0, alignment = 0;
  bool isVirtual = false, byValue = false;

  size_t count() const;
  size_t elementBytes() const;
  /// Bytes from the first element to the end of the last, gaps included.
  size_t extent() const;
};

struct DnnOperation {
  int kind = 0; // cudnnBackendDescriptorType_t
  int mode = 0; // of a pointwise operation or reduction
  int64_t axis = -1;
  Dims strides, low, high, dilations; // of a convolution
  std::vector<int64_t> inputs;        // by unique id; without absent ones
  int64_t output = 0;
};

struct DnnGraph {
  std::map<int64_t, DnnTensor> tensors; // by unique id
  std::vector<DnnOperation> operations;

  /// Why cuDNN would propose no engine; empty if it would. Supported are chains of a convolution, a
  /// residual, a bias and a relu, and attention with the logarithm of its sums.
  std::string findObstacle() const;
  /// Shapes that do not match, or a tensor read before it is written: misuse, not lack of support.
  std::string findFault() const;
  /// Bytes of all virtual tensors, which is the fast engine's workspace.
  size_t countVirtualBytes() const;
  bool hasF32Factors() const;

  /// Runs the graph on memory bound by unique id; `numbers` are scalars passed by value.
  void run(const std::map<int64_t, void *> &memory, const std::map<int64_t, double> &numbers) const;

private:
  std::string findConvolutionObstacle() const;
  std::string findAttentionObstacle() const;
  bool writes(int64_t uid) const;
};

} // namespace gridloom::fake

#endif // GRIDLOOM_TEST_FAKE_FAKECUDNNGRAPH_H
