//===- FusePropertyTest.cpp - fused programs compute the same ---------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Random tensor programs are evaluated before and after layout and fusion. In exact mode both must
// agree bit by bit: strides, merged dimensions, alpha and kernels must not change the result.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "test/unit/InterpreterTesting.h"

#include "mlir/Pass/PassManager.h"

#include <random>

using namespace gridloom;
using namespace gridloom::testing;
using namespace mlir;

namespace {

using Shape = std::vector<int64_t>;

std::string spell(const Shape &numbers) {
  std::string text;
  for (int64_t number : numbers)
    text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

std::string type(const Shape &shape, const std::string &element = "f32") {
  std::string text;
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return "tensor<" + text + element + ">";
}

int64_t count(const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

/// Writes a random function of loom operations on small tensors.
class ProgramWriter {
public:
  explicit ProgramWriter(std::mt19937 &random) : random(random) {}

  std::string write() {
    for (int i = 0; i < 3; ++i)
      values.push_back({"%x" + std::to_string(i), pickShape()});
    std::vector<Value> arguments = values;
    for (int i = 0, operations = 5 + random() % 20; i < operations; ++i)
      addOperation();
    std::string text = weights + "func.func @main(", results, returned, types;
    for (const Value &value : arguments)
      text += (value.name == "%x0" ? "" : ", ") + value.name + ": " + type(value.shape) +
              " {loom.name = \"" + value.name.substr(1) + "\"}";
    for (int i = 0; i < 3; ++i) {
      Value value = i == 0 ? values.back() : pick();
      results +=
          (i ? ", " : "") + type(value.shape) + " {loom.name = \"y" + std::to_string(i) + "\"}";
      returned += (i ? ", " : "") + value.name;
      types += (i ? ", " : "") + type(value.shape);
    }
    return text + ") -> (" + results + ") attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
           body + "  return " + returned + " : " + types + "\n}\n";
  }

  /// Shapes of x0, x1, x2.
  std::vector<Shape> getArgumentShapes() const {
    return {values[0].shape, values[1].shape, values[2].shape};
  }

private:
  struct Value {
    std::string name;
    Shape shape;
  };

  int64_t below(int64_t bound) { return random() % bound; }
  Shape pickShape() {
    Shape shape;
    for (int64_t i = 0, rank = 1 + below(4); i < rank; ++i)
      shape.push_back((const int64_t[]){1, 2, 2, 3, 4}[below(5)]);
    return shape;
  }
  Value pick() {
    size_t back = std::min(below(values.size()), below(values.size()));
    return values[values.size() - 1 - back];
  }
  std::string add(const std::string &text, const Shape &shape) {
    std::string name = "%" + std::to_string(next++);
    body += "  " + name + " = " + text + "\n";
    values.push_back({name, shape});
    return name;
  }
  static std::string function(const Value &input, const Shape &result) {
    return "(" + type(input.shape) + ") -> " + type(result);
  }
  /// A random order of 0 to rank - 1.
  Shape pickOrder(size_t rank) {
    Shape order(rank);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  }

  void addOperation() {
    Value x = pick();
    // A scalar can only be computed with or broadcast.
    switch (x.shape.empty() ? below(4) : below(16)) {
    case 0: {
      std::string name = (const char *[]){"exp", "tanh", "negate", "rsqrt"}[below(4)];
      add("loom." + name + " " + x.name + " : " + type(x.shape), x.shape);
      return;
    }
    case 1:
    case 2:
      return addBinary(x);
    case 3:
      return addBroadcast(x);
    case 4:
    case 5:
      return addReshape(x);
    case 6:
    case 7:
      return addTranspose(x);
    case 8:
      return addReduce(x);
    case 9:
      return addRowWise(x);
    case 10:
      return addScale(x);
    case 11:
      return below(2) ? addGather(x) : addSlice(x);
    case 12:
      return addParts(x);
    case 13:
      return addJoin(x);
    default:
      return below(3) ? addDot(x) : addWeightDot(x);
    }
  }

  void addBinary(const Value &x) {
    std::vector<Value> same;
    for (const Value &value : values)
      if (value.shape == x.shape)
        same.push_back(value);
    std::string name = (const char *[]){"add", "multiply", "subtract"}[below(3)];
    add("loom." + name + " " + x.name + ", " + same[below(same.size())].name + " : " +
            type(x.shape),
        x.shape);
  }

  void addBroadcast(const Value &x) {
    Shape result, dims;
    if (x.shape.empty())
      result = {2, 3};
    for (int64_t size : x.shape) {
      if (result.size() < 4 && below(3) == 0)
        result.push_back(2 + below(2));
      dims.push_back(result.size());
      result.push_back(size == 1 && below(2) ? 3 : size);
    }
    if (count(result) <= 200)
      add("loom.broadcast " + x.name + " dims = " + spell(dims) + " : " + function(x, result),
          result);
  }

  void addReshape(const Value &x) {
    Shape result;
    int64_t rest = count(x.shape);
    for (int64_t i = 0; i < 3 && rest > 1; ++i) {
      Shape divisors;
      for (int64_t divisor = 1; divisor <= rest; ++divisor)
        if (rest % divisor == 0)
          divisors.push_back(divisor);
      result.push_back(divisors[below(divisors.size())]);
      rest /= result.back();
    }
    result.push_back(rest);
    add("loom.reshape " + x.name + " : " + function(x, result), result);
  }

  void addTranspose(const Value &x) {
    Shape order = pickOrder(x.shape.size()), result;
    for (int64_t dim : order)
      result.push_back(x.shape[dim]);
    add("loom.transpose " + x.name + " " + spell(order) + " : " + function(x, result), result);
  }

  void addReduce(const Value &x) {
    Shape dims, result;
    for (size_t i = 0; i < x.shape.size(); ++i) {
      if (below(2) || (i + 1 == x.shape.size() && dims.empty()))
        dims.push_back(i);
      else
        result.push_back(x.shape[i]);
    }
    add("loom.reduce sum " + x.name + " dims = " + spell(dims) + " : " + function(x, result),
        result);
  }

  void addRowWise(const Value &x) {
    if (below(2)) {
      add("loom.softmax " + x.name + " dim = " + std::to_string(below(x.shape.size())) + " : " +
              type(x.shape),
          x.shape);
      return;
    }
    for (const Value &scale : values)
      if (scale.shape == Shape{x.shape.back()}) {
        add("loom.layer_norm " + x.name + ", " + scale.name + " epsilon = 1.0 : (" + type(x.shape) +
                ", " + type(scale.shape) + ") -> " + type(x.shape),
            x.shape);
        return;
      }
  }

  void addScale(const Value &x) {
    std::string c = "%c" + std::to_string(next++);
    body += "  " + c + " = loom.constant dense<" +
            (const char *[]){"0.5", "4.0", "-2.0"}[below(3)] + "> : " + type(x.shape) + "\n";
    if (below(3) == 0)
      add("loom.multiply " + c + ", " + x.name + " : " + type(x.shape), x.shape);
    else
      add("loom." + std::string(below(2) ? "divide " : "multiply ") + x.name + ", " + c + " : " +
              type(x.shape),
          x.shape);
  }

  void addGather(const Value &x) {
    int64_t dim = below(x.shape.size()), size = x.shape[dim], rows = 1 + below(3);
    std::string indices, c = "%c" + std::to_string(next++);
    for (int64_t i = 0; i < rows; ++i)
      indices += (i ? ", " : "") + std::to_string(below(size));
    std::string index = type({rows}, "i64");
    body += "  " + c + " = loom.constant dense<[" + indices + "]> : " + index + "\n";
    if (below(2)) {
      // The same position, counted from the end.
      body += "  " + c + "s = loom.constant dense<" + std::to_string(size) + "> : " + index + "\n";
      body += "  " + c + "z = loom.constant dense<0> : " + index + "\n";
      body += "  " + c + "n = loom.subtract " + c + ", " + c + "s : " + index + "\n";
      body += "  " + c + "p = loom.compare lt " + c + "n, " + c + "z : (" + index + ", " + index +
              ") -> " + type({rows}, "i1") + "\n";
      body += "  " + c + "i = loom.select " + c + "p, " + c + ", " + c +
              "n : " + type({rows}, "i1") + ", " + index + "\n";
      c += "i";
    }
    Shape result = x.shape;
    result[dim] = rows;
    add("loom.gather " + x.name + ", " + c + " dim = " + std::to_string(dim) + " : (" +
            type(x.shape) + ", " + type({rows}, "i64") + ") -> " + type(result),
        result);
  }

  void addSlice(const Value &x) {
    Shape starts, limits, strides, result;
    for (int64_t size : x.shape) {
      starts.push_back(below(size));
      limits.push_back(starts.back() + 1 + below(size - starts.back()));
      strides.push_back(1 + below(2));
      result.push_back((limits.back() - starts.back() + strides.back() - 1) / strides.back());
    }
    add("loom.slice " + x.name + " " + spell(starts) + " to " + spell(limits) + " by " +
            spell(strides) + " : " + function(x, result),
        result);
  }

  /// Slices of x along a dimension; products, kernels and reshapes may each use some of them.
  void addParts(const Value &x) {
    int64_t dim = below(x.shape.size()), size = x.shape[dim], at = 0;
    while (at < size) {
      Shape starts(x.shape.size(), 0), limits = x.shape, strides(x.shape.size(), 1);
      starts[dim] = at;
      limits[dim] = at += 1 + below(size - at);
      Shape result = limits;
      result[dim] -= starts[dim];
      add("loom.slice " + x.name + " " + spell(starts) + " to " + spell(limits) + " by " +
              spell(strides) + " : " + function(x, result),
          result);
    }
  }

  /// Concatenates x and values that differ from it in at most one dimension.
  void addJoin(const Value &x) {
    int64_t dim = below(x.shape.size());
    std::string names = x.name, types = type(x.shape);
    Shape result = x.shape;
    for (int i = 0, pieces = 1 + below(3); i < pieces; ++i) {
      Value y = pick();
      Shape like = y.shape;
      if (like.size() == x.shape.size())
        like[dim] = x.shape[dim];
      if (like != x.shape)
        y = x;
      names += ", " + y.name;
      types += ", " + type(y.shape);
      result[dim] += y.shape[dim];
    }
    if (count(result) <= 200)
      add("loom.concatenate " + names + " dim = " + std::to_string(dim) + " : (" + types + ") -> " +
              type(result),
          result);
  }

  /// Contracts x with another value over dimensions whose sizes agree, in any order.
  void addDot(const Value &x) {
    Value y = pick();
    Shape lhsBatch, rhsBatch, lhsContract, rhsContract, result, lhsFree, rhsFree;
    std::vector<bool> used(y.shape.size());
    std::vector<std::pair<int64_t, int64_t>> batch, contract;
    for (int64_t i : pickOrder(x.shape.size())) {
      int64_t partner = -1;
      for (int64_t j : pickOrder(y.shape.size()))
        if (!used[j] && y.shape[j] == x.shape[i])
          partner = j;
      if (partner < 0 || below(3) == 0)
        continue;
      used[partner] = true;
      (below(2) ? batch : contract).push_back({i, partner});
    }
    for (auto [i, j] : batch) {
      lhsBatch.push_back(i);
      rhsBatch.push_back(j);
      result.push_back(x.shape[i]);
    }
    for (auto [i, j] : contract) {
      lhsContract.push_back(i);
      rhsContract.push_back(j);
    }
    auto isUsed = [&](const Shape &a, const Shape &b, int64_t dim) {
      return llvm::is_contained(a, dim) || llvm::is_contained(b, dim);
    };
    for (size_t i = 0; i < x.shape.size(); ++i)
      if (!isUsed(lhsBatch, lhsContract, i))
        result.push_back(x.shape[i]);
    for (size_t j = 0; j < y.shape.size(); ++j)
      if (!isUsed(rhsBatch, rhsContract, j))
        result.push_back(y.shape[j]);
    if (count(result) > 200 || result.size() > 5)
      return;
    add("loom.dot_general " + x.name + ", " + y.name + " batch = " + spell(lhsBatch) + " x " +
            spell(rhsBatch) + " contract = " + spell(lhsContract) + " x " + spell(rhsContract) +
            " : (" + type(x.shape) + ", " + type(y.shape) + ") -> " + type(result),
        result);
  }

  /// A linear layer with a weight that may be padded, with or without a bias.
  void addWeightDot(const Value &x) {
    int64_t inner = x.shape.back(), outer = (const int64_t[]){2, 4, 8}[below(3)];
    std::string number = std::to_string(next++), bytes = std::to_string(4 * inner * outer);
    weights += "loom.weight @w" + number + " : " + type({inner, outer}) +
               " from <\"\", offset = 0, bytes = " + bytes + ">\n";
    weights += "loom.weight @b" + number + " : " + type({outer}) +
               " from <\"\", offset = 0, bytes = " + std::to_string(4 * outer) + ">\n";
    body +=
        "  %w" + number + " = loom.get_weight @w" + number + " : " + type({inner, outer}) + "\n";
    Shape result = x.shape;
    result.back() = outer;
    std::string product =
        add("loom.dot_general " + x.name + ", %w" + number + " batch = [] x [] contract = [" +
                std::to_string(x.shape.size() - 1) + "] x [0] : (" + type(x.shape) + ", " +
                type({inner, outer}) + ") -> " + type(result),
            result);
    if (below(2))
      return;
    body += "  %b" + number + " = loom.get_weight @b" + number + " : " + type({outer}) + "\n";
    body += "  %r" + number + " = loom.broadcast %b" + number + " dims = [" +
            std::to_string(x.shape.size() - 1) + "] : (" + type({outer}) + ") -> " + type(result) +
            "\n";
    add("loom.add " + product + ", %r" + number + " : " + type(result), result);
  }

  std::mt19937 &random;
  std::vector<Value> values;
  std::string body, weights;
  int next = 0;
};

} // namespace

TEST(FuseProperty, FusedProgramsComputeTheSame) {
  Context context;
  int matmuls = 0, kernels = 0, padded = 0;
  for (int seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    ProgramWriter writer(random);
    std::string text = writer.write();
    auto before = context.parse(text), after = context.parse(text);
    ASSERT_TRUE(before && after) << "seed " << seed;
    PassManager pm(context.get());
    LayoutOptions layout;
    layout.padMultiple = 4;
    layout.padElements = 3;
    addLayoutPasses(pm, layout);
    addFusePasses(pm);
    ASSERT_TRUE(succeeded(pm.run(*after))) << "seed " << seed << ": " << context.takeError() << "\n"
                                           << text;
    after->walk([&](plan::MatmulOp) { ++matmuls; });
    after->walk([&](plan::KernelOp) { ++kernels; });
    after->walk([&](loom::GetWeightOp op) { padded += op.getLayout()->getPad() != 0; });

    NamedTensors inputs;
    auto shapes = writer.getArgumentShapes();
    for (size_t i = 0; i < shapes.size(); ++i) {
      std::vector<double> numbers(count(shapes[i]));
      for (double &number : numbers)
        number = static_cast<double>(random() % 17) - 8;
      inputs["x" + std::to_string(i)] = floats(shapes[i], numbers);
    }
    InterpreterOptions exact;
    exact.exact = true;
    auto expected = run(*before, inputs, exact), actual = run(*after, inputs, exact);
    ASSERT_TRUE(succeeded(expected) && succeeded(actual))
        << "seed " << seed << ": " << context.takeError() << "\n"
        << text;
    for (auto &[name, tensor] : *expected) {
      std::string printed;
      llvm::raw_string_ostream stream(printed);
      after->print(stream);
      ASSERT_TRUE(tensor.isBitwiseEqual((*actual)[name]))
          << "seed " << seed << ", " << name.str() << "\n"
          << text << "\n"
          << printed;
    }
  }
  // Enough programs had the operations under test.
  EXPECT_GT(matmuls, 300);
  EXPECT_GT(kernels, 1000);
  EXPECT_GT(padded, 30);
}

/// Runs `text` on small whole numbers before and after layout and fusion; both must agree bit by
/// bit. Returns the number of operations of type Op afterwards.
template <typename Op>
int compare(const std::string &text, const std::vector<Shape> &shapes, const LayoutOptions &layout,
            const FuseOptions &fuse) {
  Context context;
  auto before = context.parse(text), after = context.parse(text);
  EXPECT_TRUE(before && after) << context.takeError();
  PassManager pm(context.get());
  addLayoutPasses(pm, layout);
  addFusePasses(pm, fuse);
  EXPECT_TRUE(succeeded(pm.run(*after))) << context.takeError();
  NamedTensors inputs;
  std::mt19937 random(7);
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<double> numbers(count(shapes[i]));
    for (double &number : numbers)
      number = static_cast<double>(random() % 7) - 3;
    inputs["x" + std::to_string(i)] = floats(shapes[i], numbers);
  }
  InterpreterOptions exact;
  exact.exact = true;
  auto expected = run(*before, inputs, exact), actual = run(*after, inputs, exact);
  EXPECT_TRUE(succeeded(expected) && succeeded(actual)) << context.takeError();
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  after->print(stream);
  if (succeeded(expected) && succeeded(actual))
    for (auto &[name, tensor] : *expected)
      EXPECT_TRUE(tensor.isBitwiseEqual((*actual)[name])) << name.str() << "\n" << printed;
  int calls = 0;
  after->walk([&](Op) { ++calls; });
  return calls;
}

/// The same for a GPU.
template <typename Op> int compareOnGpu(const std::string &text, const std::vector<Shape> &shapes) {
  LayoutOptions layout;
  layout.convolutionLibrary = true;
  FuseOptions fuse;
  fuse.attentionLibrary = true;
  return compare<Op>(text, shapes, layout, fuse);
}

/// The same for a CPU, whose library has convolutions of f32.
template <typename Op> int compareOnCpu(const std::string &text, const std::vector<Shape> &shapes) {
  LayoutOptions layout;
  layout.forwardConvolutions = true;
  FuseOptions fuse;
  fuse.convolutionEpilogues = false;
  fuse.channelsLast = true;
  return compare<Op>(text, shapes, layout, fuse);
}

/// A convolution of `input` by `weight` to `output`.
struct ConvolutionCase {
  const char *attributes;
  Shape input, weight, output;

  std::string write() const {
    return "func.func @main(%x: " + type(input) + " {loom.name = \"x0\"}, %w: " + type(weight) +
           " {loom.name = \"x1\"}) -> (" + type(output) +
           " {loom.name = \"out\"}) attributes {loom.entry = \"main\", loom.dims = {}} {\n" +
           "%0 = loom.convolution %x, %w " + attributes + " : (" + type(input) + ", " +
           type(weight) + ") -> " + type(output) + "\nreturn %0 : " + type(output) + "\n}";
  }
};

/// In NCHW, and with channels last where TF32 allows tensor cores: bias, residual, groups, padding
/// on one side, and a weight that the prologue transposes.
TEST(FuseProperty, LibraryConvolutionsComputeTheSame) {
  for (std::string tf32 : {"", " tf32"}) {
    std::string text = R"(
      func.func @main(%x: tensor<2x4x5x6xf32> {loom.name = "x0"}, %w: tensor<4x2x3x2xf32> {loom.name = "x1"},
                      %b: tensor<4xf32> {loom.name = "x2"}, %v: tensor<4x4x1x1xf32> {loom.name = "x3"})
          -> (tensor<2x4x5x6xf32> {loom.name = "out"}) attributes {loom.entry = "main", loom.dims = {}} {
        %bias = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<2x4x5x6xf32>
        %0 = loom.convolution %x, %w strides = [1, 1] low = [2, 1] high = [0, 0] input_dilations = [1, 1] dilations = [1, 1]
            groups = 2TF32 : (tensor<2x4x5x6xf32>, tensor<4x2x3x2xf32>) -> tensor<2x4x5x6xf32>
        %1 = loom.add %0, %bias : tensor<2x4x5x6xf32>
        %2 = loom.multiply %1, %1 : tensor<2x4x5x6xf32>
        %3 = loom.convolution %2, %v strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1] dilations = [1, 1]
            groups = 1TF32 : (tensor<2x4x5x6xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x5x6xf32>
        %4 = loom.add %3, %bias : tensor<2x4x5x6xf32>
        %5 = loom.add %4, %x : tensor<2x4x5x6xf32>
        return %5 : tensor<2x4x5x6xf32>
      })";
    for (size_t at; (at = text.find("TF32")) != std::string::npos;)
      text.replace(at, 4, tf32);
    EXPECT_EQ(
        compareOnGpu<plan::ConvolutionOp>(text, {{2, 4, 5, 6}, {4, 2, 3, 2}, {4}, {4, 4, 1, 1}}), 2)
        << "with" << tf32;
  }
}

/// The same for a CPU's library, with channels last; also pools and a global average.
TEST(FuseProperty, CpuConvolutionsComputeTheSame) {
  const char *text = R"(
    func.func @main(%x: tensor<2x3x6x8xf32> {loom.name = "x0"}, %v: tensor<4x3x3x3xf32> {loom.name = "x1"},
                    %w: tensor<5x4x1x1xf32> {loom.name = "x2"}, %b: tensor<4xf32> {loom.name = "x3"})
        -> (tensor<2x5xf32> {loom.name = "out"}, tensor<2x4x3x8xf32> {loom.name = "pool"}) attributes {loom.entry = "main", loom.dims = {}} {
      %bias = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<2x4x6x8xf32>
      %zero = loom.constant dense<0.0> : tensor<2x4x6x8xf32>
      %0 = loom.convolution %x, %v strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1]
          groups = 1 : (tensor<2x3x6x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x8xf32>
      %1 = loom.add %0, %bias : tensor<2x4x6x8xf32>
      %2 = loom.maximum %1, %zero : tensor<2x4x6x8xf32>
      %3 = loom.reduce_window max %2 dims = [2, 3] sizes = [3, 2] strides = [2, 1] low = [1, 0] high = [0, 1]
          dilations = [1, 1] : (tensor<2x4x6x8xf32>) -> tensor<2x4x3x8xf32>
      %4 = loom.convolution %3, %w strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1] dilations = [1, 1]
          groups = 1 : (tensor<2x4x3x8xf32>, tensor<5x4x1x1xf32>) -> tensor<2x5x3x8xf32>
      %5 = loom.reduce sum %4 dims = [2, 3] : (tensor<2x5x3x8xf32>) -> tensor<2x5xf32>
      return %5, %3 : tensor<2x5xf32>, tensor<2x4x3x8xf32>
    })";
  EXPECT_EQ(
      compareOnCpu<plan::ConvolutionOp>(text, {{2, 3, 6, 8}, {4, 3, 3, 3}, {5, 4, 1, 1}, {4}}), 2);
}

/// Zeros between elements in one and in two dimensions, also more zeros than window elements;
/// padding beyond the input and negative padding; groups, and a stride in the other dimension. Each
/// phase is a call.
TEST(FuseProperty, ConvolutionsOfDilatedInputsComputeTheSame) {
  const std::pair<ConvolutionCase, int> cases[] = {
      {{"strides = [1, 1] low = [1, 1] high = [2, 1] input_dilations = [2, 2] dilations = [1, 1] "
        "groups = 1",
        {2, 3, 4, 5},
        {4, 3, 3, 3},
        {2, 4, 8, 9}},
       4},
      {{"strides = [1, 1] low = [0, 0] high = [1, 2] input_dilations = [2, 3] dilations = [1, 1] "
        "groups = 1",
        {1, 2, 3, 3},
        {3, 2, 1, 1},
        {1, 3, 6, 9}},
       1},
      {{"strides = [2, 1] low = [1, 4] high = [0, 5] input_dilations = [1, 3] dilations = [2, 1] "
        "groups = 2",
        {2, 4, 7, 3},
        {6, 2, 2, 4},
        {2, 6, 3, 13}},
       3},
      {{"strides = [1, 1] low = [6, 0] high = [7, 0] input_dilations = [4, 1] dilations = [1, 1] "
        "groups = 1",
        {1, 2, 2, 3},
        {2, 2, 2, 2},
        {1, 2, 17, 2}},
       2},
  };
  for (const auto &[each, calls] : cases) {
    std::string text = each.write();
    EXPECT_EQ(compareOnCpu<plan::ConvolutionOp>(text, {each.input, each.weight}), calls)
        << each.attributes;
    // GPUs insert the zeros and run one product.
    EXPECT_EQ(compareOnGpu<plan::MatmulOp>(text, {each.input, each.weight}), 1) << each.attributes;
  }
}

/// Convolutions as products: few positions of several images, a window larger than the result, a
/// window over all elements, also dilated, and strides.
TEST(FuseProperty, ConvolutionsAsProductsComputeTheSame) {
  const char *plain = "strides = [1, 1] low = [0, 0] high = [0, 0] input_dilations = [1, 1] "
                      "dilations = [1, 1] groups = 1";
  const ConvolutionCase cases[] = {
      {plain, {3, 4, 5, 5}, {6, 4, 1, 1}, {3, 6, 5, 5}},
      {"strides = [2, 1] low = [1, 0] high = [0, 2] input_dilations = [1, 1] dilations = [1, 1] "
       "groups = 1",
       {2, 3, 7, 5},
       {4, 3, 2, 3},
       {2, 4, 4, 5}},
      {"strides = [1, 1] low = [1, 1] high = [1, 1] input_dilations = [1, 1] dilations = [1, 1] "
       "groups = 1",
       {3, 2, 5, 4},
       {5, 2, 5, 4},
       {3, 5, 3, 3}},
      {plain, {3, 2, 5, 4}, {5, 2, 5, 4}, {3, 5, 1, 1}},
      {"strides = [1, 1] low = [0, 1] high = [0, 1] input_dilations = [1, 1] dilations = [2, 3] "
       "groups = 1",
       {3, 2, 5, 5},
       {5, 2, 3, 3},
       {3, 5, 1, 1}},
  };
  for (const ConvolutionCase &each : cases)
    EXPECT_EQ(compare<plan::MatmulOp>(each.write(), {each.input, each.weight}, {}, {}), 1)
        << each.attributes;
}

/// Transposed heads, a scale, a mask that broadcasts, and values narrower than keys.
TEST(FuseProperty, LibraryAttentionComputesTheSame) {
  std::string text = R"(
    func.func @main(%q32: tensor<2x3x2x8xf32> {loom.name = "x0"}, %k32: tensor<2x5x2x8xf32> {loom.name = "x1"},
                    %v32: tensor<2x5x2x16xf32> {loom.name = "x2"}, %m32: tensor<2x5xf32> {loom.name = "x3"})
        -> (tensor<2x3x2x16xf32> {loom.name = "out"}) attributes {loom.entry = "main", loom.dims = {}} {
      %q = loom.convert %q32 : (tensor<2x3x2x8xf32>) -> tensor<2x3x2x8xf16>
      %k = loom.convert %k32 : (tensor<2x5x2x8xf32>) -> tensor<2x5x2x8xf16>
      %v = loom.convert %v32 : (tensor<2x5x2x16xf32>) -> tensor<2x5x2x16xf16>
      %m = loom.convert %m32 : (tensor<2x5xf32>) -> tensor<2x5xf16>
      %half = loom.constant dense<0.5> : tensor<2x2x3x5xf16>
      %0 = loom.dot_general %q, %k batch = [0, 2] x [0, 2] contract = [3] x [3]
          : (tensor<2x3x2x8xf16>, tensor<2x5x2x8xf16>) -> tensor<2x2x3x5xf16>
      %1 = loom.multiply %0, %half : tensor<2x2x3x5xf16>
      %2 = loom.broadcast %m dims = [0, 3] : (tensor<2x5xf16>) -> tensor<2x2x3x5xf16>
      %3 = loom.add %1, %2 : tensor<2x2x3x5xf16>
      %4 = loom.softmax %3 dim = 3 : tensor<2x2x3x5xf16>
      %5 = loom.dot_general %4, %v batch = [0, 1] x [0, 2] contract = [3] x [1]
          : (tensor<2x2x3x5xf16>, tensor<2x5x2x16xf16>) -> tensor<2x2x3x16xf16>
      %6 = loom.transpose %5 [0, 2, 1, 3] : (tensor<2x2x3x16xf16>) -> tensor<2x3x2x16xf16>
      %7 = loom.convert %6 : (tensor<2x3x2x16xf16>) -> tensor<2x3x2x16xf32>
      return %7 : tensor<2x3x2x16xf32>
    })";
  EXPECT_EQ(
      compareOnGpu<plan::AttentionOp>(text, {{2, 3, 2, 8}, {2, 5, 2, 8}, {2, 5, 2, 16}, {2, 5}}),
      1);
}
