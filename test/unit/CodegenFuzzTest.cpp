//===- CodegenFuzzTest.cpp - random kernels -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Kernels of random operations on random shapes, compared with reference evaluation. The seed is
// the test's parameter, so that a failure can be reproduced.
//
//===----------------------------------------------------------------------===//
#include "test/unit/CodegenTesting.h"

using namespace gridloom;
using namespace gridloom::testing;

namespace {

using Shape = std::vector<int64_t>;

/// Builds the text of a kernel, one random operation after another.
class Generator {
public:
  explicit Generator(unsigned seed) : random(seed) {}

  std::string make(const std::string &name) {
    int arguments = pick(1, 3);
    std::string header;
    for (int i = 0; i < arguments; ++i) {
      Shape shape = randomShape();
      header += (i ? ", %v" : "%v") + std::to_string(values.size()) + ": " + type(shape);
      values.push_back(shape);
    }
    for (int i = 0, e = pick(2, 8); i < e; ++i)
      addOp();
    std::vector<size_t> outputs{values.size() - 1};
    if (pick(0, 2) == 0)
      outputs.push_back(pick(0, static_cast<int>(values.size()) - 1));
    std::string names, types;
    for (size_t output : outputs) {
      names += (names.empty() ? "%v" : ", %v") + std::to_string(output);
      types += (types.empty() ? "" : ", ") + type(values[output]);
    }
    return kernelText(header, body + "  loom.yield " + names + " : " + types, name);
  }

private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
  Shape randomShape() {
    Shape shape;
    for (int i = 0, e = pick(1, 4); i < e; ++i)
      shape.push_back(sizes[pick(0, static_cast<int>(sizes.size()) - 1)]);
    return shape;
  }
  static std::string list(const Shape &shape, const char *separator) {
    std::string text;
    for (size_t i = 0; i < shape.size(); ++i)
      text += (i ? separator : "") + std::to_string(shape[i]);
    return text;
  }
  static std::string type(const Shape &shape) {
    return "tensor<" + list(shape, "x") + (shape.empty() ? "f32>" : "xf32>");
  }
  static int64_t count(const Shape &shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
  }

  size_t add(const std::string &text, const Shape &shape) {
    body += "  %v" + std::to_string(values.size()) + " = loom." + text + "\n";
    values.push_back(shape);
    return values.size() - 1;
  }
  std::string ref(size_t value) { return "%v" + std::to_string(value); }
  std::string move(const std::string &head, size_t from, const Shape &to) {
    return head + " : (" + type(values[from]) + ") -> " + type(to);
  }

  void addOp() {
    // Late values are likelier, so that operations build on each other.
    size_t last = values.size() - 1;
    size_t x = pick(0, 2) ? last : pick(0, static_cast<int>(last));
    Shape shape = values[x];
    int rank = shape.size();
    switch (pick(0, 13)) {
    case 0:
      add("tanh " + ref(x) + " : " + type(shape), shape);
      return;
    case 1:
      add("gelu erf " + ref(x) + " : " + type(shape), shape);
      return;
    case 2:
      addBinary(x);
      return;
    case 3:
      addBroadcast(x);
      return;
    case 4:
      addTranspose(x);
      return;
    case 5:
    case 6:
      addReshape(x);
      return;
    case 7:
      addSlice(x);
      return;
    case 8:
      addConcatenate(x);
      return;
    case 9:
      if (rank > 0)
        addReduce(x);
      return;
    case 10:
      if (rank > 0)
        add("softmax " + ref(x) + " dim = " + std::to_string(pick(0, rank - 1)) + " : " +
                type(shape),
            shape);
      return;
    case 11:
      if (rank > 0)
        addGather(x);
      return;
    case 12:
      addPad(x);
      return;
    case 13:
      addWindow(x);
      return;
    }
  }

  void addBinary(size_t x) {
    // Another value of the shape, or one made from x.
    std::vector<size_t> same;
    for (size_t i = 0; i < values.size(); ++i)
      if (values[i] == values[x])
        same.push_back(i);
    size_t y = same[pick(0, static_cast<int>(same.size()) - 1)];
    const char *const ops[] = {"add", "subtract", "multiply", "maximum"};
    add(std::string(ops[pick(0, 3)]) + " " + ref(x) + ", " + ref(y) + " : " + type(values[x]),
        values[x]);
  }
  void addBroadcast(size_t x) {
    Shape to;
    std::string dims;
    for (int64_t size : values[x]) {
      if (pick(0, 2) == 0 && count(to) * count(values[x]) < 3000)
        to.push_back(pick(2, 5));
      dims += (dims.empty() ? "" : ", ") + std::to_string(to.size());
      to.push_back(size == 1 && count(values[x]) < 1000 ? pick(1, 4) : size);
    }
    if (pick(0, 2) == 0 && count(to) < 1000)
      to.push_back(pick(2, 20));
    add(move("broadcast " + ref(x) + " dims = [" + dims + "]", x, to), to);
  }
  void addTranspose(size_t x) {
    Shape order(values[x].size()), to;
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t dim : order)
      to.push_back(values[x][dim]);
    add(move("transpose " + ref(x) + " [" + list(order, ", ") + "]", x, to), to);
  }
  void addReshape(size_t x) {
    // Random factors of the number of elements.
    Shape to;
    int64_t rest = count(values[x]);
    for (int i = 0, e = pick(0, 3); i < e && rest > 1; ++i) {
      std::vector<int64_t> divisors;
      for (int64_t d = 1; d <= rest; ++d)
        if (rest % d == 0)
          divisors.push_back(d);
      to.push_back(divisors[pick(0, static_cast<int>(divisors.size()) - 1)]);
      rest /= to.back();
    }
    to.push_back(rest);
    add(move("reshape " + ref(x), x, to), to);
  }
  void addSlice(size_t x) {
    Shape starts, limits, strides, to;
    for (int64_t size : values[x]) {
      int64_t start = pick(0, static_cast<int>(size) - 1);
      int64_t limit = pick(static_cast<int>(start) + 1, static_cast<int>(size));
      int64_t stride = pick(0, 3) ? 1 : pick(1, 3);
      starts.push_back(start);
      limits.push_back(limit);
      strides.push_back(stride);
      to.push_back((limit - start + stride - 1) / stride);
    }
    add(move("slice " + ref(x) + " [" + list(starts, ", ") + "] to [" + list(limits, ", ") +
                 "] by [" + list(strides, ", ") + "]",
             x, to),
        to);
  }
  void addConcatenate(size_t x) {
    if (values[x].empty() || count(values[x]) > 3000)
      return;
    int dim = pick(0, static_cast<int>(values[x].size()) - 1);
    std::string names, types;
    Shape to = values[x];
    to[dim] = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      Shape shape = values[i];
      if (shape.size() != to.size() || (i != x && pick(0, 1)))
        continue;
      bool fits = true;
      for (size_t d = 0; d < to.size(); ++d)
        fits &= static_cast<int>(d) == dim || shape[d] == to[d];
      if (!fits)
        continue;
      names += (names.empty() ? "" : ", ") + ref(i);
      types += (types.empty() ? "" : ", ") + type(shape);
      to[dim] += shape[dim];
    }
    add("concatenate " + names + " dim = " + std::to_string(dim) + " : (" + types + ") -> " +
            type(to),
        to);
  }
  void addReduce(size_t x) {
    Shape dims, to;
    for (size_t i = 0; i < values[x].size(); ++i) {
      if (pick(0, 1))
        dims.push_back(i);
      else
        to.push_back(values[x][i]);
    }
    add(move(std::string(pick(0, 1) ? "reduce sum " : "reduce max ") + ref(x) + " dims = [" +
                 list(dims, ", ") + "]",
             x, to),
        to);
  }
  void addGather(size_t x) {
    int dim = pick(0, static_cast<int>(values[x].size()) - 1);
    Shape indices{pick(1, 6)}, to(values[x].begin(), values[x].begin() + dim);
    std::string literal;
    for (int64_t i = 0; i < indices[0]; ++i)
      literal += (i ? ", " : "") + std::to_string(pick(0, static_cast<int>(values[x][dim]) - 1));
    to.push_back(indices[0]);
    to.insert(to.end(), values[x].begin() + dim + 1, values[x].end());
    std::string name = "%i" + std::to_string(values.size());
    std::string type64 = "tensor<" + std::to_string(indices[0]) + "xi64>";
    body += "  " + name + " = loom.constant dense<[" + literal + "]> : " + type64 + "\n";
    add("gather " + ref(x) + ", " + name + " dim = " + std::to_string(dim) + " : (" +
            type(values[x]) + ", " + type64 + ") -> " + type(to),
        to);
  }

  void addPad(size_t x) {
    Shape low, high, interior, to;
    for (int64_t size : values[x]) {
      bool pads = count(values[x]) < 1000 && pick(0, 1);
      low.push_back(pads ? pick(0, 3) : 0);
      high.push_back(pads ? pick(0, 3) : 0);
      interior.push_back(pads && pick(0, 2) == 0 ? pick(1, 2) : 0);
      to.push_back(low.back() + size + (size - 1) * interior.back() + high.back());
    }
    add(move("pad " + ref(x) + " value = 0.25 : f32 low = [" + list(low, ", ") + "] high = [" +
                 list(high, ", ") + "] interior = [" + list(interior, ", ") + "]",
             x, to),
        to);
  }
  void addWindow(size_t x) {
    Shape dims, windows, strides, dilations, to = values[x];
    for (size_t i = 0; i < values[x].size(); ++i) {
      if (pick(0, 1) || count(values[x]) > 1000)
        continue;
      int64_t dilation = pick(1, 2);
      int64_t most = std::min<int64_t>(3, (to[i] - 1) / dilation + 1);
      dims.push_back(i);
      windows.push_back(pick(1, static_cast<int>(most)));
      dilations.push_back(dilation);
      strides.push_back(pick(1, 3));
      to[i] = (to[i] - (windows.back() - 1) * dilation - 1) / strides.back() + 1;
    }
    to.insert(to.end(), windows.begin(), windows.end());
    add(move("window " + ref(x) + " dims = [" + list(dims, ", ") + "] sizes = [" +
                 list(windows, ", ") + "] strides = [" + list(strides, ", ") + "] dilations = [" +
                 list(dilations, ", ") + "]",
             x, to),
        to);
  }

  static constexpr std::array<int64_t, 10> sizes{1, 2, 3, 4, 6, 8, 12, 16, 17, 24};
  std::mt19937 random;
  std::vector<Shape> values;
  std::string body;
};

class CodegenFuzz : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(, CodegenFuzz, ::testing::Range(0u, 40u));

} // namespace

TEST_P(CodegenFuzz, RandomKernels) {
  std::string text;
  for (unsigned i = 0; i < 8; ++i)
    text += Generator(GetParam() * 8 + i).make("k" + std::to_string(i));
  SCOPED_TRACE(text);
  RunOptions options;
  options.tolerance = 2e-5;
  options.low = -1;
  options.high = 1;
  checkKernels(text, options);
}
