//===- WindowPullbacks.cpp - pullbacks of windows and convolutions --------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The gradients of a convolution are convolutions (Dumoulin and Visin 2016, section 4) that have
// strides as dilations. Padding may become negative: elements are taken off.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/Padding.h"
#include "passes/differentiate/Pullbacks.h"

using namespace mlir;
using namespace gridloom;
using dist::ReductionKind;
using loom::Direction;

/// Larger windows have no pullback, which would need an operation for each element of a window.
static constexpr int64_t kMaxWindow = 1024;

//===----------------------------------------------------------------------===//
// convolution
//===----------------------------------------------------------------------===//

namespace {
/// Parameters of the spatial dimensions of a convolution.
struct Spatial {
  SmallVector<int64_t> strides, low, high, inputDilations, dilations;
};
} // namespace

static Term convolve(Term input, Term weight, const Spatial &at, RankedTensorType type,
                     int64_t groups, bool tf32) {
  bool isCropped = llvm::any_of(llvm::concat<const int64_t>(at.low, at.high),
                                [](int64_t number) { return number < 0; });
  if (!isCropped)
    return input.emit<loom::ConvolutionOp>(type, input, weight, at.strides, at.low, at.high,
                                           at.inputDilations, at.dilations, groups, tf32);
  SmallVector<int64_t> low(2, 0), high(2, 0), interior(2, 0);
  llvm::append_range(low, at.low);
  llvm::append_range(high, at.high);
  for (int64_t dilation : at.inputDilations)
    interior.push_back(dilation - 1);
  SmallVector<int64_t> none(at.low.size(), 0), ones(at.low.size(), 1);
  return input.emit<loom::ConvolutionOp>(type, input.pad(low, high, interior), weight, at.strides,
                                         none, none, ones, at.dilations, groups, tf32);
}

/// [first, second, rest...] with dimension `dim`, of g * n elements, split into g and n.
static Term splitDim(Term x, int64_t dim, int64_t groups) {
  SmallVector<int64_t> shape(x.getShape());
  shape[dim] /= groups;
  shape.insert(shape.begin() + dim, groups);
  return x.reshape(shape);
}

/// Permutes the first dimensions; the others stay.
static Term permute(Term x, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> all(permutation);
  for (auto dim = static_cast<int64_t>(all.size()); dim < x.getRank(); ++dim)
    all.push_back(dim);
  return x.transpose(all);
}

/// Merges dimension `dim` and the one after it.
static Term mergeDims(Term x, int64_t dim) {
  SmallVector<int64_t> shape(x.getShape());
  shape[dim] *= shape[dim + 1];
  shape.erase(shape.begin() + dim + 1);
  return x.reshape(shape);
}

/// Sizes of a spatial dimension: the dilated input and window, and the cotangent with its strides.
static std::array<int64_t, 3> getExtents(loom::ConvolutionOp op, size_t i) {
  return {(shapeOf(op.getInput())[i + 2] - 1) * op.getInputDilations()[i] + 1,
          (shapeOf(op.getWeight())[i + 2] - 1) * op.getDilations()[i] + 1,
          (shapeOf(op.getOutput())[i + 2] - 1) * op.getStrides()[i] + 1};
}

/// The cotangent, convolved with the mirrored weights with swapped channels.
static Term pullBackInput(loom::ConvolutionOp op, Term ct, Term weight) {
  auto groups = static_cast<int64_t>(op.getGroups());
  Spatial at;
  SmallVector<int64_t> spatial;
  for (size_t i = 0; i < op.getStrides().size(); ++i) {
    auto [input, window, output] = getExtents(op, i);
    at.low.push_back(window - 1 - op.getLow()[i]);
    at.high.push_back(input + window - 1 - output - at.low.back());
    if (window > 1)
      spatial.push_back(static_cast<int64_t>(i) + 2);
  }
  at.strides = SmallVector<int64_t>(op.getInputDilations());
  at.inputDilations = SmallVector<int64_t>(op.getStrides());
  at.dilations = SmallVector<int64_t>(op.getDilations());
  // [g * O, C] is [g, O, C], then [g, C, O], then [g * C, O].
  Term swapped = mergeDims(permute(splitDim(weight, 0, groups), {0, 2, 1}), 0);
  if (!spatial.empty())
    swapped = swapped.reverse(spatial);
  return convolve(ct, swapped, at, typeOf(op.getInput()), groups, op.getTf32());
}

/// The input, convolved with the cotangent, with batch and channels swapped.
static Term pullBackWeight(loom::ConvolutionOp op, Term ct, Term input) {
  auto groups = static_cast<int64_t>(op.getGroups());
  Spatial at;
  for (size_t i = 0; i < op.getStrides().size(); ++i) {
    auto [size, window, output] = getExtents(op, i);
    at.low.push_back(op.getLow()[i]);
    at.high.push_back(output - size + window - op.getLow()[i] - 1);
  }
  at.strides = SmallVector<int64_t>(op.getDilations());
  at.inputDilations = SmallVector<int64_t>(op.getInputDilations());
  at.dilations = SmallVector<int64_t>(op.getStrides());
  // [N, g * C] is [N, g, C], then [C, g, N], then [C, g * N].
  Term images = mergeDims(permute(splitDim(input, 1, groups), {2, 1, 0}), 1);
  SmallVector<int64_t> shape(shapeOf(op.getWeight()));
  std::swap(shape[0], shape[1]);
  Term swapped = convolve(images, permute(ct, {1, 0}), at, typeOf(op.getWeight()).clone(shape),
                          groups, op.getTf32());
  return permute(swapped, {1, 0});
}

static void pullBackConvolution(loom::ConvolutionOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] { return pullBackInput(op, ct, to.term(op.getWeight())); });
  to.add(op.getWeight(), [&] { return pullBackWeight(op, ct, to.term(op.getInput())); });
}

static StringRef findConvolutionObstacle(loom::ConvolutionOp op) {
  bool isEmpty = op.getInput().getType().getNumElements() == 0 ||
                 op.getOutput().getType().getNumElements() == 0;
  return isEmpty ? "a convolution of no elements" : "";
}

//===----------------------------------------------------------------------===//
// window
//===----------------------------------------------------------------------===//

namespace {
/// Windows over some dimensions of a tensor, as loom.window has them.
struct Windows {
  ArrayRef<int64_t> dims, sizes, strides, dilations;

  int64_t getReach(size_t i) const { return (sizes[i] - 1) * dilations[i] + 1; }
  /// Capped at kMaxWindow + 1.
  int64_t countElements() const {
    int64_t count = 1;
    for (int64_t size : sizes)
      count = size > kMaxWindow ? kMaxWindow + 1 : std::min(count * size, kMaxWindow + 1);
    return count;
  }
};
} // namespace

/// The transpose of loom.window: adds each element of the windows to its place in a tensor of
/// `shape`. `get(offset, n)` returns element n of all windows, which lies at `offset` in a window.
static Term overlapAdd(ArrayRef<int64_t> shape, const Windows &windows,
                       llvm::function_ref<Term(ArrayRef<int64_t>, int64_t)> get) {
  auto rank = static_cast<int64_t>(shape.size());
  SmallVector<int64_t> offset(windows.dims.size(), 0);
  std::optional<Term> sum;
  for (int64_t n = 0; n < windows.countElements(); ++n) {
    Term part = get(offset, n);
    SmallVector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0);
    for (auto [i, dim] : llvm::enumerate(windows.dims)) {
      int64_t positions = part.getShape()[dim];
      low[dim] = offset[i] * windows.dilations[i];
      high[dim] = shape[dim] - low[dim] - ((positions - 1) * windows.strides[i] + 1);
      interior[dim] = windows.strides[i] - 1;
    }
    part = part.pad(low, high, interior);
    sum = sum ? *sum + part : part;
    for (auto i = static_cast<int64_t>(offset.size()) - 1; i >= 0; --i) {
      if (++offset[i] < windows.sizes[i])
        break;
      offset[i] = 0;
    }
  }
  return *sum;
}

static void pullBackWindow(loom::WindowOp op, Term ct, Adjoints &to) {
  auto getElement = [&](ArrayRef<int64_t> offset, int64_t) {
    auto rank = static_cast<int64_t>(ct.getShape().size() - offset.size());
    SmallVector<int64_t> starts(rank, 0), limits(ct.getShape().take_front(rank)),
        ones(ct.getRank(), 1);
    for (int64_t place : offset) {
      starts.push_back(place);
      limits.push_back(place + 1);
    }
    return ct.slice(starts, limits, ones).reshape(ct.getShape().take_front(rank));
  };
  to.add(op.getInput(), [&] {
    return overlapAdd(shapeOf(op.getInput()),
                      {op.getDims(), op.getSizes(), op.getStrides(), op.getDilations()},
                      getElement);
  });
}

/// For operations on windows of a tensor.
template <typename Op> static StringRef findWindowObstacle(Op op) {
  Windows windows{op.getDims(), op.getSizes(), op.getStrides(), op.getDilations()};
  if (op.getOutput().getType().getNumElements() == 0)
    return "windows of no elements";
  return windows.countElements() > kMaxWindow ? "windows of more than 1,024 elements" : "";
}

//===----------------------------------------------------------------------===//
// reduce_window
//===----------------------------------------------------------------------===//

/// Each element gets the cotangents of all windows that contain it: again a sum over windows.
static Term pullBackSums(loom::ReduceWindowOp op, Term ct) {
  ArrayRef<int64_t> shape = shapeOf(op.getInput());
  SmallVector<int64_t> low(shape.size(), 0), high = low, interior = low;
  Windows windows{op.getDims(), op.getSizes(), op.getStrides(), op.getDilations()};
  for (auto [i, dim] : llvm::enumerate(op.getDims())) {
    int64_t reach = windows.getReach(i);
    int64_t output = (ct.getShape()[dim] - 1) * op.getStrides()[i] + 1;
    low[dim] = reach - 1 - op.getLow()[i];
    high[dim] = shape[dim] + reach - 1 - output - low[dim];
    interior[dim] = op.getStrides()[i] - 1;
  }
  SmallVector<int64_t> none(op.getDims().size(), 0), ones(op.getDims().size(), 1);
  return ct.emit<loom::ReduceWindowOp>(op.getInput().getType(), ct.pad(low, high, interior),
                                       ReductionKind::Sum, op.getDims(), op.getSizes(), ones, none,
                                       none, op.getDilations());
}

/// The first extreme element of a window gets the window's cotangent.
static Term pullBackExtrema(loom::ReduceWindowOp op, Term x, Term ct) {
  SmallVector<int64_t> low(x.getRank(), 0), high = low, none = low, padded(x.getShape());
  Windows windows{op.getDims(), op.getSizes(), op.getStrides(), op.getDilations()};
  for (auto [i, dim] : llvm::enumerate(op.getDims())) {
    low[dim] = op.getLow()[i];
    high[dim] = op.getHigh()[i];
    padded[dim] += low[dim] + high[dim];
  }
  Attribute neutral = loom::getNeutralElement(x.getType().getElementType(), op.getKind());
  Term around =
      x.emit<loom::PadOp>(x.getType().clone(padded), x, cast<TypedAttr>(neutral), low, high, none);
  SmallVector<int64_t> shape(ct.getShape());
  llvm::append_range(shape, op.getSizes());
  Term all = x.emit<loom::WindowOp>(x.getType().clone(shape), around, op.getDims(), op.getSizes(),
                                    op.getStrides(), op.getDilations());
  SmallVector<int64_t> flat(ct.getShape());
  flat.push_back(windows.countElements());
  int64_t last = ct.getRank();
  Type i64 = IntegerType::get(op.getContext(), 64);
  Term first = x.emit<loom::ArgReduceOp>(ct.getType().clone(i64), all.reshape(flat), op.getKind(),
                                         last, /*last=*/false);
  // One element at a time: a tensor of all windows would be written, and read many times.
  Term sum = overlapAdd(padded, windows, [&](ArrayRef<int64_t>, int64_t n) {
    return ct.where(first.compare(Direction::EQ, static_cast<double>(n)));
  });
  SmallVector<int64_t> limits, ones(x.getRank(), 1);
  for (auto [start, size] : llvm::zip_equal(low, x.getShape()))
    limits.push_back(start + size);
  return sum.slice(low, limits, ones);
}

static void pullBackReduceWindow(loom::ReduceWindowOp op, Term ct, Adjoints &to) {
  to.add(op.getInput(), [&] {
    return op.getKind() == ReductionKind::Sum ? pullBackSums(op, ct)
                                              : pullBackExtrema(op, to.term(op.getInput()), ct);
  });
}

static StringRef findReduceWindowObstacle(loom::ReduceWindowOp op) {
  if (op.getKind() == ReductionKind::Prod)
    return "products over windows";
  return op.getKind() == ReductionKind::Sum && op.getOutput().getType().getNumElements() != 0
             ? ""
             : findWindowObstacle(op);
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

void gridloom::attachWindowPullbacks(MLIRContext &context) {
  attachPullback<loom::ConvolutionOp, pullBackConvolution, findConvolutionObstacle>(context);
  attachPullback<loom::WindowOp, pullBackWindow, findWindowObstacle<loom::WindowOp>>(context);
  attachPullback<loom::ReduceWindowOp, pullBackReduceWindow, findReduceWindowObstacle>(context);
}
