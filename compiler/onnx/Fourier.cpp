//===- Fourier.cpp - discrete Fourier transforms --------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A transform is a product with a matrix of roots of unity. A long one of a * b points is computed
// from shorter ones: transforms over a for each residue of b, a rotation of each result, and
// transforms over b.
//
// Complex numbers are pairs in the last dimension; real ones may be alone in it.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/OpTable.h"

#include <cmath>

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The longest transform, and the longest that is one product where its length has factors.
static constexpr int64_t kMaxLength = 1 << 20, kMaxProductLength = 256;
/// The most elements of a matrix.
static constexpr int64_t kMaxElements = 1 << 22;

/// The largest divisor of `n` that is at most its root and kMaxProductLength.
static int64_t getFactor(int64_t n) {
  int64_t factor = 1;
  for (int64_t i = 2; i * i <= n && i <= kMaxProductLength; ++i)
    if (n % i == 0)
      factor = i;
  return factor;
}

/// 2 pi i k / n, which needs only the residue of i k.
static double getAngle(int64_t i, int64_t k, int64_t n) {
  return 2 * M_PI * static_cast<double>(i * k % n) / static_cast<double>(n);
}

static Value makeConstant(Node &node, Value like, ArrayRef<int64_t> shape,
                          ArrayRef<double> values) {
  loom::ElementKind kind = *loom::getElementKind(getTensorType(like).getElementType());
  return node.constant(loom::HostTensor::fromDoubles(kind, shape, values));
}

/// Shape `outer` and then `inner`.
static Dims join(ArrayRef<int64_t> outer, ArrayRef<int64_t> inner) {
  Dims shape(outer);
  llvm::append_range(shape, inner);
  return shape;
}

/// Exchanges two dimensions counted from the end.
static Value exchange(Node &node, Value x, int64_t first, int64_t second) {
  if (!x)
    return {};
  int64_t rank = getTensorType(x).getRank();
  Dims order = llvm::to_vector<6>(llvm::seq<int64_t>(0, rank));
  std::swap(order[rank - first], order[rank - second]);
  return node.transpose(x, order);
}

/// `transform`, as one product.
static Value multiply(Node &node, Value x, int64_t bins, int sign) {
  ArrayRef<int64_t> outer = getShape(x).drop_back(2);
  int64_t n = getShape(x)[outer.size()], parts = getShape(x).back();
  if (n * parts * bins * 2 > kMaxElements) {
    node.error() << "a transform of " << n << " points cannot be cut into shorter ones and needs a "
                 << "matrix of " << n * parts * bins * 2 << " elements, more than " << kMaxElements
                 << "; choose a length with small factors (dft_length)";
    return {};
  }
  std::vector<double> matrix(n * parts * bins * 2);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < bins; ++k) {
      double cosine = std::cos(getAngle(i, k, n)), sine = sign * std::sin(getAngle(i, k, n));
      double *real = &matrix[(i * parts * bins + k) * 2];
      real[0] = cosine;
      real[1] = sine;
      if (parts == 1)
        continue;
      double *imaginary = real + bins * 2;
      imaginary[0] = -sine;
      imaginary[1] = cosine;
    }
  Value flat = node.reshape(x, join(outer, {n * parts}));
  Value product = node.matmul(flat, makeConstant(node, x, {n * parts, bins * 2}, matrix));
  return node.reshape(product, join(outer, {bins, 2}));
}

/// Multiplies element [..., i, k] of x, [..., b, a, 2], by e^(sign 2 pi i k / (a b)).
static Value turn(Node &node, Value x, int sign) {
  if (!x)
    return {};
  int64_t last = getTensorType(x).getRank() - 1, a = getShape(x)[last - 1],
          b = getShape(x)[last - 2];
  std::vector<double> cosines, sines;
  for (int64_t i = 0; i < b; ++i)
    for (int64_t k = 0; k < a; ++k) {
      cosines.push_back(std::cos(getAngle(i, k, a * b)));
      sines.push_back(sign * std::sin(getAngle(i, k, a * b)));
    }
  Value cosine = makeConstant(node, x, {b, a, 1}, cosines);
  Value sine = makeConstant(node, x, {b, a, 1}, sines);
  Value real = node.slice(x, last, 0, 1), imaginary = node.slice(x, last, 1, 2);
  auto times = [&](Value y, Value factor) { return node.binary<loom::MultiplyOp>(y, factor); };
  return node.concatenate(
      {node.binary<loom::SubtractOp>(times(real, cosine), times(imaginary, sine)),
       node.binary<loom::AddOp>(times(real, sine), times(imaginary, cosine))},
      last);
}

/// For x, [..., n, 1 or 2], the first `bins` of the n sums over i of x[i] e^(sign 2 pi i k / n),
/// [..., bins, 2]. Null, with an error, if n is too large.
static Value transform(Node &node, Value x, int64_t bins, int sign) {
  if (!x)
    return {};
  Dims outer(getShape(x).drop_back(2));
  int64_t n = getShape(x)[outer.size()], parts = getShape(x).back();
  int64_t a = n <= kMaxProductLength ? 1 : getFactor(n), b = n / a;
  if (a == 1)
    return multiply(node, x, bins, sign);
  // Point b i + j is row i, column j; result k + a l comes from the transform over i at k.
  Value rows = exchange(node, node.reshape(x, join(outer, {a, b, parts})), 3, 2);
  rows = rows ? turn(node, multiply(node, rows, a, sign), sign) : rows;
  Value columns = transform(node, exchange(node, rows, 3, 2), b, sign);
  Value result = node.reshape(exchange(node, columns, 3, 2), join(outer, {n, 2}));
  return node.slice(result, outer.size(), 0, bins);
}

/// The first `size` elements of dimension `dim`, with zeros for those it lacks.
static Value resize(Node &node, Value x, int64_t dim, int64_t size) {
  int64_t given = getShape(x)[dim];
  if (size <= given)
    return node.slice(x, dim, 0, size);
  Dims shape(getShape(x));
  shape[dim] = size - given;
  return node.concatenate({x, node.splat(getTensorType(x).clone(shape), 0)}, dim);
}

/// All n points, [..., n, 2], of a conjugate-symmetric spectrum from its first n / 2 + 1.
static Value mirror(Node &node, Value x, int64_t n) {
  int64_t dim = getTensorType(x).getRank() - 2;
  x = resize(node, x, dim, n / 2 + 1);
  Dims places;
  std::vector<double> signs;
  for (int64_t k = 0; k < n; ++k) {
    bool isGiven = k <= n / 2;
    places.push_back(isGiven ? k : n - k);
    signs.insert(signs.end(), {1.0, isGiven ? 1.0 : -1.0});
  }
  Value points = node.gather(x, node.ints(places), dim);
  return points ? node.binary<loom::MultiplyOp>(points, makeConstant(node, x, {n, 2}, signs))
                : points;
}

/// An integer held in a double, clamped to +-2^62.
static int64_t toInteger(double number) {
  return static_cast<int64_t>(std::clamp(number, -0x1p62, 0x1p62));
}

/// `number` as an integer of at least 1; nullopt, with an error, if it is not one or is too large.
static std::optional<int64_t> toLength(Node &node, StringRef name, double number) {
  if (number >= 1 && number <= static_cast<double>(kMaxLength) && number == std::floor(number))
    return static_cast<int64_t>(number);
  node.error() << name << " is " << toInteger(number) << ", expected 1 to " << kMaxLength;
  return std::nullopt;
}

/// Checks that x holds real or complex floats and converts it to the type of the computation: f32
/// for 16 bits. Null, with an error, if it does not.
static Value prepare(Node &node, Value x, int64_t minRank) {
  if (!x)
    return {};
  Type element = getTensorType(x).getElementType();
  int64_t rank = getTensorType(x).getRank();
  if (!isa<FloatType>(element) || rank < minRank ||
      (getShape(x).back() != 1 && getShape(x).back() != 2)) {
    node.error() << "input " << x.getType() << " is not of real or complex floats, [..., 1] or "
                 << "[..., 2]";
    return {};
  }
  return node.widen(x);
}

/// The dimension to transform: an operand since version 20, an attribute before.
static std::optional<int64_t> getAxis(Node &node, int64_t rank) {
  double axis = static_cast<double>(node.intAttribute("axis", 1));
  if (node.getOpset() >= 20) {
    FailureOr<std::optional<double>> given = node.numberOperand(2, "axis");
    if (failed(given))
      return std::nullopt;
    axis = given->value_or(-2);
  }
  double limit = static_cast<double>(rank);
  if (axis < -limit || axis >= limit - 1 || axis == -1) {
    node.error() << "axis " << toInteger(axis) << " is not a dimension of a tensor of rank " << rank
                 << " before its last";
    return std::nullopt;
  }
  auto dim = static_cast<int64_t>(axis);
  return dim < 0 ? dim + rank : dim;
}

static LogicalResult importDft(Node &node) {
  Value x = prepare(node, node.operand(0), 2);
  FailureOr<std::optional<double>> length = node.numberOperand(1, "dft_length");
  if (!x || failed(length))
    return failure();
  int64_t rank = getTensorType(x).getRank(), parts = getShape(x).back();
  std::optional<int64_t> axis = getAxis(node, rank);
  if (!axis)
    return failure();
  bool inverse = node.intAttribute("inverse", 0) != 0, half = node.intAttribute("onesided", 0) != 0;
  if (half && (parts == 2) != inverse)
    return node.error() << "onesided is of a real input, or of a complex one that is transformed "
                        << "back, not of " << toString(getShape(x));
  int64_t size = getShape(x)[*axis], points = half && inverse ? 2 * (size - 1) : size;
  std::optional<int64_t> n =
      toLength(node, "dft_length", length->value_or(static_cast<double>(points)));
  if (!n)
    return failure();
  x = exchange(node, x, rank - *axis, 2);
  x = half && inverse ? mirror(node, x, *n) : resize(node, x, rank - 2, *n);
  x = transform(node, x, half && !inverse ? *n / 2 + 1 : *n, inverse ? 1 : -1);
  if (x && inverse)
    x = node.binary<loom::MultiplyOp>(x, 1 / static_cast<double>(*n));
  if (x && half && inverse)
    x = node.slice(x, rank - 1, 0, 1);
  x = exchange(node, x, rank - *axis, 2);
  return node.setResult(node.convert(x, getTensorType(node.operand(0)).getElementType()));
}

/// The frames' length: given, the window's or the signal's. Nothing, with an error, if they
/// contradict each other.
static std::optional<int64_t> getFrameLength(Node &node, int64_t samples) {
  FailureOr<std::optional<double>> given = node.numberOperand(3, "frame_length");
  if (failed(given))
    return std::nullopt;
  Value window = node.hasOperand(2) ? node.operand(2) : Value();
  if (window && getTensorType(window).getRank() != 1) {
    node.error() << "window " << toString(getShape(window)) << " is not of rank 1";
    return std::nullopt;
  }
  int64_t otherwise = window ? getShape(window)[0] : samples;
  std::optional<int64_t> length =
      toLength(node, "frame_length", given->value_or(static_cast<double>(otherwise)));
  if (!length)
    return std::nullopt;
  if (*length > samples || (window && *length != otherwise)) {
    node.error() << "frames of " << *length << " samples do not fit "
                 << (*length > samples ? "a signal of " + std::to_string(samples)
                                       : "a window of " + std::to_string(otherwise));
    return std::nullopt;
  }
  return length;
}

/// The signal, [batch, samples, 1 or 2], in frames [batch, frames, length, 1 or 2].
static LogicalResult importStft(Node &node) {
  Value x = prepare(node, node.operand(0), 3);
  FailureOr<std::optional<double>> given = node.numberOperand(1, "frame_step");
  if (!x || !node.operand(1) || failed(given))
    return failure();
  if (getTensorType(x).getRank() != 3)
    return node.error() << "signal " << toString(getShape(x)) << " is not [batch, samples, 1 or 2]";
  int64_t batch = getShape(x)[0], samples = getShape(x)[1], parts = getShape(x)[2];
  std::optional<int64_t> step = toLength(node, "frame_step", **given);
  std::optional<int64_t> length = step ? getFrameLength(node, samples) : step;
  if (!length)
    return failure();
  bool half = node.intAttribute("onesided", 1) != 0;
  if (half && parts == 2)
    return node.error() << "onesided is of a real signal, not of " << toString(getShape(x));
  auto type = getTensorType(x).clone(
      ArrayRef<int64_t>{batch, (samples - *length) / *step + 1, parts, *length});
  Value frames =
      exchange(node,
               node.emit<loom::WindowOp>(type, x, ArrayRef<int64_t>{1}, ArrayRef<int64_t>{*length},
                                         ArrayRef<int64_t>{*step}, ArrayRef<int64_t>{1}),
               2, 1);
  if (node.hasOperand(2)) {
    Value window = node.convert(node.operand(2), getTensorType(x).getElementType());
    frames = node.binary<loom::MultiplyOp>(frames, node.reshape(window, {*length, 1}));
  }
  Value result = transform(node, frames, half ? *length / 2 + 1 : *length, -1);
  return node.setResult(node.convert(result, getTensorType(node.operand(0)).getElementType()));
}

ArrayRef<OpRule> onnx_import::getFourierRules() {
  static constexpr OpRule rules[] = {
      {"DFT", 17, 28, importDft},
      {"STFT", 17, 28, importStft},
  };
  return rules;
}
