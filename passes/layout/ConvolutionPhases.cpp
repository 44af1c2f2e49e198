//===- ConvolutionPhases.cpp - convolutions without zeros -----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/layout/ConvolutionPhases.h"

#include "dialects/loom/LoomWindow.h"

using namespace mlir;

namespace gridloom {

using loom::computeProduct;

/// With more phases, a convolution and a pass over the result for each would take longer.
static constexpr int64_t kMaxPhases = 16;

static RankedTensorType getType(Value value) { return cast<RankedTensorType>(value.getType()); }

namespace {

/// A phase along one spatial dimension.
struct PhaseDim {
  int64_t first, step;      // of its positions in the result
  int64_t positions;        // their number
  int64_t tap;              // the first element of the window it reads; every step-th follows
  int64_t taps;             // their number
  int64_t start, low, high; // input elements skipped in front; zeros added around
  int64_t limit;            // the end of the input elements that are read
};

struct PhaseBuilder {
  loom::ConvolutionOp op;
  OpBuilder &builder;

  Value build();
  PhaseDim describe(int64_t dim, int64_t first);
  Value convolve(ArrayRef<PhaseDim> phase);
  Value slice(Value value, ArrayRef<int64_t> starts, ArrayRef<int64_t> limits,
              ArrayRef<int64_t> steps);
  Value spread(Value value, ArrayRef<PhaseDim> phase);
};

} // namespace

/// Position first + step * j reads element j + base + m of the input by element tap + step * m of
/// the window.
PhaseDim PhaseBuilder::describe(int64_t dim, int64_t first) {
  int64_t step = op.getInputDilations()[dim], size = getType(op.getInput()).getDimSize(dim + 2),
          window = getType(op.getWeight()).getDimSize(dim + 2),
          output = getType(op.getOutput()).getDimSize(dim + 2), low = op.getLow()[dim];
  if (step == 1)
    return {0, 1, output, 0, window, 0, low, op.getHigh()[dim], size};
  PhaseDim phase{first, step, (output - first + step - 1) / step, 0, 0, 0, 0, 0, size};
  phase.tap = ((low - first) % step + step) % step;
  phase.taps = phase.tap < window ? (window - phase.tap + step - 1) / step : 0;
  int64_t base = (first + phase.tap - low) / step;
  // One past the last element read, relative to the input's first.
  int64_t end = phase.positions + base + phase.taps - 1;
  phase.low = std::max<int64_t>(0, -base);
  phase.start = std::max<int64_t>(0, base);
  phase.high = std::max<int64_t>(0, end - size);
  phase.limit = std::min(size, end);
  return phase;
}

Value PhaseBuilder::slice(Value value, ArrayRef<int64_t> starts, ArrayRef<int64_t> limits,
                          ArrayRef<int64_t> steps) {
  SmallVector<int64_t> shape;
  for (auto [start, limit, step] : llvm::zip_equal(starts, limits, steps))
    shape.push_back((limit - start + step - 1) / step);
  if (getType(value).getShape() == ArrayRef<int64_t>(shape))
    return value;
  return loom::SliceOp::create(builder, op.getLoc(), getType(value).clone(shape), value, starts,
                               limits, steps);
}

/// The phase's result; null if it reads zeros only.
Value PhaseBuilder::convolve(ArrayRef<PhaseDim> phase) {
  RankedTensorType input = getType(op.getInput()), weight = getType(op.getWeight());
  SmallVector<int64_t> shape{input.getDimSize(0), weight.getDimSize(0)}, low, high, strides, ones;
  SmallVector<int64_t> begin(2, 0), end(input.getShape().take_front(2)), plain(input.getRank(), 1);
  SmallVector<int64_t> first(2, 0), last(weight.getShape().take_front(2)), every(2, 1);
  for (auto [i, dim] : llvm::enumerate(phase)) {
    if (dim.taps == 0 || dim.limit <= dim.start)
      return {};
    shape.push_back(dim.positions);
    low.push_back(dim.low);
    high.push_back(dim.high);
    strides.push_back(op.getStrides()[i]);
    begin.push_back(dim.start);
    end.push_back(dim.limit);
    first.push_back(dim.tap);
    last.push_back(weight.getDimSize(i + 2));
    every.push_back(dim.step);
  }
  ones.assign(phase.size(), 1);
  return loom::ConvolutionOp::create(builder, op.getLoc(), getType(op.getOutput()).clone(shape),
                                     slice(op.getInput(), begin, end, plain),
                                     slice(op.getWeight(), first, last, every), strides, low, high,
                                     ones, op.getDilations(), op.getGroups(), op.getTf32());
}

/// Puts the phase's elements in their places of the result, with zeros everywhere else.
Value PhaseBuilder::spread(Value value, ArrayRef<PhaseDim> phase) {
  SmallVector<int64_t> low(2, 0), high(2, 0), interior(2, 0);
  for (auto [i, dim] : llvm::enumerate(phase)) {
    low.push_back(dim.first);
    interior.push_back(dim.step - 1);
    high.push_back(getType(op.getOutput()).getDimSize(i + 2) - dim.first -
                   ((dim.positions - 1) * dim.step + 1));
  }
  return loom::PadOp::create(
      builder, op.getLoc(), getType(op.getOutput()), value,
      cast<TypedAttr>(builder.getZeroAttr(getType(op.getOutput()).getElementType())), low, high,
      interior);
}

Value PhaseBuilder::build() {
  RankedTensorType output = getType(op.getOutput());
  SmallVector<int64_t> counts;
  for (auto [i, step] : llvm::enumerate(op.getInputDilations()))
    counts.push_back(std::min(step, output.getDimSize(i + 2)));
  Value sum;
  for (int64_t n = 0; n < computeProduct(counts); ++n) {
    SmallVector<PhaseDim> phase;
    int64_t rest = n;
    for (auto [i, count] : llvm::enumerate(counts)) {
      phase.push_back(describe(i, rest % count));
      rest /= count;
    }
    Value part = convolve(phase);
    if (!part)
      continue;
    part = spread(part, phase);
    sum = sum ? loom::AddOp::create(builder, op.getLoc(), output, sum, part) : part;
  }
  return sum;
}

Value splitIntoPhases(loom::ConvolutionOp op, OpBuilder &builder) {
  int64_t phases = computeProduct(op.getInputDilations());
  if (phases == 1 || phases > kMaxPhases || getType(op.getOutput()).getNumElements() == 0 ||
      getType(op.getInput()).getNumElements() == 0)
    return {};
  for (auto [dilation, stride, spacing] :
       llvm::zip_equal(op.getInputDilations(), op.getStrides(), op.getDilations()))
    if (dilation > 1 && (stride > 1 || spacing > 1))
      return {};
  return PhaseBuilder{op, builder}.build();
}

} // namespace gridloom
