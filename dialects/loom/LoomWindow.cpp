//===- LoomWindow.cpp - sliding windows: verifiers, costs, decompositions -===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/loom/LoomWindow.h"
#include "dialects/loom/Padding.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::loom;

static RankedTensorType tensor(Value value) { return cast<RankedTensorType>(value.getType()); }

int64_t gridloom::loom::countPositions(int64_t size, int64_t window, int64_t stride,
                                       int64_t dilation) {
  int64_t extent = (window - 1) * dilation + 1;
  return size < extent ? 0 : (size - extent) / stride + 1;
}

int64_t gridloom::loom::getPaddedSize(int64_t size, int64_t low, int64_t high, int64_t interior) {
  return low + high + (size > 0 ? size + (size - 1) * interior : 0);
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static LogicalResult expectType(Operation *op, RankedTensorType actual, RankedTensorType input,
                                ArrayRef<int64_t> shape) {
  auto expected = RankedTensorType::get(shape, input.getElementType());
  if (actual == expected)
    return success();
  return op->emitOpError("result is ") << actual << ", expected " << expected;
}

static LogicalResult expectCount(Operation *op, StringRef name, ArrayRef<int64_t> list,
                                 size_t count, int64_t least) {
  if (list.size() != count)
    return op->emitOpError() << name << " has " << list.size() << " numbers, expected " << count;
  for (int64_t number : list)
    if (number < least)
      return op->emitOpError() << name << " has " << number << ", expected at least " << least;
  return success();
}

static LogicalResult expectDims(Operation *op, ArrayRef<int64_t> dims, RankedTensorType type) {
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= type.getRank())
      return op->emitOpError("dim ") << dim << " is not a dimension of " << type;
    if (i && dims[i - 1] >= dim)
      return op->emitOpError("dims must increase");
  }
  return success();
}

/// The positions along one dimension; nullopt, with an error, if no window fits.
static std::optional<int64_t> expectPositions(Operation *op, int64_t size, int64_t window,
                                              int64_t stride, int64_t dilation) {
  int64_t positions = countPositions(size, window, stride, dilation);
  if (positions > 0)
    return positions;
  op->emitOpError("a window of ") << (window - 1) * dilation + 1
                                  << " does not fit into a dimension of " << size;
  return std::nullopt;
}

LogicalResult PadOp::verify() {
  RankedTensorType input = tensor(getInput());
  size_t rank = input.getRank();
  for (auto [name, list] : {std::pair("low", getLow()), std::pair("high", getHigh()),
                            std::pair("interior", getInterior())})
    if (failed(expectCount(*this, name, list, rank, 0))) // L-PD1
      return failure();
  if (getValue().getType() != input.getElementType()) // L-PD2
    return emitOpError("value is ")
           << getValue() << " for elements of type " << input.getElementType();
  SmallVector<int64_t> shape;
  for (auto [size, low, high, interior] :
       llvm::zip_equal(input.getShape(), getLow(), getHigh(), getInterior()))
    shape.push_back(getPaddedSize(size, low, high, interior));
  return expectType(*this, tensor(getOutput()), input, shape); // L-PD3
}

LogicalResult WindowOp::verify() {
  RankedTensorType input = tensor(getInput());
  size_t count = getDims().size();
  if (failed(expectDims(*this, getDims(), input)) || // L-WN1
      failed(expectCount(*this, "sizes", getSizes(), count, 1)) ||
      failed(expectCount(*this, "strides", getStrides(), count, 1)) ||
      failed(expectCount(*this, "dilations", getDilations(), count, 1)))
    return failure();
  SmallVector<int64_t> shape(input.getShape());
  for (auto [dim, size, stride, dilation] :
       llvm::zip_equal(getDims(), getSizes(), getStrides(), getDilations())) {
    auto positions = expectPositions(*this, shape[dim], size, stride, dilation); // L-WN2
    if (!positions)
      return failure();
    shape[dim] = *positions;
  }
  llvm::append_range(shape, getSizes());
  return expectType(*this, tensor(getOutput()), input, shape); // L-WN3
}

LogicalResult ConvolutionOp::verify() {
  RankedTensorType input = tensor(getInput()), weight = tensor(getWeight());
  if (input.getRank() < 3 || weight.getRank() != input.getRank() ||
      weight.getElementType() != input.getElementType()) // L-CV1
    return emitOpError("cannot convolve ") << input << " with " << weight;
  size_t spatial = input.getRank() - 2;
  for (auto [name, list, least] :
       {std::tuple("strides", getStrides(), 1), std::tuple("dilations", getDilations(), 1),
        std::tuple("input_dilations", getInputDilations(), 1), std::tuple("low", getLow(), 0),
        std::tuple("high", getHigh(), 0)})
    if (failed(expectCount(*this, name, list, spatial, least))) // L-CV2
      return failure();
  int64_t groups = getGroups(), channels = input.getDimSize(1), outputs = weight.getDimSize(0);
  if (groups < 1 || channels % groups || outputs % groups ||
      weight.getDimSize(1) != channels / groups) // L-CV3
    return emitOpError() << groups << " groups of " << weight.getDimSize(1)
                         << " input channels and " << outputs << " output channels do not match "
                         << channels << " input channels";
  SmallVector<int64_t> shape{input.getDimSize(0), outputs};
  for (size_t i = 0; i < spatial; ++i) {
    int64_t size = getPaddedSize(input.getDimSize(i + 2), getLow()[i], getHigh()[i],
                                 getInputDilations()[i] - 1);
    auto positions = expectPositions(*this, size, weight.getDimSize(i + 2), getStrides()[i],
                                     getDilations()[i]); // L-CV4
    if (!positions)
      return failure();
    shape.push_back(*positions);
  }
  return expectType(*this, tensor(getOutput()), input, shape);
}

LogicalResult ReduceWindowOp::verify() {
  RankedTensorType input = tensor(getInput());
  size_t count = getDims().size();
  if (failed(expectDims(*this, getDims(), input)))
    return failure();
  for (auto [name, list, least] :
       {std::tuple("sizes", getSizes(), 1), std::tuple("strides", getStrides(), 1),
        std::tuple("dilations", getDilations(), 1), std::tuple("low", getLow(), 0),
        std::tuple("high", getHigh(), 0)})
    if (failed(expectCount(*this, name, list, count, least))) // L-RW1
      return failure();
  SmallVector<int64_t> shape(input.getShape());
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    int64_t size = getPaddedSize(shape[dim], getLow()[i], getHigh()[i], 0);
    auto positions =
        expectPositions(*this, size, getSizes()[i], getStrides()[i], getDilations()[i]);
    if (!positions) // L-RW2
      return failure();
    shape[dim] = *positions;
  }
  return expectType(*this, tensor(getOutput()), input, shape);
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

int64_t PadOp::getFlops() { return 0; }
int64_t WindowOp::getFlops() { return 0; }

int64_t ConvolutionOp::getFlops() {
  RankedTensorType weight = tensor(getWeight());
  // Only one of product(input_dilations) elements of a window is not an inserted zero.
  int64_t zeros = computeProduct(getInputDilations());
  int64_t depth = computeProduct(weight.getShape().drop_front());
  return 2 * tensor(getOutput()).getNumElements() * depth / zeros;
}

int64_t ReduceWindowOp::getFlops() {
  return tensor(getOutput()).getNumElements() * computeProduct(getSizes());
}

//===----------------------------------------------------------------------===//
// Decompositions
//===----------------------------------------------------------------------===//

namespace {

struct WindowBuilder {
  OpBuilder &builder;
  Location loc;

  RankedTensorType withShape(Value value, ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, tensor(value).getElementType());
  }
  Value reshape(Value value, ArrayRef<int64_t> shape) {
    if (tensor(value).getShape() == shape)
      return value;
    return ReshapeOp::create(builder, loc, withShape(value, shape), value);
  }
  Value transpose(Value value, ArrayRef<int64_t> permutation) {
    if (llvm::is_sorted(permutation))
      return value;
    auto shape = llvm::map_to_vector(permutation,
                                     [&](int64_t dim) { return tensor(value).getDimSize(dim); });
    return TransposeOp::create(builder, loc, withShape(value, shape), value, permutation);
  }
  Value pad(Value value, Attribute fill, ArrayRef<int64_t> low, ArrayRef<int64_t> high,
            ArrayRef<int64_t> interior) {
    auto isZero = [](int64_t number) { return number == 0; };
    if (llvm::all_of(low, isZero) && llvm::all_of(high, isZero) && llvm::all_of(interior, isZero))
      return value;
    SmallVector<int64_t> shape;
    for (auto [size, before, after, between] :
         llvm::zip_equal(tensor(value).getShape(), low, high, interior))
      shape.push_back(getPaddedSize(size, before, after, between));
    return PadOp::create(builder, loc, withShape(value, shape), value, cast<TypedAttr>(fill), low,
                         high, interior);
  }
  Value window(Value value, ArrayRef<int64_t> dims, ArrayRef<int64_t> sizes,
               ArrayRef<int64_t> strides, ArrayRef<int64_t> dilations) {
    SmallVector<int64_t> shape(tensor(value).getShape());
    for (auto [dim, size, stride, dilation] : llvm::zip_equal(dims, sizes, strides, dilations))
      shape[dim] = countPositions(shape[dim], size, stride, dilation);
    llvm::append_range(shape, sizes);
    return WindowOp::create(builder, loc, withShape(value, shape), value, dims, sizes, strides,
                            dilations);
  }
  Value slice(Value value, ArrayRef<int64_t> strides) {
    if (llvm::all_of(strides, [](int64_t stride) { return stride == 1; }))
      return value;
    SmallVector<int64_t> starts(strides.size(), 0), shape;
    for (auto [size, stride] : llvm::zip_equal(tensor(value).getShape(), strides))
      shape.push_back((size + stride - 1) / stride);
    return SliceOp::create(builder, loc, withShape(value, shape), value, starts,
                           tensor(value).getShape(), strides);
  }
  Value broadcast(Value value, ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
    return BroadcastOp::create(builder, loc, withShape(value, shape), value, dims);
  }
  /// Reduces the last `count` dimensions.
  Value reduceLast(Value value, dist::ReductionKind kind, int64_t count) {
    int64_t rank = tensor(value).getRank();
    auto dims = llvm::to_vector(llvm::seq<int64_t>(rank - count, rank));
    return ReduceOp::create(builder, loc,
                            withShape(value, tensor(value).getShape().drop_back(count)), value,
                            kind, dims);
  }
};

/// Builds the decomposition of a convolution.
struct Convolution : WindowBuilder {
  ConvolutionOp op;
  SmallVector<int64_t> spatialDims;    // of input and output
  SmallVector<int64_t> window, output; // spatial sizes
  int64_t batch, channels, outputs, groups;

  Convolution(ConvolutionOp op, OpBuilder &builder)
      : WindowBuilder{builder, op.getLoc()}, op(op), batch(tensor(op.getInput()).getDimSize(0)),
        channels(tensor(op.getInput()).getDimSize(1)),
        outputs(tensor(op.getWeight()).getDimSize(0)), groups(op.getGroups()) {
    window.assign(tensor(op.getWeight()).getShape().drop_front(2));
    output.assign(tensor(op.getOutput()).getShape().drop_front(2));
    for (int64_t i = 0, count = window.size(); i < count; ++i)
      spatialDims.push_back(i + 2);
  }

  Value padInput() {
    SmallVector<int64_t> low{0, 0}, high{0, 0}, interior{0, 0};
    llvm::append_range(low, op.getLow());
    llvm::append_range(high, op.getHigh());
    for (int64_t dilation : op.getInputDilations())
      interior.push_back(dilation - 1);
    Type element = tensor(op.getInput()).getElementType();
    return pad(op.getInput(), builder.getZeroAttr(element), low, high, interior);
  }

  Value convert(Value value, Type element) {
    RankedTensorType type = tensor(value);
    if (type.getElementType() == element)
      return value;
    return ConvertOp::create(builder, loc, type.clone(element), value);
  }

  /// Each channel has its own filter: computes products and their sum, without columns. 16-bit
  /// floats are multiplied and summed in f32, as in matrix multiplications.
  Value multiplyChannels(Value input) {
    Type element = tensor(input).getElementType();
    bool isNarrow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
    Type wide = isNarrow ? builder.getF32Type() : element;
    int64_t copies = outputs / channels, rank = spatialDims.size();
    if (copies > 1) {
      SmallVector<int64_t> shape(tensor(input).getShape()), dims{0, 1};
      shape.insert(shape.begin() + 2, copies);
      for (int64_t dim : spatialDims)
        dims.push_back(dim + 1);
      Value repeated = broadcast(input, shape, dims);
      shape.erase(shape.begin() + 2);
      shape[1] = outputs;
      input = reshape(repeated, shape);
    }
    Value windows = convert(slide(input), wide);
    SmallVector<int64_t> shape{outputs}, dims{1};
    llvm::append_range(shape, window);
    for (int64_t i = 0; i < rank; ++i)
      dims.push_back(2 + rank + i);
    Value weights = convert(reshape(op.getWeight(), shape), wide);
    weights = broadcast(weights, tensor(windows).getShape(), dims);
    Value products = MultiplyOp::create(builder, loc, windows.getType(), windows, weights);
    return convert(reduceLast(products, dist::ReductionKind::Sum, rank), element);
  }

  Value slide(Value input) {
    return WindowBuilder::window(input, spatialDims, window, op.getStrides(), op.getDilations());
  }

  /// The input elements that each output position reads: [batch, channels * window, positions].
  Value makeColumns(Value input) {
    if (computeProduct(window) == 1) {
      SmallVector<int64_t> strides{1, 1};
      llvm::append_range(strides, op.getStrides());
      return slice(input, strides);
    }
    int64_t rank = spatialDims.size();
    SmallVector<int64_t> order{0, 1};
    for (int64_t i = 0; i < rank; ++i)
      order.push_back(2 + rank + i);
    llvm::append_range(order, spatialDims);
    return transpose(slide(input), order);
  }

  /// True if one window covers the whole input.
  bool isOneWindow(Value input) {
    for (auto [i, dim] : llvm::enumerate(spatialDims))
      if (tensor(input).getDimSize(dim) != (window[i] - 1) * op.getDilations()[i] + 1)
        return false;
    return true;
  }

  /// The elements of that window: the input, strided by the dilations.
  Value takeWindow(Value input) {
    SmallVector<int64_t> steps{1, 1};
    llvm::append_range(steps, op.getDilations());
    return slice(input, steps);
  }

  /// For windows larger than their output, as in gradients of weights: one product for the whole
  /// batch, since a product per image would have only a few columns.
  Value multiplyRows(Value input, int64_t depth) {
    SmallVector<int64_t> order{0}, shape{outputs, batch}, swap{1, 0};
    llvm::append_range(order, spatialDims);
    order.push_back(1);
    for (int64_t dim : spatialDims)
      order.push_back(static_cast<int64_t>(spatialDims.size()) + dim);
    Value elements = isOneWindow(input) ? takeWindow(input) : transpose(slide(input), order);
    Value rows = reshape(elements, {batch * computeProduct(output), depth});
    Value weights = reshape(op.getWeight(), {outputs, depth});
    Value product =
        DotGeneralOp::create(builder, loc, withShape(rows, {outputs, tensor(rows).getDimSize(0)}),
                             weights, rows, ArrayRef<int64_t>{}, ArrayRef<int64_t>{},
                             ArrayRef<int64_t>{1}, ArrayRef<int64_t>{1}, op.getTf32());
    llvm::append_range(shape, output);
    llvm::append_range(swap, spatialDims);
    return transpose(reshape(product, shape), swap);
  }

  /// True if vectors over an image's positions leave more than an eighth of their lanes empty.
  static bool wastesVectors(int64_t positions) {
    constexpr int64_t lanes = 16, most = 8;
    int64_t padded = (positions + lanes - 1) / lanes * lanes;
    return (padded - positions) * most > padded;
  }

  /// One product for all images, whose positions follow each other.
  Value multiplyImages(Value columns, int64_t depth, int64_t positions) {
    SmallVector<int64_t> shape{outputs, batch}, swap{1, 0}, order;
    llvm::append_range(shape, output);
    llvm::append_range(swap, spatialDims);
    int64_t rank = tensor(columns).getRank(), spatial = spatialDims.size();
    order = llvm::to_vector(llvm::seq<int64_t>(1, rank));
    order.insert(order.end() - spatial, 0);
    columns = reshape(transpose(columns, order), {depth, batch * positions});
    Value weights = reshape(op.getWeight(), {outputs, depth});
    Value product =
        DotGeneralOp::create(builder, loc, withShape(columns, {outputs, batch * positions}),
                             weights, columns, ArrayRef<int64_t>{}, ArrayRef<int64_t>{},
                             ArrayRef<int64_t>{1}, ArrayRef<int64_t>{0}, op.getTf32());
    return transpose(reshape(product, shape), swap);
  }

  Value multiplyColumns(Value input) {
    int64_t depth = channels / groups * computeProduct(window), positions = computeProduct(output);
    if (groups == 1 && computeProduct(window) > positions)
      return multiplyRows(input, depth);
    Value columns = makeColumns(input), product;
    if (groups == 1 && batch > 1 && wastesVectors(positions))
      return multiplyImages(columns, depth, positions);
    if (groups == 1) {
      columns = reshape(columns, {batch, depth, positions});
      Value weights = reshape(op.getWeight(), {outputs, depth});
      product = DotGeneralOp::create(builder, loc, withShape(columns, {outputs, batch, positions}),
                                     weights, columns, ArrayRef<int64_t>{}, ArrayRef<int64_t>{},
                                     ArrayRef<int64_t>{1}, ArrayRef<int64_t>{1}, op.getTf32());
      product = transpose(product, {1, 0, 2});
    } else {
      int64_t share = outputs / groups;
      columns = reshape(columns, {batch, groups, depth, positions});
      Value weights = reshape(op.getWeight(), {groups, share, depth});
      product =
          DotGeneralOp::create(builder, loc, withShape(columns, {groups, share, batch, positions}),
                               weights, columns, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{1},
                               ArrayRef<int64_t>{2}, ArrayRef<int64_t>{2}, op.getTf32());
      product = transpose(product, {2, 0, 1, 3});
    }
    return reshape(product, tensor(op.getOutput()).getShape());
  }
};

} // namespace

bool gridloom::loom::isDepthwise(ConvolutionOp op) {
  // With more filters per channel, a matrix multiplication is worth it.
  constexpr int64_t most = 4;
  int64_t channels = tensor(op.getInput()).getDimSize(1), outputs = op.getType().getDimSize(1);
  return static_cast<int64_t>(op.getGroups()) == channels && outputs <= most * channels;
}

SmallVector<Value> ConvolutionOp::decompose(OpBuilder &builder) {
  Convolution convolution(*this, builder);
  Value input = convolution.padInput();
  return {isDepthwise(*this) ? convolution.multiplyChannels(input)
                             : convolution.multiplyColumns(input)};
}

SmallVector<Value> ReduceWindowOp::decompose(OpBuilder &builder) {
  WindowBuilder b{builder, getLoc()};
  RankedTensorType type = tensor(getInput());
  SmallVector<int64_t> low(type.getRank(), 0), high(low), interior(low);
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    low[dim] = getLow()[i];
    high[dim] = getHigh()[i];
  }
  Value padded =
      b.pad(getInput(), getNeutralElement(type.getElementType(), getKind()), low, high, interior);
  Value windows = b.window(padded, getDims(), getSizes(), getStrides(), getDilations());
  return {b.reduceLast(windows, getKind(), getDims().size())};
}
