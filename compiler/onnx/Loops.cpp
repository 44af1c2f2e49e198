//===- Loops.cpp - Loop and Scan -------------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ControlFlow.h"
#include "compiler/onnx/OpTable.h"
#include "compiler/onnx/Sequences.h"

#include "onnx-ml.pb.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::onnx_import;

/// The most iterations of a loop that is unrolled because it cannot stay a loop.
static constexpr int64_t kMaxUnrolled = 1024;

namespace {

/// The results of one iteration.
struct Iteration {
  Value condition; // a scalar; null where the loop has none
  SmallVector<Value> carried, stacked;
};

/// A tensor of which each iteration reads, or writes, one slice.
struct Slices {
  Value whole; // of an input
  int64_t axis = 0;
  bool reversed = false;
};

/// A Loop or Scan being imported.
class LoopImporter {
public:
  LoopImporter(Node &node, const onnx::GraphProto &graph, bool isScan)
      : node(node), graph(graph), isScan(isScan) {}

  /// Fails with an error on the node. Results are the carried values, then the stacked ones.
  FailureOr<SmallVector<Value>> run();

  SmallVector<Value> inits;
  SmallVector<Slices> inputs, outputs;
  std::optional<int64_t> trips; // at most, where known
  Value limit;                  // the same as a scalar i64; null where there is none
  Value condition;              // before the first iteration; null where it is true

private:
  FailureOr<Iteration> importIteration(GraphImporter &importer, Emitter &emit, Value index,
                                       ValueRange carried);
  Value takeSlice(Emitter &emit, Value whole, const Slices &slices, Value index);
  Value putSlice(Emitter &emit, Value whole, Value slice, const Slices &slices, Value index);
  /// Nothing, without an error, if an iteration's condition is known at run time only.
  FailureOr<std::optional<SmallVector<Value>>> unroll();
  Value stack(ArrayRef<Value> slices, const Slices &place);
  FailureOr<SmallVector<Value>> build();
  FailureOr<SmallVector<Value>> skip();
  LogicalResult fillBody(Body &body, SmallVector<Value> &starts);

  Node &node;
  const onnx::GraphProto &graph;
  bool isScan;
};

} // namespace

static Value getIndexOf(Emitter &emit, const Slices &slices, int64_t length, Value index) {
  if (!slices.reversed)
    return index;
  Value last = emit.splatLike(index, static_cast<double>(length - 1));
  return emit.binary<loom::SubtractOp>(last, index);
}

static SmallVector<int64_t> getSliceShape(ArrayRef<int64_t> whole, int64_t axis) {
  SmallVector<int64_t> shape(whole);
  shape.erase(shape.begin() + axis);
  return shape;
}

Value LoopImporter::takeSlice(Emitter &emit, Value whole, const Slices &slices, Value index) {
  SmallVector<int64_t> shape = getSliceShape(getShape(whole), slices.axis);
  Value at = getIndexOf(emit, slices, getShape(whole)[slices.axis], index);
  if (std::optional<int64_t> known = getKnown(at))
    return emit.reshape(emit.slice(whole, slices.axis, *known, *known + 1, 1), shape);
  return emit.reshape(emit.gather(whole, emit.reshape(at, {1}), slices.axis), shape);
}

Value LoopImporter::putSlice(Emitter &emit, Value whole, Value slice, const Slices &slices,
                             Value index) {
  SmallVector<int64_t> shape(getShape(whole));
  Value at = getIndexOf(emit, slices, shape[slices.axis], index);
  shape[slices.axis] = 1;
  Value update = emit.reshape(slice, shape);
  if (!update || !at)
    return {};
  return emit.emit<loom::ScatterOp>(whole.getType(), whole, emit.reshape(at, {1}), update,
                                    slices.axis, dist::ReductionKindAttr());
}

FailureOr<Iteration> LoopImporter::importIteration(GraphImporter &importer, Emitter &emit,
                                                   Value index, ValueRange carried) {
  SmallVector<Value> given;
  if (!isScan) {
    given.push_back(index);
    // A body runs only while the condition holds.
    Type i1 = IntegerType::get(node.getContext(), 1);
    given.push_back(emit.splat(RankedTensorType::get({}, i1), 1));
  }
  llvm::append_range(given, carried);
  for (const Slices &input : inputs)
    given.push_back(takeSlice(emit, importer.read(input.whole), input, index));
  if (!llvm::all_of(given, [](Value value) { return bool(value); }))
    return failure();
  if (static_cast<int>(given.size()) != graph.input_size())
    return node.error() << "its body has " << graph.input_size() << " inputs, it gives "
                        << given.size();
  if (graph.output_size() != static_cast<int>(!isScan + inits.size() + outputs.size()))
    return node.error() << "its body has " << graph.output_size() << " outputs, it takes "
                        << !isScan + inits.size() + outputs.size();
  FailureOr<SmallVector<Value>> results = importer.importSubgraph(given);
  if (failed(results))
    return failure();
  ArrayRef<Value> rest(*results);
  Iteration iteration;
  if (!isScan) {
    if (!(iteration.condition = toScalar(emit, rest.front(), "cond")))
      return failure();
    rest = rest.drop_front();
  }
  iteration.carried.assign(rest.begin(), rest.begin() + inits.size());
  llvm::append_range(iteration.stacked, rest.drop_front(inits.size()));
  return iteration;
}

//===----------------------------------------------------------------------===//
// Unrolled
//===----------------------------------------------------------------------===//

Value LoopImporter::stack(ArrayRef<Value> slices, const Slices &place) {
  SmallVector<int64_t> shape(getShape(slices.front()));
  int64_t rank = shape.size() + 1, axis = place.axis < 0 ? place.axis + rank : place.axis;
  shape.insert(shape.begin() + axis, 1);
  SmallVector<Value> parts;
  for (Value slice : slices)
    parts.push_back(node.reshape(slice, shape));
  if (place.reversed)
    std::reverse(parts.begin(), parts.end());
  return node.concatenate(parts, axis);
}

FailureOr<std::optional<SmallVector<Value>>> LoopImporter::unroll() {
  SmallVector<Value> carried(inits);
  SmallVector<SmallVector<Value>> stacked(outputs.size());
  for (int64_t i = 0; i < *trips; ++i) {
    GraphImporter importer(node.getImporter(), graph, node.getLoc(), node.getBuilder(), nullptr);
    FailureOr<Iteration> iteration =
        importIteration(importer, node, node.reshape(node.ints({i}), {}), carried);
    if (failed(iteration))
      return failure();
    carried = iteration->carried;
    for (auto [list, slice] : llvm::zip_equal(stacked, iteration->stacked))
      list.push_back(slice);
    if (!iteration->condition)
      continue;
    std::optional<int64_t> known = getKnown(iteration->condition);
    if (!known)
      return std::optional<SmallVector<Value>>();
    if (*known == 0)
      break;
  }
  for (auto [list, place] : llvm::zip_equal(stacked, outputs)) {
    if (llvm::any_of(list, isSequence))
      return node.error() << "stacks sequences; only tensors can be stacked";
    if (llvm::any_of(list, [&](Value value) { return value.getType() != list[0].getType(); }))
      return node.error() << "stacks results of different shapes";
    carried.push_back(stack(list, place));
  }
  return std::optional(carried);
}

//===----------------------------------------------------------------------===//
// As a loop
//===----------------------------------------------------------------------===//

/// Whether another iteration follows, `next` being its index and `most` the number of iterations,
/// if there is one.
static Value continues(Emitter &emit, Value next, Value most, Value holds) {
  Value more = most ? emit.compare(loom::Direction::LT, next, most) : Value();
  if (!holds || getKnown(holds) == 1)
    return more ? more : holds;
  return more ? emit.binary<loom::AndOp>(more, holds) : holds;
}

LogicalResult LoopImporter::fillBody(Body &body, SmallVector<Value> &starts) {
  Block &block = body.getBlock();
  OpBuilder inside(node.getContext());
  inside.setInsertionPointToEnd(&block);
  Emitter emit(inside, node.getLoc(), node.getName());
  for (Value start : starts)
    block.addArgument(start.getType(), node.getLoc());
  GraphImporter importer(node.getImporter(), graph, node.getLoc(), inside, &body.captures);
  Value index = block.getArgument(0);
  FailureOr<Iteration> iteration = importIteration(
      importer, emit, index, ValueRange(block.getArguments().slice(1, inits.size())));
  if (failed(iteration))
    return failure();
  for (auto [i, pair] : llvm::enumerate(llvm::zip_equal(inits, iteration->carried))) {
    auto [before, after] = pair;
    if (before.getType() != after.getType())
      return node.error() << "carried value " << i << " starts as " << before.getType()
                          << " and goes on as " << after.getType()
                          << "; what a loop carries must keep its shape";
  }
  Value next = emit.binary<loom::AddOp>(index, 1.0);
  Value most = limit ? importer.read(limit) : Value();
  SmallVector<Value> results{continues(emit, next, most, iteration->condition), next};
  llvm::append_range(results, iteration->carried);
  for (auto [slice, place] : llvm::zip_equal(iteration->stacked, outputs)) {
    if (isSequence(slice))
      return node.error() << "stacks sequences; only tensors can be stacked";
    if (!trips)
      return node.error() << "stacks a result for every iteration, but how many there are at "
                             "most is known at run time only; make the trip count a constant";
    SmallVector<int64_t> shape(getShape(slice));
    int64_t rank = shape.size() + 1;
    Slices at{Value(), place.axis < 0 ? place.axis + rank : place.axis, place.reversed};
    shape.insert(shape.begin() + at.axis, *trips);
    auto type = RankedTensorType::get(shape, getTensorType(slice).getElementType());
    starts.push_back(node.splat(type, 0));
    if (!starts.back())
      return failure();
    Value whole =
        block.insertArgument(static_cast<unsigned>(starts.size() - 1), type, node.getLoc());
    results.push_back(putSlice(emit, whole, slice, at, index));
  }
  if (!llvm::all_of(results, [](Value value) { return bool(value); }))
    return failure();
  if (getKnown(results.front()) == 1)
    return node.error() << "never ends: it has no trip count, and its condition is always true";
  auto isUnknown = [](Value value) { return value && !getKnown(value); };
  if (!outputs.empty() && *trips > 0 && (isUnknown(condition) || isUnknown(iteration->condition)))
    mlir::emitWarning(node.getLoc()) << node.getName() << ": may end before its " << *trips
                                     << " iterations; what it stacks is then followed by zeros";
  SmallVector<std::string> arguments{"iteration"}, names{"condition", "iteration"};
  for (int i = 0; i < static_cast<int>(inits.size()); ++i)
    arguments.push_back(graph.input(i + (isScan ? 0 : 2)).name());
  for (int i = isScan ? 0 : 1; i < graph.output_size(); ++i)
    names.push_back(graph.output(i).name());
  body.finish(results, arguments, names);
  return success();
}

FailureOr<SmallVector<Value>> LoopImporter::build() {
  if (llvm::any_of(inits, isSequence))
    return node.error() << "carries a sequence, but its loop cannot be unrolled; that needs a "
                        << "constant number of iterations, at most " << kMaxUnrolled
                        << ", and no condition that is computed at run time";
  Body body{node.getImporter().createBody(node.getLoc(), isScan ? "scan" : "loop"), {}};
  SmallVector<Value> starts{node.reshape(node.ints({0}), {})};
  llvm::append_range(starts, inits);
  if (failed(fillBody(body, starts)))
    return failure();
  Value first = continues(node, starts.front(), limit, condition);
  if (!first) {
    Type i1 = IntegerType::get(node.getContext(), 1);
    first = node.splat(RankedTensorType::get({}, i1), 1);
  }
  if (!first)
    return failure();
  SmallVector<Value> captures;
  for (auto &[outer, argument] : body.captures)
    captures.push_back(outer);
  auto loop =
      loom::WhileOp::create(node.getBuilder(), node.getLoc(), ValueRange(starts).getTypes(),
                            FlatSymbolRefAttr::get(body.function), first, starts, captures,
                            trips ? node.getBuilder().getI64IntegerAttr(*trips) : IntegerAttr());
  return SmallVector<Value>(loop.getResults().drop_front());
}

/// Undoes what a failed attempt left in the module.
static void eraseBodiesAfter(Operation *last, Block &module) {
  while (&module.back() != last)
    module.back().erase();
}

/// The results of a loop that never starts: what it stacks has no rows. Their shapes are known from
/// its body, which is not kept.
FailureOr<SmallVector<Value>> LoopImporter::skip() {
  if (outputs.empty())
    return inits;
  Block &module = *node.getImporter().getModule().getBody();
  Operation *last = &module.back();
  trips = 0;
  limit = node.reshape(node.ints({0}), {});
  FailureOr<SmallVector<Value>> built = build();
  if (failed(built))
    return failure();
  SmallVector<Value> results(inits);
  for (Value stacked : ArrayRef(*built).drop_front(inits.size()))
    results.push_back(node.splatLike(stacked, 0));
  built->front().getDefiningOp()->erase();
  eraseBodiesAfter(last, module);
  return results;
}

FailureOr<SmallVector<Value>> LoopImporter::run() {
  if (trips == 0 || getKnown(condition) == 0)
    return skip();
  bool counted = trips && (!condition || getKnown(condition) == 1);
  if (counted && *trips <= node.getImporter().getUnrolled()) {
    FailureOr<std::optional<SmallVector<Value>>> results = unroll();
    if (failed(results))
      return failure();
    if (*results)
      return **results;
  }
  Block &module = *node.getImporter().getModule().getBody();
  Operation *last = &module.back();
  if (!counted || *trips > kMaxUnrolled)
    return build();
  FailureOr<SmallVector<Value>> results = failure();
  {
    // If this fails, unrolling may still work: it knows the index and the shapes.
    ScopedDiagnosticHandler ignore(node.getContext(), [](Diagnostic &diagnostic) {
      return success(diagnostic.getSeverity() == DiagnosticSeverity::Error);
    });
    results = build();
  }
  if (succeeded(results))
    return results;
  eraseBodiesAfter(last, module);
  FailureOr<std::optional<SmallVector<Value>>> unrolled = unroll();
  if (failed(unrolled))
    return failure();
  if (!*unrolled)
    return build(); // for its error
  return **unrolled;
}

static LogicalResult setResults(Node &node, FailureOr<SmallVector<Value>> values) {
  if (failed(values))
    return failure();
  for (auto [i, value] : llvm::enumerate(*values))
    if (failed(node.setResult(i, value)))
      return failure();
  return success();
}

LogicalResult onnx_import::importLoop(Node &node) {
  const onnx::GraphProto *graph = node.graphAttribute("body");
  if (!graph)
    return failure();
  LoopImporter loop(node, *graph, /*isScan=*/false);
  if (node.hasOperand(0)) {
    if (!(loop.limit = toScalar(node, node.operand(0), "M")))
      return failure();
    if ((loop.trips = getKnown(loop.limit)))
      loop.trips = std::max<int64_t>(*loop.trips, 0);
    // Exporters write the largest number for loops that only the condition ends.
    if (loop.trips == std::numeric_limits<int64_t>::max()) {
      loop.trips.reset();
      loop.limit = {};
    }
  }
  if (node.hasOperand(1) && !(loop.condition = toScalar(node, node.operand(1), "cond")))
    return failure();
  for (unsigned i = 2; i < node.getNumOperands(); ++i)
    if (!loop.inits.emplace_back(node.operand(i)))
      return failure();
  if (node.getNumResults() < loop.inits.size())
    return node.error() << "has " << node.getNumResults() << " outputs for " << loop.inits.size()
                        << " carried values";
  // The node may omit trailing stacked results.
  int stacked = graph->output_size() - 1 - static_cast<int>(loop.inits.size());
  loop.outputs.resize(std::max(stacked, 0));
  return setResults(node, loop.run());
}

//===----------------------------------------------------------------------===//
// Scan
//===----------------------------------------------------------------------===//

/// One number per tensor, from an attribute that may be absent.
static std::optional<Dims> getList(Node &node, StringRef name, size_t count) {
  Dims list = node.intsAttribute(name).value_or(Dims(count, 0));
  if (list.size() == count)
    return list;
  node.error() << "attribute '" << name << "' has " << list.size() << " numbers for " << count
               << " tensors";
  return std::nullopt;
}

/// Fills in how `loop` scans `values`: its states, then what is scanned.
static LogicalResult setScanned(Node &node, LoopImporter &loop, ArrayRef<Value> values,
                                const onnx::GraphProto &graph) {
  int64_t scanned = node.intAttribute("num_scan_inputs", 0);
  if (scanned < 1 || scanned > static_cast<int64_t>(values.size()))
    return node.error() << "num_scan_inputs is " << scanned << " of " << values.size() << " inputs";
  size_t states = values.size() - scanned;
  if (graph.output_size() < static_cast<int>(states))
    return node.error() << "its body has " << graph.output_size() << " outputs for " << states
                        << " states";
  loop.inits.assign(values.begin(), values.begin() + states);
  size_t stacked = graph.output_size() - states;
  bool old = node.getOpset() < 9;
  auto inAxes = getList(node, "scan_input_axes", scanned);
  auto inReversed = getList(node, old ? "directions" : "scan_input_directions", scanned);
  auto outAxes = getList(node, "scan_output_axes", stacked);
  auto outReversed = getList(node, "scan_output_directions", stacked);
  if (!inAxes || !inReversed || !outAxes || !outReversed)
    return failure();
  for (int64_t i = 0; i < scanned; ++i) {
    Value whole = values[states + i];
    std::optional<int64_t> axis = node.normalizeAxis((*inAxes)[i], getTensorType(whole).getRank());
    if (!axis)
      return failure();
    int64_t length = getShape(whole)[*axis];
    if (loop.trips.value_or(length) != length)
      return node.error() << "scans inputs of lengths " << *loop.trips << " and " << length;
    loop.trips = length;
    loop.inputs.push_back({whole, *axis, (*inReversed)[i] != 0});
  }
  for (size_t i = 0; i < stacked; ++i)
    loop.outputs.push_back({Value(), (*outAxes)[i], (*outReversed)[i] != 0});
  loop.limit = node.reshape(node.ints({*loop.trips}), {});
  return success();
}

LogicalResult onnx_import::importScan(Node &node) {
  const onnx::GraphProto *graph = node.graphAttribute("body");
  if (!graph)
    return failure();
  SmallVector<Value> values;
  for (unsigned i = 0; i < node.getNumOperands(); ++i)
    if (!values.emplace_back(node.operand(i)))
      return failure();
  LoopImporter loop(node, *graph, /*isScan=*/true);
  if (failed(setScanned(node, loop, values, *graph)))
    return failure();
  return setResults(node, loop.run());
}

/// Up to version 8 every tensor has a batch dimension first, which the body does not see.
LogicalResult onnx_import::importBatchedScan(Node &node) {
  const onnx::GraphProto *graph = node.graphAttribute("body");
  if (!graph)
    return failure();
  if (node.hasOperand(0))
    return node.error() << "sequence_lens is given; lengths that differ are not supported";
  if (node.getNumOperands() < 2 || !node.operand(1))
    return failure();
  int64_t batch = getShape(node.operand(1)).empty() ? 0 : getShape(node.operand(1))[0];
  if (batch < 1)
    return node.error() << "has no batch to scan";
  // Each batch element is scanned by a loop of its own.
  if (batch > kMaxUnrolled)
    return node.error() << "scans a batch of " << batch << "; opset 8 batches of at most "
                        << kMaxUnrolled << " are supported; convert the model to opset 9";
  SmallVector<SmallVector<Value>> parts;
  for (int64_t b = 0; b < batch; ++b) {
    SmallVector<Value> values;
    for (unsigned i = 1; i < node.getNumOperands(); ++i) {
      Value whole = node.operand(i);
      if (!whole || getShape(whole).empty() || getShape(whole)[0] != batch)
        return node.error() << "input " << i << " has no batch of " << batch;
      values.push_back(
          node.reshape(node.slice(whole, 0, b, b + 1, 1), getShape(whole).drop_front()));
    }
    LoopImporter loop(node, *graph, /*isScan=*/true);
    if (failed(setScanned(node, loop, values, *graph)))
      return failure();
    FailureOr<SmallVector<Value>> results = loop.run();
    if (failed(results))
      return failure();
    parts.resize(results->size());
    for (auto [list, value] : llvm::zip_equal(parts, *results)) {
      SmallVector<int64_t> shape(getShape(value));
      shape.insert(shape.begin(), 1);
      list.push_back(node.reshape(value, shape));
    }
  }
  for (auto [i, list] : llvm::enumerate(parts))
    if (failed(node.setResult(i, node.concatenate(list, 0))))
      return failure();
  return success();
}
