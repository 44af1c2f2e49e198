//===- CuDnnGraph.h - graphs of cuDNN operations ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A graph describes the computation; cuDNN's heuristics propose engines for it, and the first that
// accepts the graph within the workspace limit is used. Proposals need no GPU, so everything except
// running also works for a GPU that is only described.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNNGRAPH_H
#define GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNNGRAPH_H

#include "runtime/device/AutotuneCache.h"
#include "runtime/device/cuda/CuDnn.h"

#include <deque>
#include <map>
#include <optional>

namespace gridloom::rt {

/// An execution plan, what it was created from, and its workspace.
struct CuDnnEngine {
  std::shared_ptr<CuDnnDescriptor> graph;
  CuDnnDescriptor config, plan;
  size_t workspaceBytes = 0;
  size_t place = 0; ///< in cuDNN's ranking
};

class CuDnnGraph {
public:
  using Dims = std::vector<int64_t>;
  /// The number of a tensor in the graph.
  using Tensor = int64_t;
  static constexpr Tensor none = -1;

  /// `description` names the graph in errors. Operands' pointers will be multiples of `alignment`
  /// bytes.
  CuDnnGraph(const CuDnn &library, std::string description, int64_t alignment);

  /// An operand in memory, bound in the order of addOperand calls. Strides in elements.
  Tensor addOperand(cudnn::Constant type, const Dims &sizes, const Dims &strides);
  /// A row-major tensor between operations, which is not stored in memory.
  Tensor addVirtual(cudnn::Constant type, const Dims &sizes);
  /// As above, with `strides`.
  Tensor addVirtual(cudnn::Constant type, const Dims &sizes, const Dims &strides);
  /// A constant, with the rank of the tensors that it is combined with.
  Tensor addNumber(float value, size_t rank);

  /// output = input convolved with weight, accumulated in f32.
  struct Convolution {
    Dims strides, low, high, dilations;
  };
  void convolve(Tensor input, Tensor weight, Tensor output, const Convolution &convolution);
  /// output = mode(x, b), where `b` may be none; with `select`, that boolean tensor chooses b or x.
  void apply(cudnn::Constant mode, Tensor x, Tensor b, Tensor output, Tensor select = none);
  /// output = the index along `axis`, with the shape of `x`.
  void generateIndex(int64_t axis, Tensor x, Tensor output);
  /// Matrices in the last two dimensions.
  void multiply(Tensor a, Tensor b, Tensor output);
  /// Reduces the dimensions that have size 1 in `output`.
  void reduce(cudnn::Constant operation, Tensor x, Tensor output);

  /// The first `most` engines from place `first` of cuDNN's ranking on that accept the graph within
  /// `workspaceLimit` bytes and have none of the numerical notes in `refused`. If there are none,
  /// `reason` says why the last one did not accept it. Trying an engine takes up to half a second.
  std::vector<CuDnnEngine> plan(uint64_t workspaceLimit, std::span<const int> refused, size_t most,
                                std::string &reason, size_t first = 0);

  /// The tensor numbers of operands in order, then those of `numbers`.
  const std::vector<int64_t> &getBound() const { return bound; }
  const std::vector<float> &getNumbers() const { return numbers; }
  /// Bytes from the first element to the end of the last one, for each operand.
  const std::vector<size_t> &getOperandBytes() const { return operandBytes; }

private:
  Tensor add(cudnn::Constant type, const Dims &sizes, const Dims &strides, bool isVirtual,
             bool byValue);
  CuDnnDescriptor make(cudnn::Constant type) const;
  CuDnnDescriptor makePointwise(cudnn::Constant mode) const;
  /// Adds an operation of `type` with `parameter` and those operands that are not none; the caller
  /// finalizes it.
  CuDnnDescriptor &addOperation(cudnn::Constant type, cudnn::Constant parameterName,
                                CuDnnDescriptor parameter,
                                std::initializer_list<std::pair<cudnn::Constant, Tensor>> operands);
  std::shared_ptr<CuDnnDescriptor> makeGraph() const;
  std::optional<CuDnnEngine> tryEngine(CuDnnDescriptor &config, uint64_t workspaceLimit,
                                       std::span<const int> refused, std::string &reason) const;

  const CuDnn &library;
  std::string doing;
  int64_t alignment;
  std::deque<CuDnnDescriptor> tensors;    // by number
  std::deque<CuDnnDescriptor> parameters; // of operations
  std::deque<CuDnnDescriptor> operations;
  std::vector<int64_t> bound;
  std::vector<float> numbers;
  std::vector<size_t> operandBytes;
};

/// The problem of a call and its numerical settings.
struct CuDnnProblem {
  std::string description;
  std::string key; // description plus everything else that an engine's speed depends on
  std::function<void(CuDnnGraph &graph)> build;
  size_t elementBytes;
  uint64_t workspaceLimit;
  std::vector<int> refused; // numerical notes of engines to skip
};

/// A planned call. If pointers are less aligned than planned, the graph is built again with another
/// engine.
class CuDnnCall final : public LibraryPlan {
public:
  /// Uses the engine that `tuning` has measured as fastest, else cuDNN's first. Throws InvalidPlan,
  /// with the remedy, if no engine accepts the graph.
  CuDnnCall(std::shared_ptr<const CuDnn> library, CuDnnProblem problem,
            std::shared_ptr<AutotuneCache> tuning);

  /// `operands` in the order in which the graph adds them. One thread at a time.
  void run(CudaStream &stream, std::span<const void *const> operands);
  /// Workspace of the engine for aligned pointers.
  size_t getWorkspaceBytes() const { return planned.begin()->second.engine->workspaceBytes; }

private:
  struct Planned {
    std::unique_ptr<CuDnnGraph> graph;
    std::shared_ptr<const CuDnnEngine> engine; ///< shared with equal calls of the device
    std::vector<float> numbers;
  };
  Planned &plan(int64_t alignment);
  std::string describeCall(int64_t alignment) const;
  CuDnnEngine choose(CuDnnGraph &graph, const std::string &key);
  void measure(const CuDnnGraph &graph, std::vector<CuDnnEngine> &engines, const std::string &key);
  void submit(CudaStream &stream, const CuDnnGraph &graph, const CuDnnEngine &engine,
              std::vector<float> &numbers, std::span<const void *const> operands);

  static constexpr int64_t largestAlignment = 16;
  std::shared_ptr<const CuDnn> library;
  CuDnnProblem problem;
  std::shared_ptr<AutotuneCache> tuning;
  std::map<int64_t, Planned, std::greater<>> planned; // by alignment
};

/// cuDNN's numbers of f32, f16 and bf16; throws InvalidPlan naming `description` for other types.
cudnn::Constant toCuDnnType(DataType type, const std::string &description);

/// Plans a convolution. Throws InvalidPlan if cuDNN has no engine for it within its workspace
/// limit. Operands: input, weight, bias and residual if the epilogue has them, output.
std::unique_ptr<CuDnnCall> createCuDnnConvolution(std::shared_ptr<const CuDnn> library,
                                                  const ConvolutionProblem &problem,
                                                  std::shared_ptr<AutotuneCache> tuning = nullptr);
/// Plans an attention of f16 or bf16. Throws as above. Operands: query, key, value, the mask if
/// there is one, output.
std::unique_ptr<CuDnnCall> createCuDnnAttention(std::shared_ptr<const CuDnn> library,
                                                const AttentionProblem &problem,
                                                std::shared_ptr<AutotuneCache> tuning = nullptr);

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_DEVICE_CUDA_CUDNNGRAPH_H
