//===- ProgramGenerator.cpp - random programs of the loom dialect ---------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "ProgramGenerator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace gridloom::testing;

namespace {

/// Whole numbers below this are exact in f32, and so are sums of two.
constexpr double kExactBound = 1 << 22;
/// Limits of inexact values, which keep tolerances small.
constexpr double kSmoothBound = 1e4;
constexpr double kMaxError = 2e-2;
constexpr int64_t kMaxElements = 4096;
/// A rounding of f32, with some room for different algorithms.
constexpr double kRounding = 1e-6;

int64_t product(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

std::string typeOf(const std::string &element, const std::vector<int64_t> &shape) {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + element + ">";
}

template <typename T> std::string join(const std::vector<T> &list) {
  std::string text;
  for (const T &item : list)
    text += (text.empty() ? "" : ", ") + std::to_string(item);
  return "[" + text + "]";
}

/// The attributes of an input or output.
std::string describe(const std::string &name, size_t rank) {
  std::string names;
  for (size_t i = 0; i < rank; ++i)
    names += i ? ", \"\"" : "\"\"";
  return " {loom.name = \"" + name + "\", loom.dim_names = [" + names + "]}";
}

std::vector<int64_t> range(int64_t from, int64_t to) {
  std::vector<int64_t> list;
  for (int64_t i = from; i < to; ++i)
    list.push_back(i);
  return list;
}

} // namespace

ProgramGenerator::ProgramGenerator(std::string name, uint64_t seed, int64_t rows)
    : random(seed * 2654435761u + 12345), prefix(std::move(name)), batched(rows > 0), rows(rows) {
  state.program.name = prefix;
}

int64_t ProgramGenerator::pickSize() {
  constexpr int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 16};
  return sizes[pick(0, 11)];
}

std::vector<int64_t> ProgramGenerator::pickShape(int64_t rank) {
  std::vector<int64_t> shape;
  do {
    shape.clear();
    if (batched)
      shape.push_back(batch);
    while (int64_t(shape.size()) < rank)
      shape.push_back(pickSize());
  } while (product(shape) > kMaxElements / 4);
  return shape;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// Writes `%n = loom.<op> : <type>`. `type` precedes the result's type: operand types in
/// parentheses, a list, or nothing.
ProgramGenerator::Value ProgramGenerator::emit(const std::string &op, const std::string &type,
                                               Value result) {
  result.name = "%v" + std::to_string(state.next);
  result.used = false;
  std::string own = typeOf(result.element, result.shape);
  state.body += "  " + result.name + " = loom." + op + " : " +
                (type.empty() ? own : type + (type[0] == '(' ? " -> " : ", ") + own) + " loc(\"" +
                prefix + "/n" + std::to_string(state.next++) + "\")\n";
  ++state.program.numOperations;
  return result;
}

ProgramGenerator::Value ProgramGenerator::unary(const std::string &op, const Value &input,
                                                double bound, double error) {
  return emit(op + " " + input.name, "", {"", input.element, input.shape, bound, error});
}

ProgramGenerator::Value ProgramGenerator::binary(const std::string &op, const Value &lhs,
                                                 const Value &rhs, double bound, double error) {
  return emit(op + " " + lhs.name + ", " + rhs.name, "",
              {"", lhs.element, lhs.shape, bound, error});
}

ProgramGenerator::Value ProgramGenerator::splat(const Value &like, double value) {
  // A constant's type follows its value.
  std::string literal =
      like.element == "f32" ? std::to_string(value) : std::to_string(int64_t(value));
  return emit("constant dense<" + literal + ">", "",
              {"", like.element, like.shape, std::abs(value), 0});
}

ProgramGenerator::Value ProgramGenerator::spread(const Value &input,
                                                 const std::vector<int64_t> &shape,
                                                 std::vector<int64_t> dims) {
  return emit("broadcast " + input.name + " dims = " + join(dims),
              "(" + typeOf(input.element, input.shape) + ")",
              {"", input.element, shape, input.bound, input.error});
}

ProgramGenerator::Value ProgramGenerator::add(const Value &lhs, const Value &rhs) {
  double bound = lhs.bound + rhs.bound, error = lhs.error + rhs.error;
  return binary("add", lhs, rhs, bound, error + (error > 0 ? bound * kRounding : 0));
}

ProgramGenerator::Value ProgramGenerator::multiply(const Value &lhs, const Value &rhs) {
  double bound = lhs.bound * rhs.bound;
  double error = lhs.error * rhs.bound + rhs.error * lhs.bound;
  return binary("multiply", lhs, rhs, bound, error + (error > 0 ? bound * kRounding : 0));
}

/// A softmax's derivative is at most 1/2 for each element of the largest difference in a row.
ProgramGenerator::Value ProgramGenerator::softmax(const Value &input, int64_t dim) {
  return emit("softmax " + input.name + " dim = " + std::to_string(dim), "",
              {"", "f32", input.shape, 1, 2 * input.error + 1e-5});
}

//===----------------------------------------------------------------------===//
// Choosing values
//===----------------------------------------------------------------------===//

ProgramGenerator::Value ProgramGenerator::addInput(const std::string &element,
                                                   const std::vector<int64_t> &shape, int64_t low,
                                                   int64_t high) {
  std::string name = prefix + "_x" + std::to_string(state.program.inputs.size());
  state.program.inputs.push_back({name, element, shape, low, high});
  state.program.values.push_back({name, int64_t(shape.size())});
  return {"%" + name, element, shape, double(std::max(std::abs(low), std::abs(high))), 0};
}

ProgramGenerator::Value ProgramGenerator::addWeight(const std::vector<int64_t> &shape) {
  std::string name = prefix + "_w" + std::to_string(state.next), type = typeOf("f32", shape);
  int64_t bytes = product(shape) * 4, offset = 64 * pick(0, (kNumWeightElements * 4 - bytes) / 64);
  state.weights += "loom.weight @" + name + " : " + type +
                   " from <\"\", offset = " + std::to_string(offset) +
                   ", bytes = " + std::to_string(bytes) + ">\n";
  state.program.values.push_back({name, int64_t(shape.size())});
  return emit("get_weight @" + name, "", {"", "f32", shape, 2, 0});
}

ProgramGenerator::Value ProgramGenerator::addParameter(const std::vector<int64_t> &shape) {
  bool hasBatch = !shape.empty() && shape[0] == batch;
  switch (pick(0, 4)) {
  case 0:
  case 1:
    if (!batched || hasBatch)
      return addInput("f32", shape, -3, 3);
    [[fallthrough]];
  case 2:
  case 3:
    // Weights have no batch dimension.
    if (!batched)
      return addWeight(shape);
    [[fallthrough]];
  default:
    if (batched && !hasBatch)
      return addWeight(shape);
    return splat({"", "f32", shape, 0, 0}, pick(-2, 2));
  }
}

size_t ProgramGenerator::pickIndex(const std::string &element) {
  std::vector<size_t> fitting;
  for (size_t i = 0; i < state.values.size(); ++i)
    if (state.values[i].element == element)
      fitting.push_back(i);
  if (fitting.empty()) {
    state.values.push_back(addInput(element, pickShape(pick(1, 3)), -3, 3));
    return state.values.size() - 1;
  }
  // Later values are likelier: programs are deep rather than wide.
  return fitting[std::max(pick(0, fitting.size() - 1), pick(0, fitting.size() - 1))];
}

ProgramGenerator::Value ProgramGenerator::pickLike(const Value &like) {
  std::vector<size_t> fitting;
  for (size_t i = 0; i < state.values.size(); ++i)
    if (state.values[i].element == like.element && state.values[i].shape == like.shape)
      fitting.push_back(i);
  if (fitting.size() > 1 && chance(70))
    return use(fitting[pick(0, fitting.size() - 1)]);
  if (like.element != "f32")
    return addInput(like.element, like.shape, -3, 3);
  // A bias along the last dimension, as in models.
  if (!like.shape.empty() && int64_t(like.shape.size()) > first() && chance(30)) {
    Value bias = addWeight({like.shape.back()});
    return spread(bias, like.shape, {int64_t(like.shape.size()) - 1});
  }
  return addParameter(like.shape);
}

/// Keeps a result whose values are small enough; a rejected step may leave dead operations.
bool ProgramGenerator::keep(const Value &value) {
  bool small = value.error == 0 ? value.bound <= kExactBound
                                : value.bound <= kSmoothBound && value.error <= kMaxError;
  if (!small || product(value.shape) > kMaxElements)
    return false;
  state.values.push_back(value);
  return true;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

bool ProgramGenerator::addUnary() {
  size_t index = pickIndex("f32");
  Value input = use(index);
  const char *smooth[] = {"negate", "abs"}, *jumps[] = {"negate", "abs", "sign", "floor", "ceil"};
  std::string op = input.error == 0 ? jumps[pick(0, 4)] : smooth[pick(0, 1)];
  return keep(unary(op, input, op == "sign" ? 1 : input.bound, input.error));
}

bool ProgramGenerator::addSmooth() {
  size_t index = pickIndex("f32");
  Value input = use(index);
  switch (pick(0, 6)) {
  case 0: {
    if (input.bound > 6)
      return false;
    double bound = std::exp(input.bound);
    return keep(unary("exp", input, bound, bound * (2 * input.error + 2 * kRounding)));
  }
  case 1:
    return keep(unary("tanh", input, 1, input.error + 2e-6));
  case 2:
    return keep(unary("erf", input, 1, 1.2 * input.error + 2e-6));
  case 3:
    return keep(unary("logistic", input, 1, input.error + 2e-6));
  case 4:
    return keep(
        unary("gelu erf", input, input.bound, 1.2 * input.error + 4e-6 * (1 + input.bound)));
  case 5:
    return keep(
        unary("gelu tanh", input, input.bound, 1.2 * input.error + 4e-6 * (1 + input.bound)));
  default: {
    if (input.error > 0)
      return false;
    Value size = unary("abs", input, input.bound, 0);
    return keep(unary("sqrt", size, std::sqrt(input.bound) + 1, (1 + input.bound) * kRounding));
  }
  }
}

bool ProgramGenerator::addBinary() {
  Value lhs = use(pickIndex("f32")), rhs = pickLike(lhs);
  if (chance(20))
    std::swap(lhs, rhs);
  switch (pick(0, 4)) {
  case 0:
  case 1:
    return keep(add(lhs, rhs));
  case 2: {
    Value negated = add(lhs, rhs);
    return keep(
        binary("subtract", negated, rhs, negated.bound + rhs.bound, negated.error + rhs.error));
  }
  case 3:
    return keep(multiply(lhs, rhs));
  default:
    return keep(binary(chance(50) ? "maximum" : "minimum", lhs, rhs, std::max(lhs.bound, rhs.bound),
                       std::max(lhs.error, rhs.error)));
  }
}

/// x / (|y| + 1)
bool ProgramGenerator::addDivide() {
  Value lhs = use(pickIndex("f32")), rhs = pickLike(lhs);
  Value size = unary("abs", rhs, rhs.bound, rhs.error);
  Value positive = binary("add", size, splat(size, 1), size.bound + 1, size.error);
  return keep(
      binary("divide", lhs, positive, lhs.bound, lhs.error + lhs.bound * (rhs.error + kRounding)));
}

/// Compares exact values only: the result must not depend on rounding.
bool ProgramGenerator::addSelect() {
  Value lhs = use(pickIndex("f32")), rhs = pickLike(lhs);
  if (lhs.error > 0 || rhs.error > 0)
    return false;
  const char *directions[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  std::string type = typeOf("f32", lhs.shape);
  Value predicate =
      emit("compare " + std::string(directions[pick(0, 5)]) + " " + lhs.name + ", " + rhs.name,
           "(" + type + ", " + type + ")", {"", "i1", lhs.shape, 1, 0});
  if (chance(20))
    predicate = unary("not", predicate, 1, 0);
  if (chance(30))
    return keep(emit("convert " + predicate.name, "(" + typeOf("i1", lhs.shape) + ")",
                     {"", "f32", lhs.shape, 1, 0}));
  Value otherwise = chance(50) ? rhs : splat(lhs, pick(-2, 2));
  return keep(emit("select " + predicate.name + ", " + lhs.name + ", " + otherwise.name,
                   typeOf("i1", lhs.shape),
                   {"", "f32", lhs.shape, std::max(lhs.bound, otherwise.bound), 0}));
}

bool ProgramGenerator::addInteger() {
  Value lhs = use(pickIndex("i64"));
  if (chance(40))
    return keep(emit("convert " + lhs.name, "(" + typeOf("i64", lhs.shape) + ")",
                     {"", "f32", lhs.shape, lhs.bound, 0}));
  Value rhs = pickLike(lhs);
  switch (pick(0, 2)) {
  case 0:
    return keep(add(lhs, rhs));
  case 1:
    return keep(multiply(lhs, rhs));
  default:
    return keep(
        binary(chance(50) ? "and" : "or", lhs, rhs, 2 * std::max(lhs.bound, rhs.bound) + 2, 0));
  }
}

bool ProgramGenerator::addBroadcast() {
  Value input = use(pickIndex("f32"));
  if (input.shape.size() > 3)
    return false;
  std::vector<int64_t> shape = input.shape, dims = range(0, shape.size());
  int64_t place = pick(first(), shape.size());
  shape.insert(shape.begin() + place, pickSize());
  for (int64_t &dim : dims)
    dim += dim >= place;
  if (product(shape) > kMaxElements)
    return false;
  return keep(spread(input, shape, dims));
}

bool ProgramGenerator::addReshape() {
  Value input = use(pickIndex("f32"));
  std::vector<int64_t> shape = input.shape;
  int64_t count = shape.size(), where = pick(first(), std::max(first(), count - 1));
  if (where >= count) {
    shape.push_back(1);
  } else if (chance(40) && where + 1 < count) {
    shape[where] *= shape[where + 1];
    shape.erase(shape.begin() + where + 1);
  } else if (chance(60)) {
    std::vector<int64_t> divisors;
    for (int64_t i = 2; i < shape[where]; ++i)
      if (shape[where] % i == 0)
        divisors.push_back(i);
    if (divisors.empty() || count > 3)
      return false;
    int64_t divisor = divisors[pick(0, divisors.size() - 1)];
    shape[where] /= divisor;
    shape.insert(shape.begin() + where + 1, divisor);
  } else if (chance(50) && where + 1 < count) {
    // Sizes without common factors, the hard case.
    std::swap(shape[where], shape[where + 1]);
  } else if (count < 4) {
    shape.insert(shape.begin() + where + (batched ? 1 : 0), 1);
  }
  if (shape == input.shape)
    return false;
  return keep(emit("reshape " + input.name, "(" + typeOf(input.element, input.shape) + ")",
                   {"", input.element, shape, input.bound, input.error}));
}

bool ProgramGenerator::addTranspose() {
  Value input = use(pickIndex("f32"));
  std::vector<int64_t> permutation = range(0, input.shape.size()), shape;
  if (int64_t(permutation.size()) - first() < 2)
    return false;
  std::shuffle(permutation.begin() + first(), permutation.end(), random);
  for (int64_t dim : permutation)
    shape.push_back(input.shape[dim]);
  return keep(emit("transpose " + input.name + " " + join(permutation),
                   "(" + typeOf(input.element, input.shape) + ")",
                   {"", input.element, shape, input.bound, input.error}));
}

bool ProgramGenerator::addSlice() {
  Value input = use(pickIndex("f32"));
  std::vector<int64_t> starts, limits, strides, shape;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    int64_t size = input.shape[i];
    bool whole = int64_t(i) < first() || chance(40);
    starts.push_back(whole ? 0 : pick(0, size - 1));
    limits.push_back(whole ? size : pick(starts[i] + 1, size));
    strides.push_back(whole || chance(60) ? 1 : pick(2, 3));
    shape.push_back((limits[i] - starts[i] + strides[i] - 1) / strides[i]);
  }
  if (shape == input.shape)
    return false;
  return keep(emit("slice " + input.name + " " + join(starts) + " to " + join(limits) + " by " +
                       join(strides),
                   "(" + typeOf(input.element, input.shape) + ")",
                   {"", input.element, shape, input.bound, input.error}));
}

bool ProgramGenerator::addConcatenate() {
  Value one = use(pickIndex("f32"));
  if (int64_t(one.shape.size()) <= first())
    return false;
  int64_t dim = pick(first(), one.shape.size() - 1);
  std::vector<Value> parts{one};
  auto fits = [&](const Value &value) {
    std::vector<int64_t> shape = value.shape;
    if (value.element != "f32" || shape.size() != one.shape.size())
      return false;
    shape[dim] = one.shape[dim];
    return shape == one.shape;
  };
  for (size_t i = 0; i < state.values.size() && parts.size() < 3; ++i)
    if (fits(state.values[i]) && chance(60))
      parts.push_back(use(i));
  if (parts.size() < 2) {
    std::vector<int64_t> shape = one.shape;
    shape[dim] = pickSize();
    parts.push_back(addParameter(shape));
  }
  std::shuffle(parts.begin(), parts.end(), random);
  Value result{"", "f32", one.shape, 0, 0};
  result.shape[dim] = 0;
  std::string names, types;
  for (const Value &part : parts) {
    names += (names.empty() ? "" : ", ") + part.name;
    types += (types.empty() ? "" : ", ") + typeOf(part.element, part.shape);
    result.shape[dim] += part.shape[dim];
    result.bound = std::max(result.bound, part.bound);
    result.error = std::max(result.error, part.error);
  }
  return keep(
      emit("concatenate " + names + " dim = " + std::to_string(dim), "(" + types + ")", result));
}

/// Gathers rows of a table, or parts of a value, by indices from an input.
bool ProgramGenerator::addGather() {
  Value table, indices;
  int64_t dim = 0;
  std::vector<int64_t> count = pickShape(batched ? pick(1, 2) : pick(0, 2));
  if (chance(50) || batched) {
    table = chance(70) || batched ? addWeight({pick(2, 16), pickSize()}) : use(pickIndex("f32"));
    if (table.shape.empty())
      return false;
    indices = addInput("i64", count, 0, table.shape[0] - 1);
  } else {
    table = use(pickIndex("f32"));
    if (table.shape.empty())
      return false;
    dim = pick(0, table.shape.size() - 1);
    indices = addInput("i64", count, 0, table.shape[dim] - 1);
  }
  std::vector<int64_t> shape(table.shape.begin(), table.shape.begin() + dim);
  shape.insert(shape.end(), count.begin(), count.end());
  shape.insert(shape.end(), table.shape.begin() + dim + 1, table.shape.end());
  if (shape.size() > 4 || product(shape) > kMaxElements)
    return false;
  return keep(emit("gather " + table.name + ", " + indices.name + " dim = " + std::to_string(dim),
                   "(" + typeOf("f32", table.shape) + ", " + typeOf("i64", count) + ")",
                   {"", "f32", shape, table.bound, table.error}));
}

bool ProgramGenerator::addDot() {
  Value lhs = use(pickIndex("f32"));
  int64_t rank = lhs.shape.size();
  if (rank <= first())
    return false;
  // Roles of the lhs's dimensions: contracted, batch, or free.
  std::vector<int64_t> contract, batchDims, free;
  int64_t must = pick(first(), rank - 1);
  for (int64_t i = 0; i < rank; ++i) {
    if (i == must)
      contract.push_back(i);
    else if (batched && i == 0)
      continue;
    else if (chance(15))
      contract.push_back(i);
    else if (chance(20))
      batchDims.push_back(i);
  }
  // If both sides have the batch, it is a batch dimension of the product.
  bool withBatch = batched && chance(40);
  if (batched && !withBatch)
    batchDims.clear();
  else if (withBatch)
    batchDims.insert(batchDims.begin(), 0);
  for (int64_t i = 0; i < rank; ++i)
    if (std::find(contract.begin(), contract.end(), i) == contract.end() &&
        std::find(batchDims.begin(), batchDims.end(), i) == batchDims.end())
      free.push_back(i);
  // The rhs has the batch dimensions, the contracted ones and at most one free one, in any order.
  struct Dim {
    int64_t size, batch, contract;
  };
  std::vector<Dim> dims;
  for (size_t i = 0; i < batchDims.size(); ++i)
    dims.push_back({lhs.shape[batchDims[i]], int64_t(i), -1});
  for (size_t i = 0; i < contract.size(); ++i)
    dims.push_back({lhs.shape[contract[i]], -1, int64_t(i)});
  if (chance(85))
    dims.push_back({pickSize(), -1, -1});
  std::shuffle(dims.begin() + (withBatch ? 1 : 0), dims.end(), random);
  std::vector<int64_t> shape, rhsBatch(batchDims.size()), rhsContract(contract.size()), result;
  double terms = 1;
  for (int64_t dim : batchDims)
    result.push_back(lhs.shape[dim]);
  for (int64_t dim : free)
    result.push_back(lhs.shape[dim]);
  for (size_t i = 0; i < dims.size(); ++i) {
    shape.push_back(dims[i].size);
    if (dims[i].batch >= 0)
      rhsBatch[dims[i].batch] = i;
    else if (dims[i].contract >= 0)
      rhsContract[dims[i].contract] = i, terms *= dims[i].size;
    else
      result.push_back(dims[i].size);
  }
  if (product(result) > kMaxElements || result.size() > 4 || product(shape) > kMaxElements)
    return false;
  Value rhs = withBatch ? pickLike({"", "f32", shape, 0, 0})
              : batched ? addWeight(shape)
                        : pickLike({"", "f32", shape, 0, 0});
  double bound = terms * lhs.bound * rhs.bound;
  double error = terms * (lhs.error * rhs.bound + rhs.error * lhs.bound);
  return keep(emit("dot_general " + lhs.name + ", " + rhs.name + " batch = " + join(batchDims) +
                       " x " + join(rhsBatch) + " contract = " + join(contract) + " x " +
                       join(rhsContract),
                   "(" + typeOf("f32", lhs.shape) + ", " + typeOf("f32", shape) + ")",
                   {"", "f32", result, bound, error + (error > 0 ? bound * kRounding : 0)}));
}

bool ProgramGenerator::addReduce() {
  Value input = use(pickIndex("f32"));
  std::vector<int64_t> dims, shape;
  double terms = 1;
  for (int64_t i = 0; i < int64_t(input.shape.size()); ++i) {
    if (i >= first() && chance(50)) {
      dims.push_back(i);
      terms *= input.shape[i];
    } else {
      shape.push_back(input.shape[i]);
    }
  }
  if (dims.empty())
    return false;
  const char *kinds[] = {"sum", "sum", "max", "min"};
  std::string kind = kinds[pick(0, 3)];
  double times = kind == "sum" ? terms : 1;
  double error = times * input.error;
  return keep(emit("reduce " + kind + " " + input.name + " dims = " + join(dims),
                   "(" + typeOf("f32", input.shape) + ")",
                   {"", "f32", shape, times * input.bound,
                    error + (error > 0 ? times * input.bound * kRounding : 0)}));
}

bool ProgramGenerator::addSoftmax() {
  Value input = use(pickIndex("f32"));
  if (int64_t(input.shape.size()) <= first() || input.bound > 1e3)
    return false;
  return keep(softmax(input, pick(first(), input.shape.size() - 1)));
}

bool ProgramGenerator::addLayerNorm() {
  Value input = use(pickIndex("f32"));
  if (int64_t(input.shape.size()) <= first() || input.bound > 1e3)
    return false;
  int64_t size = input.shape.back();
  bool isRms = chance(40);
  Value scale = addWeight({size}), bias = !isRms && chance(70) ? addWeight({size}) : Value{};
  std::string vector = typeOf("f32", {size}), type = typeOf("f32", input.shape);
  // The largest divisor is 1 / sqrt(variance + 1/2); the mean's cancellation costs error in
  // proportion to the input.
  double bound = scale.bound * std::sqrt(double(size)) + bias.bound;
  double error =
      scale.bound * 4 * (input.error + (1 + input.bound) * 2 * kRounding) + bound * kRounding;
  return keep(emit((isRms ? "rms_norm " : "layer_norm ") + input.name + ", " + scale.name +
                       (bias.name.empty() ? "" : ", " + bias.name) + " epsilon = 0.5",
                   "(" + type + ", " + vector + (bias.name.empty() ? "" : ", " + vector) + ")",
                   {"", "f32", input.shape, bound, error}));
}

/// Position-dependent values: an index along a dimension, or a literal with different elements.
bool ProgramGenerator::addPosition() {
  Value like = use(pickIndex("f32"));
  int64_t rank = like.shape.size(), dim = pick(first(), std::max<int64_t>(first(), rank - 1));
  if (dim >= rank)
    return false;
  int64_t size = like.shape[dim];
  Value position{"", "f32", {size}, double(size), 0};
  if (chance(60)) {
    position = emit("iota dim = 0", "", position);
  } else {
    std::string list;
    for (int64_t i = 0; i < size; ++i)
      list += (i ? ", " : "") + std::to_string(pick(-4, 4)) + ".0";
    position = emit("constant dense<[" + list + "]>", "", position);
  }
  return keep(add(like, spread(position, like.shape, {dim})));
}

/// softmax(x y) z within the leading dimension: x and y are [b, s, d] and [b, t, d].
bool ProgramGenerator::addAttention() {
  Value query = use(pickIndex("f32"));
  if (query.shape.size() != 3 || query.bound > 100)
    return false;
  int64_t b = query.shape[0], s = query.shape[1], d = query.shape[2], t = pickSize(),
          e = pickSize();
  Value key = addInput("f32", {b, t, d}, -2, 2), value = addInput("f32", {b, t, e}, -2, 2);
  double bound = d * query.bound * 2;
  if (bound > 1e3)
    return false;
  Value scores = emit("dot_general " + query.name + ", " + key.name +
                          " batch = [0] x [0] contract = [2] x [2]",
                      "(" + typeOf("f32", query.shape) + ", " + typeOf("f32", key.shape) + ")",
                      {"",
                       "f32",
                       {b, s, t},
                       bound,
                       d * 2 * query.error + (query.error > 0 ? bound * kRounding : 0)});
  Value weights = softmax(scores, 2);
  return keep(emit("dot_general " + weights.name + ", " + value.name +
                       " batch = [0] x [0] contract = [2] x [1]",
                   "(" + typeOf("f32", weights.shape) + ", " + typeOf("f32", value.shape) + ")",
                   {"", "f32", {b, s, e}, 2, 2 * t * weights.error}));
}

/// gelu(x w1) w2, which tensor parallelism splits by column, then by row.
bool ProgramGenerator::addPerceptron() {
  Value input = use(pickIndex("f32"));
  int64_t rank = input.shape.size();
  if (rank <= first() || input.bound > 100)
    return false;
  auto dot = [&](const Value &lhs, const Value &weight, double error) {
    std::vector<int64_t> shape = lhs.shape;
    shape.back() = weight.shape[1];
    double bound = double(lhs.shape.back()) * lhs.bound * weight.bound;
    return emit("dot_general " + lhs.name + ", " + weight.name + " batch = [] x [] contract = " +
                    join(std::vector<int64_t>{rank - 1}) + " x [0]",
                "(" + typeOf("f32", lhs.shape) + ", " + typeOf("f32", weight.shape) + ")",
                {"", "f32", shape, bound, error});
  };
  int64_t inside = 4 * pick(1, 4);
  Value up = addWeight({input.shape.back(), inside}), down = addWeight({inside, pickSize()});
  double size = double(input.shape.back());
  Value hidden =
      dot(input, up,
          2 * size * input.error + (input.error > 0 ? 2 * size * input.bound * kRounding : 0));
  Value active =
      chance(50)
          ? unary("gelu erf", hidden, hidden.bound, 1.2 * hidden.error + 4e-6 * (1 + hidden.bound))
          : binary("maximum", hidden, splat(hidden, 0), hidden.bound, hidden.error);
  double error = 2 * double(inside) * active.error;
  return keep(
      dot(active, down, error + (error > 0 ? 2 * double(inside) * active.bound * kRounding : 0)));
}

bool ProgramGenerator::addStep() {
  switch (pick(0, 26)) {
  case 0:
    return addUnary();
  case 1:
  case 2:
    return addSmooth();
  case 3:
  case 4:
  case 5:
    return addBinary();
  case 6:
    return addDivide();
  case 7:
    return addSelect();
  case 8:
    return addInteger();
  case 9:
    return addBroadcast();
  case 10:
  case 11:
    return addReshape();
  case 12:
  case 13:
    return addTranspose();
  case 14:
    return addSlice();
  case 15:
    return addConcatenate();
  case 16:
    return addGather();
  case 17:
  case 18:
  case 19:
    return addDot();
  case 20:
  case 21:
    return addReduce();
  case 22:
    return addSoftmax();
  case 23:
    return addLayerNorm();
  case 24:
    return addPosition();
  case 25:
    return addAttention();
  default:
    return addPerceptron();
  }
}

RandomProgram ProgramGenerator::generate() {
  batch = batched ? rows * pick(1, 3) : -1;
  state.values.push_back(addInput("f32", pickShape(pick(1, 3)), -3, 3));
  int64_t steps = pick(3, 12);
  for (int64_t done = 0, tries = 0; done < steps && tries < 100; ++tries) {
    // An abandoned step must leave nothing behind.
    State before = state;
    if (addStep())
      ++done;
    else
      state = std::move(before);
  }
  std::string arguments, results, types, returned;
  for (const RandomInput &input : state.program.inputs)
    arguments += (arguments.empty() ? "" : ", ") + ("%" + input.name) + ": " +
                 typeOf(input.element, input.shape) + describe(input.name, input.shape.size());
  // Unused values become outputs, at least the last one.
  state.values.back().used = false;
  for (const Value &value : state.values) {
    if (value.used || value.element == "i1")
      continue;
    std::string name = prefix + "_y" + std::to_string(state.program.outputs.size());
    std::string type = typeOf(value.element, value.shape), comma = results.empty() ? "" : ", ";
    results += comma + type + describe(name, value.shape.size());
    types += comma + type;
    returned += comma + value.name;
    state.program.outputs.push_back({name, value.error});
    state.program.values.push_back({name, int64_t(value.shape.size())});
  }
  state.program.text = state.weights + "func.func @" + prefix + "(" + arguments + ") -> (" +
                       results + ") attributes {loom.entry = \"" + prefix +
                       "\", loom.dims = {}} {\n" + state.body + "  return " + returned + " : " +
                       types + "\n}\n";
  return state.program;
}
