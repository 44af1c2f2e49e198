//===- Recurrent.cpp - RNN, GRU and LSTM ----------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The product of all steps' inputs with W is one matrix product before the loop; each step then
// needs only the product of the state with R and the cell's arithmetic.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Recurrent.h"

#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Parts.h"
#include "compiler/onnx/Quantization.h"
#include "dialects/loom/Derivatives.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

LogicalResult onnx_import::checkUnrolled(Node &node, int64_t steps) {
  constexpr int64_t kMaxUnrolled = 1024;
  if (steps <= kMaxUnrolled)
    return success();
  return node.error() << "a sequence of " << steps << " steps is longer than the " << kMaxUnrolled
                      << " that can be unrolled; split it and pass the state on";
}

Value onnx_import::runRecurrence(Node &node, Value x, bool reverse, Value lengths,
                                 SmallVectorImpl<Value> &state, RecurrentCell cell) {
  if (!x || failed(checkUnrolled(node, getShape(x)[0])))
    return {};
  int64_t steps = getShape(x)[0], batch = getShape(x)[1], size = getShape(x)[2];
  SmallVector<Value> outputs(steps);
  for (int64_t i = 0; i < steps; ++i) {
    int64_t at = reverse ? steps - 1 - i : i;
    Value input = node.reshape(node.slice(x, 0, at, at + 1), {batch, size});
    SmallVector<Value> before(state.begin(), state.end());
    Value output = cell(input, state);
    if (lengths) {
      Value runs = node.reshape(node.compare(loom::Direction::GT, lengths, static_cast<double>(at)),
                                {batch, 1});
      for (auto [now, old] : llvm::zip_equal(state, before))
        now = node.select(runs, now, old);
      output = node.select(runs, output, node.splatLike(output, 0));
    }
    if (!output)
      return {};
    outputs[at] = node.reshape(output, {1, batch, getShape(output)[1]});
  }
  return node.concatenate(outputs, 0);
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

namespace {

struct Activation {
  std::string name;
  double alpha = 0, beta = 0;
};

struct ActivationKind {
  StringLiteral name;
  bool hasAlpha = false, hasBeta = false;
  double alpha = 0, beta = 0;
};

constexpr ActivationKind kActivations[] = {
    {"sigmoid"},
    {"tanh"},
    {"relu"},
    {"softsign"},
    {"softplus"},
    {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01, 0},
    {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1},
    {"hardsigmoid", true, true, 0.2, 0.5},
    {"elu", true, false, 1, 0},
};

Value leaky(Node &node, Value x, Value negative) {
  return node.select(node.compare(loom::Direction::GE, x, 0.0), x, negative);
}

Value softplus(Node &node, Value x) {
  Value tail = node.unary<loom::ExpOp>(node.unary<loom::NegateOp>(node.unary<loom::AbsOp>(x)));
  return node.binary<loom::AddOp>(node.binary<loom::MaximumOp>(x, 0.0),
                                  node.unary<loom::LogOp>(node.binary<loom::AddOp>(tail, 1.0)));
}

Value activate(Node &node, const Activation &activation, Value x) {
  double alpha = activation.alpha, beta = activation.beta;
  auto times = [&](Value y, double factor) {
    return factor == 1 ? y : node.binary<loom::MultiplyOp>(y, factor);
  };
  auto plus = [&](Value y, double offset) {
    return offset == 0 ? y : node.binary<loom::AddOp>(y, offset);
  };
  StringRef name = activation.name;
  if (name == "sigmoid")
    return node.unary<loom::LogisticOp>(x);
  if (name == "tanh")
    return node.unary<loom::TanhOp>(x);
  if (name == "relu")
    return node.markTies(node.binary<loom::MaximumOp>(x, 0.0), loom::kTiesToRhs);
  if (name == "softsign")
    return node.binary<loom::DivideOp>(x, plus(node.unary<loom::AbsOp>(x), 1));
  if (name == "softplus")
    return softplus(node, x);
  if (name == "affine")
    return plus(times(x, alpha), beta);
  if (name == "leakyrelu")
    return leaky(node, x, times(x, alpha));
  if (name == "thresholdedrelu")
    return node.select(node.compare(loom::Direction::GE, x, alpha), x, node.splatLike(x, 0));
  if (name == "scaledtanh")
    return times(node.unary<loom::TanhOp>(times(x, beta)), alpha);
  if (name == "hardsigmoid")
    return hardSigmoid(node, x, alpha, beta);
  // elu
  Value low = node.unary<loom::ExpOp>(node.binary<loom::MinimumOp>(x, 0.0));
  return leaky(node, x, times(plus(low, -1), alpha));
}

const ActivationKind *findActivation(Node &node, StringRef name) {
  const auto *kind = llvm::find_if(
      kActivations, [&](const ActivationKind &kind) { return kind.name.equals_insensitive(name); });
  if (kind != std::end(kActivations))
    return kind;
  node.error() << "activation '" << name << "' is not supported";
  return nullptr;
}

} // namespace

Value onnx_import::activateByName(Node &node, StringRef name, std::optional<double> alpha,
                                  std::optional<double> beta, Value x) {
  const ActivationKind *kind = x ? findActivation(node, name) : nullptr;
  return kind ? activate(node,
                         {kind->name.str(), alpha.value_or(kind->alpha), beta.value_or(kind->beta)},
                         x)
              : Value();
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

namespace {

/// The common part of RNN, GRU and LSTM, which have `gates` rows of weights per hidden number.
class RecurrentImport {
public:
  RecurrentImport(Node &node, int64_t gates, bool hasCellState, ArrayRef<StringRef> defaults)
      : node(node), gates(gates), hasCellState(hasCellState), defaults(defaults) {}
  virtual ~RecurrentImport() = default;

  LogicalResult run() {
    if (failed(readShapes()) || failed(readActivations()) || failed(readLengths()))
      return failure();
    SmallVector<Value> outputs, hidden, cells;
    for (int64_t i = 0; i < directions; ++i) {
      direction = i;
      SmallVector<Value> state;
      if (failed(readDirection(state)))
        return failure();
      Value output =
          runRecurrence(node, input, i == 1 || startsReversed, lengths, state,
                        [&](Value gate, MutableArrayRef<Value> now) { return step(gate, now); });
      if (!output)
        return failure();
      outputs.push_back(node.reshape(output, {steps, 1, batch, size}));
      hidden.push_back(node.reshape(state[0], {1, batch, size}));
      if (hasCellState)
        cells.push_back(node.reshape(state[1], {1, batch, size}));
    }
    return setResults(outputs, hidden, cells);
  }

protected:
  /// Computes one step: replaces `state` and returns the output. `gate` is x W + the bias, [batch,
  /// gates * size].
  virtual Value step(Value gate, MutableArrayRef<Value> state) = 0;

  Value getGate(Value all, int64_t index) const {
    return node.slice(all, 1, index * size, (index + 1) * size);
  }
  Value add(Value a, Value b) const { return node.binary<loom::AddOp>(a, b); }
  Value multiply(Value a, Value b) const { return node.binary<loom::MultiplyOp>(a, b); }
  /// [batch, n] times weight [m, n] transposed.
  Value project(Value x, Value weight) const {
    return node.dotGeneral(x, weight, {}, {}, {1}, {1});
  }
  /// Fails unless W and R, operands 1 and 2, have the shapes they need. Sets `size`.
  virtual LogicalResult readWeightShapes() {
    ArrayRef<int64_t> weight = getShape(node.operand(2));
    size = weight.empty() ? 0 : weight.back();
    return failure(failed(checkHiddenSize()) ||
                   failed(checkShape(1, {directions, gates * size, getShape(x)[2]})) ||
                   failed(checkShape(2, {directions, gates * size, size})));
  }
  /// Reads the current direction's R. Returns x times its W, [steps, batch, gates * size].
  virtual Value readWeights() {
    recurrence = takeDirection(node.operand(2), {gates * size, size});
    Value weight = takeDirection(node.operand(1), {gates * size, getShape(x)[2]});
    return node.dotGeneral(x, weight, {}, {}, {2}, {1});
  }

  LogicalResult checkHiddenSize() {
    if (size >= 1 && size <= (int64_t(1) << 32) && node.intAttribute("hidden_size", size) == size)
      return success();
    return node.error() << "hidden_size " << node.intAttribute("hidden_size", size) << " and R of "
                        << toString(getShape(node.operand(2))) << " do not fit together";
  }

  LogicalResult checkShape(unsigned index, ArrayRef<int64_t> wanted, bool isSameType = true) {
    if (!node.hasOperand(index))
      return success();
    ArrayRef<int64_t> shape = getShape(node.operand(index));
    if (shape != wanted)
      return node.error() << "input " << index << " is " << toString(shape) << ", expected "
                          << toString(wanted);
    return isSameType ? node.checkSameElementType(x, node.operand(index)) : success();
  }

  Value takeDirection(Value all, ArrayRef<int64_t> shape) const {
    return node.reshape(node.slice(all, 0, direction, direction + 1), shape);
  }
  /// Applies function `index` of this direction to clipped x.
  Value apply(unsigned index, Value x) const {
    if (clip > 0)
      x = node.binary<loom::MaximumOp>(node.binary<loom::MinimumOp>(x, clip), -clip);
    return applyUnclipped(index, x);
  }
  Value applyUnclipped(unsigned index, Value x) const {
    return activate(node, activations[direction * defaults.size() + index], x);
  }

  Node &node;
  int64_t gates;
  bool hasCellState;
  ArrayRef<StringRef> defaults;
  int64_t steps = 0, batch = 0, size = 0, directions = 1, direction = 0;
  Value x; // [steps, batch, inputs]
  /// Weights of the current direction: [gates * size, size], [gates * size], [3 * size].
  Value recurrence, recurrenceBias, peephole;
  /// Whether the step adds the recurrence's bias; otherwise the input's product includes it.
  virtual bool keepsRecurrenceBias() const { return false; }

private:
  LogicalResult readShapes() {
    x = node.operand(0);
    if (!x || !node.operand(1) || !node.operand(2))
      return failure();
    std::string way = node.stringAttribute("direction", "forward");
    startsReversed = way == "reverse";
    directions = way == "bidirectional" ? 2 : 1;
    if (way != "forward" && way != "reverse" && way != "bidirectional")
      return node.error() << "direction '" << way
                          << "' is not one of forward, reverse, bidirectional";
    isBatchFirst = node.intAttribute("layout", 0) != 0;
    clip = node.floatAttribute("clip", 0);
    if (getShape(x).size() != 3)
      return node.error() << "expected an input of rank 3, got " << toString(getShape(x));
    if (isBatchFirst)
      x = node.transpose(x, {1, 0, 2});
    steps = getShape(x)[0], batch = getShape(x)[1];
    if (steps == 0)
      return node.error() << "input " << toString(getShape(node.operand(0))) << " has no steps";
    return failure(failed(readWeightShapes()) || failed(checkOperands()));
  }

  LogicalResult checkOperands() {
    int64_t rows = gates * size;
    Dims state = isBatchFirst ? Dims{batch, directions, size} : Dims{directions, batch, size};
    return failure(failed(checkShape(3, {directions, 2 * rows})) || failed(checkShape(5, state)) ||
                   (hasCellState && (failed(checkShape(6, state)) ||
                                     failed(checkShape(7, {directions, 3 * size})))));
  }

  LogicalResult readActivations() {
    std::vector<std::string> names;
    for (int64_t i = 0; i < directions; ++i)
      llvm::append_range(names,
                         llvm::map_range(defaults, [](StringRef name) { return name.str(); }));
    if (auto given = node.stringsAttribute("activations"); given && !given->empty()) {
      // Old files give the functions of one direction for both.
      if (given->size() == defaults.size() && directions == 2)
        given->insert(given->end(), given->begin(), given->begin() + defaults.size());
      if (given->size() != names.size())
        return node.error() << "has " << given->size() << " activations, expected " << names.size();
      names = *given;
    }
    std::vector<double> alphas =
        node.floatsAttribute("activation_alpha").value_or(std::vector<double>());
    std::vector<double> betas =
        node.floatsAttribute("activation_beta").value_or(std::vector<double>());
    size_t alpha = 0, beta = 0;
    for (const std::string &name : names) {
      const ActivationKind *kind = findActivation(node, name);
      if (!kind)
        return failure();
      Activation activation{kind->name.str(), kind->alpha, kind->beta};
      if (kind->hasAlpha && alpha < alphas.size())
        activation.alpha = alphas[alpha++];
      if (kind->hasBeta && beta < betas.size())
        activation.beta = betas[beta++];
      activations.push_back(activation);
    }
    return success();
  }

  /// If all lengths are the whole sequence, no masks are needed.
  LogicalResult readLengths() {
    if (!node.hasOperand(4))
      return success();
    if (getShape(node.operand(4)) != ArrayRef<int64_t>{batch})
      return node.error() << "sequence_lens is " << toString(getShape(node.operand(4)))
                          << ", expected [" << batch << "]";
    if (auto known = node.constantOperand(4))
      if (llvm::all_of(known->toInts(), [&](int64_t length) { return length == steps; }))
        return success();
    lengths = node.convert(node.operand(4), IntegerType::get(node.getContext(), 64));
    return success(bool(lengths));
  }

  Value takeState(unsigned index) const {
    Type element = getTensorType(x).getElementType();
    if (!node.hasOperand(index))
      return node.splat(RankedTensorType::get({batch, size}, element), 0);
    Value all = node.operand(index);
    return takeDirection(isBatchFirst ? node.transpose(all, {1, 0, 2}) : all, {batch, size});
  }

  LogicalResult readDirection(SmallVector<Value> &state) {
    int64_t rows = gates * size;
    input = readWeights();
    recurrenceBias = {};
    if (node.hasOperand(3)) {
      Value both = takeDirection(node.operand(3), {2 * rows});
      Value bias = node.slice(both, 0, 0, rows);
      recurrenceBias = node.slice(both, 0, rows, 2 * rows);
      if (!keepsRecurrenceBias())
        bias = add(bias, recurrenceBias);
      input = add(input, bias);
    }
    peephole =
        hasCellState && node.hasOperand(7) ? takeDirection(node.operand(7), {3 * size}) : Value();
    state.push_back(takeState(5));
    if (hasCellState)
      state.push_back(takeState(6));
    return success(input && llvm::all_of(state, [](Value v) { return bool(v); }));
  }

  LogicalResult setResults(ArrayRef<Value> outputs, ArrayRef<Value> hidden, ArrayRef<Value> cells) {
    Value y = node.concatenate(outputs, 1), last = node.concatenate(hidden, 0);
    if (isBatchFirst) {
      y = node.transpose(y, {2, 0, 1, 3});
      last = node.transpose(last, {1, 0, 2});
    }
    if (failed(node.setResult(0, y)) || failed(node.setResult(1, last)))
      return failure();
    if (!hasCellState)
      return success();
    Value cell = node.concatenate(cells, 0);
    return node.setResult(2, isBatchFirst ? node.transpose(cell, {1, 0, 2}) : cell);
  }

  Value input, lengths;
  bool startsReversed = false, isBatchFirst = false;
  double clip = 0;
  std::vector<Activation> activations;
};

//===----------------------------------------------------------------------===//
// Cells
//===----------------------------------------------------------------------===//

/// h = f(x W + h R + b).
class RnnImport final : public RecurrentImport {
public:
  explicit RnnImport(Node &node) : RecurrentImport(node, 1, false, kDefaults) {}

private:
  Value step(Value gate, MutableArrayRef<Value> state) override {
    return state[0] = apply(0, add(gate, project(state[0], recurrence)));
  }
  static constexpr StringRef kDefaults[] = {"Tanh"};
};

/// Gates are update (z), reset (r), hidden: h = (1 - z) * g(...) + z * h.
class GruImport final : public RecurrentImport {
public:
  explicit GruImport(Node &node)
      : RecurrentImport(node, 3, false, kDefaults),
        isLinearFirst(node.intAttribute("linear_before_reset", 0) != 0) {}

private:
  bool keepsRecurrenceBias() const override { return true; }

  Value step(Value gate, MutableArrayRef<Value> state) override {
    Value hidden = state[0];
    // Rows of the hidden gate are separate, because the reset may come before the product.
    Value gateRows = node.slice(recurrence, 0, 0, 2 * size);
    Value hiddenRows = node.slice(recurrence, 0, 2 * size, 3 * size);
    Value gateBias = recurrenceBias ? node.slice(recurrenceBias, 0, 0, 2 * size) : Value();
    Value hiddenBias = recurrenceBias ? node.slice(recurrenceBias, 0, 2 * size, 3 * size) : Value();
    auto biased = [&](Value value, Value bias) { return bias ? add(value, bias) : value; };
    Value both = biased(project(hidden, gateRows), gateBias);
    Value update = apply(0, add(getGate(gate, 0), getGate(both, 0)));
    Value reset = apply(0, add(getGate(gate, 1), getGate(both, 1)));
    Value inner = isLinearFirst ? multiply(reset, biased(project(hidden, hiddenRows), hiddenBias))
                                : biased(project(multiply(reset, hidden), hiddenRows), hiddenBias);
    Value fresh = apply(1, add(getGate(gate, 2), inner));
    Value rest = node.binary<loom::SubtractOp>(node.splatLike(update, 1), update);
    return state[0] = add(multiply(rest, fresh), multiply(update, hidden));
  }
  static constexpr StringRef kDefaults[] = {"Sigmoid", "Tanh"};
  bool isLinearFirst;
};

/// Gates are input, output, forget, cell: c = f * c + i * g(...), h = o * h(c).
class LstmImport : public RecurrentImport {
public:
  explicit LstmImport(Node &node)
      : RecurrentImport(node, 4, true, kDefaults),
        isCoupled(node.intAttribute("input_forget", 0) != 0) {}

protected:
  /// The state times R, [batch, gates * size].
  virtual Value projectState(Value state) { return project(state, recurrence); }

private:
  Value step(Value gate, MutableArrayRef<Value> state) override {
    Value all = add(gate, projectState(state[0]));
    // Peepholes are of input, output, forget, in that order.
    auto peek = [&](int64_t index, Value cell) -> Value {
      Value value = getGate(all, index);
      if (!peephole)
        return value;
      Value weight = node.slice(peephole, 0, index * size, (index + 1) * size);
      return add(value, multiply(weight, cell));
    };
    Value input = apply(0, peek(0, state[1]));
    Value forget = isCoupled ? node.binary<loom::SubtractOp>(node.splatLike(input, 1), input)
                             : apply(0, peek(2, state[1]));
    Value fresh = apply(1, getGate(all, 3));
    state[1] = add(multiply(forget, state[1]), multiply(input, fresh));
    Value output = apply(0, peek(1, state[1]));
    // The last function is not clipped.
    return state[0] = multiply(output, applyUnclipped(2, state[1]));
  }
  static constexpr StringRef kDefaults[] = {"Sigmoid", "Tanh", "Tanh"};
  bool isCoupled;
};

/// The same with W and R of bytes, [directions, inputs or size, gates * size], whose scales and
/// zero points, one for each direction or column, are operands 8 to 11. The input, and the state of
/// each step, are quantized by their range.
class QuantizedLstmImport final : public LstmImport {
public:
  using LstmImport::LstmImport;

private:
  struct Matrix {
    Value centred, scale;
  };

  LogicalResult readWeightShapes() override {
    ArrayRef<int64_t> weight = getShape(node.operand(2));
    size = weight.size() == 3 ? weight[1] : 0;
    return failure(
        failed(checkHiddenSize()) ||
        failed(checkShape(1, {directions, getShape(x)[2], gates * size}, /*isSameType=*/false)) ||
        failed(checkShape(2, {directions, size, gates * size}, /*isSameType=*/false)));
  }

  Value readWeights() override {
    recurrent = readMatrix(2, 10);
    FailureOr<Quantized> bytes = quantizeByRange(node, x);
    return failed(bytes) ? Value() : multiply(*bytes, readMatrix(1, 8));
  }

  Value projectState(Value state) override {
    FailureOr<Quantized> bytes = quantizeByRange(node, state);
    return failed(bytes) ? Value() : multiply(*bytes, recurrent);
  }

  /// A scale or zero point of the current direction: one number, or one for each column.
  Value takeParameter(unsigned index) const {
    Value all = node.operand(index);
    if (!all)
      return {};
    if (getShape(all) == ArrayRef<int64_t>{directions})
      return takeDirection(all, {});
    if (getShape(all) == ArrayRef<int64_t>{directions, gates * size})
      return takeDirection(all, {gates * size});
    node.error() << "input " << index << " is " << toString(getShape(all)) << ", expected "
                 << toString({directions}) << " or " << toString({directions, gates * size});
    return {};
  }

  Matrix readMatrix(unsigned index, unsigned scale) const {
    Type i32 = IntegerType::get(node.getContext(), 32);
    Value factor = takeParameter(scale), point = factor ? takeParameter(scale + 1) : Value();
    Value weight = takeDirection(node.operand(index), getShape(node.operand(index)).drop_front());
    return {node.binary<loom::SubtractOp>(node.convert(weight, i32), node.convert(point, i32)),
            factor};
  }

  Value multiply(const Quantized &bytes, const Matrix &matrix) const {
    Value product = node.matmul(bytes.centred(node), matrix.centred);
    return node.binary<loom::MultiplyOp>(node.convert(product, Float32Type::get(node.getContext())),
                                         node.binary<loom::MultiplyOp>(bytes.scale, matrix.scale));
  }

  Matrix recurrent;
};

} // namespace

template <typename ImportT> static LogicalResult importRecurrent(Node &node) {
  return ImportT(node).run();
}

ArrayRef<OpRule> onnx_import::getRecurrentRules() {
  static constexpr OpRule rules[] = {
      {"GRU", 7, 28, importRecurrent<GruImport>},
      {"LSTM", 7, 28, importRecurrent<LstmImport>},
      {"DynamicQuantizeLSTM", 1, 1, importRecurrent<QuantizedLstmImport>, "com.microsoft"},
      {"RNN", 7, 28, importRecurrent<RnnImport>},
  };
  return rules;
}
