//===- FakeCudnnGraph.cpp - semantics of cuDNN graphs ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/FakeCudnnGraph.h"

#include "runtime/device/cuda/CuDnn.h"
#include "test/fake/FakeReduce.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace gridloom::fake;
using namespace gridloom::rt::cudnn;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static size_t countElements(const Dims &sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t(1),
                         [](size_t count, int64_t size) { return count * size_t(size); });
}

size_t DnnTensor::count() const { return countElements(sizes); }

size_t DnnTensor::elementBytes() const {
  return type == DATA_FLOAT ? 4 : type == DATA_BOOLEAN ? 1 : 2;
}

size_t DnnTensor::extent() const {
  size_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    last += size_t(sizes[i] - 1) * size_t(strides[i]);
  return (last + 1) * elementBytes();
}

namespace {

/// Visits the indices of a shape in row-major order.
template <typename Visit> void forEachIndex(const Dims &sizes, Visit visit) {
  Dims index(sizes.size(), 0);
  for (size_t left = countElements(sizes); left > 0; --left) {
    visit(index);
    for (size_t i = sizes.size(); i-- > 0;) {
      if (++index[i] < sizes[i])
        break;
      index[i] = 0;
    }
  }
}

/// The offset of `index`, where dimensions of size one broadcast.
size_t locate(const Dims &index, const Dims &sizes, const Dims &strides) {
  size_t place = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    place += size_t(sizes[i] == 1 ? 0 : index[i]) * size_t(strides[i]);
  return place;
}

Dims getDenseStrides(const Dims &sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

double load(const void *data, size_t place, int type) {
  if (type == DATA_FLOAT)
    return double(static_cast<const float *>(data)[place]);
  if (type == DATA_BFLOAT16)
    return double(float(static_cast<const Bfloat16 *>(data)[place]));
  return double(static_cast<const _Float16 *>(data)[place]);
}

double round(double value, int type) {
  if (type == DATA_FLOAT)
    return double(float(value));
  if (type == DATA_BFLOAT16)
    return double(float(Bfloat16::round(float(value))));
  return type == DATA_HALF ? double(static_cast<_Float16>(value)) : value;
}

void store(void *data, size_t place, int type, double value) {
  if (type == DATA_FLOAT)
    static_cast<float *>(data)[place] = float(value);
  else if (type == DATA_BFLOAT16)
    static_cast<Bfloat16 *>(data)[place] = Bfloat16::round(float(value));
  else
    static_cast<_Float16 *>(data)[place] = static_cast<_Float16>(value);
}

/// A tensor's numbers, dense and row-major.
struct Values {
  const DnnTensor *tensor;
  Dims strides;
  std::vector<double> numbers;

  explicit Values(const DnnTensor &tensor)
      : tensor(&tensor), strides(getDenseStrides(tensor.sizes)), numbers(tensor.count()) {}
  double at(const Dims &index) const { return numbers[locate(index, tensor->sizes, strides)]; }
  double &at(const Dims &index) { return numbers[locate(index, tensor->sizes, strides)]; }
};

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

void convolve(const DnnOperation &op, const Values &x, const Values &w, Values &y) {
  const Dims &in = x.tensor->sizes, &window = w.tensor->sizes, &out = y.tensor->sizes;
  int64_t share = out[1] / (in[1] / window[1]);
  Dims inside(window.begin() + 1, window.end());
  forEachIndex(out, [&](const Dims &to) {
    double sum = 0;
    forEachIndex(inside, [&](const Dims &k) {
      Dims from = to, tap{to[1]};
      tap.insert(tap.end(), k.begin(), k.end());
      from[1] = to[1] / share * window[1] + k[0];
      for (size_t i = 2; i < out.size(); ++i) {
        from[i] = to[i] * op.strides[i - 2] + k[i - 1] * op.dilations[i - 2] - op.low[i - 2];
        if (from[i] < 0 || from[i] >= in[i])
          return;
      }
      sum += x.at(from) * w.at(tap);
    });
    y.at(to) = sum;
  });
}

double applyTo(int mode, double x, double b) {
  switch (mode) {
  case POINTWISE_ADD:
    return x + b;
  case POINTWISE_SUB:
    return x - b;
  case POINTWISE_MUL:
    return x * b;
  case POINTWISE_DIV:
    return x / b;
  case POINTWISE_EXP:
    return std::exp(x);
  case POINTWISE_LOG:
    return std::log(x);
  case POINTWISE_RELU_FWD:
    return x > 0 ? x : 0;
  case POINTWISE_CMP_GE:
    return x >= b;
  default:
    return std::numeric_limits<double>::quiet_NaN();
  }
}

void apply(const DnnOperation &op, const std::vector<const Values *> &in, Values &y) {
  forEachIndex(y.tensor->sizes, [&](const Dims &index) {
    double x = in[0]->at(index);
    if (op.mode == POINTWISE_GEN_INDEX)
      y.at(index) = double(index[size_t(op.axis)]);
    else if (op.mode == POINTWISE_BINARY_SELECT)
      y.at(index) = in[2]->at(index) != 0 ? x : in[1]->at(index);
    else
      y.at(index) = applyTo(op.mode, x, in.size() > 1 ? in[1]->at(index) : 0);
  });
}

void multiply(const Values &a, const Values &b, Values &c) {
  forEachIndex(c.tensor->sizes, [&](const Dims &to) {
    double sum = 0;
    Dims left = to, right = to;
    size_t rank = to.size();
    for (int64_t k = 0; k < a.tensor->sizes.back(); ++k) {
      left[rank - 1] = right[rank - 2] = k;
      sum += a.at(left) * b.at(right);
    }
    c.at(to) = sum;
  });
}

void reduce(const DnnOperation &op, const Values &x, Values &y) {
  bool isMax = op.mode == REDUCE_TENSOR_MAX;
  for (double &number : y.numbers)
    number = isMax ? -std::numeric_limits<double>::infinity() : 0;
  forEachIndex(x.tensor->sizes, [&](const Dims &index) {
    double &to = y.at(index);
    to = isMax ? std::max(to, x.at(index)) : to + x.at(index);
  });
}

} // namespace

void DnnGraph::run(const std::map<int64_t, void *> &memory,
                   const std::map<int64_t, double> &numbers) const {
  std::map<int64_t, Values> values;
  for (const auto &[uid, tensor] : tensors) {
    Values &made = values.emplace(uid, tensor).first->second;
    if (tensor.byValue)
      made.numbers[0] = numbers.at(uid);
    else if (!tensor.isVirtual && !writes(uid))
      forEachIndex(tensor.sizes, [&, &tensor = tensor, uid = uid](const Dims &index) {
        made.at(index) =
            load(memory.at(uid), locate(index, tensor.sizes, tensor.strides), tensor.type);
      });
  }
  for (const DnnOperation &op : operations) {
    std::vector<const Values *> in;
    for (int64_t uid : op.inputs)
      in.push_back(&values.at(uid));
    Values &out = values.at(op.output);
    if (op.kind == BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      convolve(op, *in[0], *in[1], out);
    else if (op.kind == BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      multiply(*in[0], *in[1], out);
    else if (op.kind == BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      reduce(op, *in[0], out);
    else
      apply(op, in, out);
    for (double &number : out.numbers)
      number = round(number, out.tensor->type);
    if (!out.tensor->isVirtual)
      forEachIndex(out.tensor->sizes, [&](const Dims &index) {
        store(memory.at(op.output), locate(index, out.tensor->sizes, out.tensor->strides),
              out.tensor->type, out.at(index));
      });
  }
}

//===----------------------------------------------------------------------===//
// Invalid graphs, and graphs without engines
//===----------------------------------------------------------------------===//

bool DnnGraph::writes(int64_t uid) const {
  for (const DnnOperation &op : operations)
    if (op.output == uid)
      return true;
  return false;
}

size_t DnnGraph::countVirtualBytes() const {
  size_t bytes = 0;
  for (const auto &[uid, tensor] : tensors)
    bytes += tensor.isVirtual ? tensor.count() * tensor.elementBytes() : 0;
  return bytes;
}

bool DnnGraph::hasF32Factors() const {
  for (const DnnOperation &op : operations)
    if (op.kind == BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      return tensors.at(op.inputs[0]).type == DATA_FLOAT;
  return false;
}

/// Whether `from` broadcasts to `to`.
static bool repeatsTo(const Dims &from, const Dims &to) {
  for (size_t i = 0; i < from.size(); ++i)
    if (from.size() != to.size() || (from[i] != to[i] && from[i] != 1))
      return false;
  return true;
}

static std::string findConvolutionFault(const DnnOperation &op, const Dims &x, const Dims &w,
                                        const Dims &y) {
  size_t rank = x.size();
  if (rank < 4 || rank > 5 || w.size() != rank || y.size() != rank ||
      op.strides.size() + 2 != rank || op.dilations.size() + 2 != rank ||
      op.low.size() + 2 != rank || op.high.size() + 2 != rank)
    return "a convolution of ranks that differ or are not 4 or 5";
  if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] || y[1] % (x[1] / w[1]))
    return "a convolution whose channels do not fit";
  for (size_t i = 2; i < rank; ++i)
    if ((x[i] + op.low[i - 2] + op.high[i - 2] - (w[i] - 1) * op.dilations[i - 2] - 1) /
                op.strides[i - 2] +
            1 !=
        y[i])
      return "a convolution whose output has not the window's positions";
  return "";
}

std::string DnnGraph::findFault() const {
  std::map<int64_t, bool> written;
  for (const DnnOperation &op : operations) {
    std::vector<const Dims *> in;
    for (int64_t uid : op.inputs) {
      if (tensors.at(uid).isVirtual && !written[uid])
        return "an operation that reads virtual tensor " + std::to_string(uid) +
               " before one writes it";
      in.push_back(&tensors.at(uid).sizes);
    }
    if (written[op.output] || tensors.at(op.output).byValue)
      return "two operations that write one tensor";
    written[op.output] = true;
    const Dims &out = tensors.at(op.output).sizes;
    std::string fault;
    if (op.kind == BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
      fault = findConvolutionFault(op, *in[0], *in[1], out);
    } else if (op.kind == BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
      size_t rank = out.size();
      if (rank < 3 || in[0]->size() != rank || in[1]->size() != rank ||
          in[0]->back() != (*in[1])[rank - 2] || (*in[0])[rank - 2] != out[rank - 2] ||
          in[1]->back() != out.back())
        fault = "a multiplication of shapes that do not fit";
    } else if (op.kind == BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
      fault = repeatsTo(out, *in[0]) ? "" : "a reduction to a shape that does not fit";
    } else {
      for (const Dims *sizes : in)
        if (!repeatsTo(*sizes, out))
          fault = "a pointwise operation on shapes that do not fit";
    }
    if (!fault.empty())
      return fault;
  }
  return "";
}

std::string DnnGraph::findObstacle() const {
  return !operations.empty() &&
                 operations[0].kind == BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
             ? findConvolutionObstacle()
             : findAttentionObstacle();
}

/// Supported chains: convolution, residual, bias, relu, in this order. The last three are optional,
/// but residual and relu need a bias.
std::string DnnGraph::findConvolutionObstacle() const {
  const Dims &out = tensors.at(operations[0].output).sizes;
  int last = 0;
  bool biased = false;
  for (size_t i = 1; i < operations.size(); ++i) {
    const DnnOperation &op = operations[i];
    int place = 0;
    if (op.inputs[0] != operations[i - 1].output)
      return "a chain that is not one";
    if (op.mode == POINTWISE_RELU_FWD)
      place = 3;
    else if (op.mode == POINTWISE_ADD && op.inputs.size() > 1)
      place = tensors.at(op.inputs[1]).sizes == out ? 1 : 2;
    if (place <= last)
      return "a convolution with more than a residual, a bias and a relu in this order";
    last = place;
    biased |= place == 2;
  }
  return last > 0 && !biased ? "a convolution with a residual or a relu and no bias" : "";
}

std::string DnnGraph::findAttentionObstacle() const {
  std::vector<const DnnOperation *> products;
  bool hasLogarithm = false;
  for (const DnnOperation &op : operations) {
    if (op.kind == BACKEND_OPERATION_MATMUL_DESCRIPTOR)
      products.push_back(&op);
    hasLogarithm |= op.kind == BACKEND_OPERATION_POINTWISE_DESCRIPTOR && op.mode == POINTWISE_LOG;
  }
  if (products.size() != 2 || !hasLogarithm)
    return "an attention without two products and the logarithm of its sums";
  for (const DnnOperation *product : products)
    for (int64_t uid : product->inputs)
      if (tensors.at(uid).type != DATA_HALF && tensors.at(uid).type != DATA_BFLOAT16)
        return "an attention of f32";
  const DnnTensor &query = tensors.at(products[0]->inputs[0]);
  const DnnTensor &value = tensors.at(products[1]->inputs[1]);
  if (query.sizes.back() % 8 || value.sizes.back() % 8 || query.sizes.back() > 256 ||
      value.sizes.back() > 256)
    return "an attention whose depth is no multiple of 8 or above 256";
  if (query.strides.back() != 1 || value.strides.back() != 1)
    return "an attention whose rows are not contiguous";
  return "";
}
