//===- OutlineKernels.cpp - groups to kernels and calls -------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/OutlineKernels.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace gridloom {

/// A key: the kernel without its name and locations.
static std::string getKey(plan::KernelOp kernel) {
  std::string key;
  llvm::raw_string_ostream stream(key);
  for (BlockArgument argument : kernel.getBody().getArguments())
    stream << ' ' << argument.getType();
  // Values print as numbers in order, so within one body equal text means equal structure. Printing
  // an operation without a state numbers, and verifies, the whole body.
  OpPrintingFlags flags;
  AsmState state(kernel, flags.useLocalScope().elideLargeElementsAttrs(1 << 30).assumeVerified());
  for (Operation &op : kernel.getBody().front())
    op.print(stream, state);
  return key;
}

KernelOutliner::KernelOutliner(ModuleOp module) : module(module) {
  for (Operation &op : *module.getBody())
    if (auto symbol = dyn_cast<SymbolOpInterface>(op))
      symbols.insert(symbol.getName());
  for (plan::KernelOp kernel : module.getOps<plan::KernelOp>())
    kernels.try_emplace(getKey(kernel), kernel);
}

/// True if a value is a broadcast of a vector along the last dimension: a bias, or a scale.
static bool isVectorBroadcast(Value value) {
  auto broadcast = value.getDefiningOp<loom::BroadcastOp>();
  return broadcast && broadcast.getDims().size() == 1 &&
         static_cast<int64_t>(broadcast.getDims()[0]) + 1 == broadcast.getType().getRank();
}

/// A name from the kernel's operations that compute, up to four of them.
static std::string getReadableName(ArrayRef<Operation *> ops) {
  SmallVector<StringRef> words;
  for (Operation *op : ops) {
    if (ops.size() > 1 && isa<loom::ConstantOp, loom::BroadcastOp, loom::IotaOp>(op))
      continue;
    StringRef word = op->getName().stripDialect();
    if (isa<loom::AddOp>(op) && llvm::any_of(op->getOperands(), isVectorBroadcast))
      word = "bias";
    if (words.empty() || words.back() != word)
      words.push_back(word);
  }
  if (words.empty())
    words.push_back(ops.back()->getName().stripDialect());
  // The first three and the last describe a kernel best.
  if (words.size() > 4)
    words.erase(words.begin() + 3, words.end() - 1);
  return "k_" + llvm::join(words, "_");
}

/// The group's operations in the order in which the root needs them, which is the same for equal
/// kernels wherever their operations were.
static void orderOps(Operation *op, const FusionGroup &group, llvm::SetVector<Operation *> &order) {
  if (order.contains(op))
    return;
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp(); producer && group.ops.contains(producer))
      orderOps(producer, group, order);
  order.insert(op);
}

/// True for operations on 16-bit floats whose results kernels have with more digits: they compute
/// in f32 until they store.
static bool computesWide(Operation *op) {
  Type element = getElementTypeOrSelf(op->getResult(0).getType());
  return (element.isF16() || element.isBF16()) && isa<loom::KernelBodyInterface>(op) &&
         !isa<loom::AbsOp, loom::NegateOp, loom::MaximumOp, loom::MinimumOp, loom::SelectOp,
              loom::ConvertOp>(op);
}

/// The value as memory has it: rounded to its own type.
static Value roundToType(OpBuilder &builder, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Value wide =
      loom::ConvertOp::create(builder, value.getLoc(), type.clone(builder.getF32Type()), value);
  return loom::ConvertOp::create(builder, value.getLoc(), type, wide);
}

plan::KernelOp KernelOutliner::getOrCreate(OwningOpRef<plan::KernelOp> kernel, StringRef name) {
  auto [it, isNew] = kernels.try_emplace(getKey(*kernel), *kernel);
  if (!isNew)
    return it->second;
  std::string symbol;
  for (unsigned number = 0; symbol.empty() || !symbols.insert(symbol).second; ++number)
    symbol = (name + "_" + Twine(number)).str();
  kernel->setSymName(symbol);
  // Recorded once here: scheduling, allocation and code generation read it from the kernel.
  kernel->recordInPlace();
  module.push_back(kernel.release());
  return it->second;
}

void KernelOutliner::outline(const FusionGroup &group,
                             const llvm::DenseSet<Operation *> &repeated) {
  llvm::SetVector<Operation *> order;
  SmallVector<Value> results;
  for (Operation *each : llvm::concat<Operation *const>(group.others, ArrayRef(group.root))) {
    orderOps(each, group, order);
    results.push_back(each->getResult(0));
  }

  OpBuilder builder(module.getContext());
  Location unknown = builder.getUnknownLoc();
  OwningOpRef<plan::KernelOp> kernel =
      plan::KernelOp::create(builder, unknown, "k", /*in_place=*/ArrayAttr());
  Block &body = kernel->getBody().emplaceBlock();
  IRMapping map;
  SmallVector<Value> inputs;
  SmallVector<Location> locs;
  builder.setInsertionPointToEnd(&body);
  for (Operation *op : order) {
    // A lane's kernel, which is alone, takes each operand separately, even if two are one value.
    bool isLane = loom::isLaneOp(op);
    for (Value operand : op->getOperands())
      if (isLane || !map.contains(operand)) {
        map.map(operand, body.addArgument(operand.getType(), unknown));
        inputs.push_back(operand);
      }
    Operation *copy = builder.clone(*op, map);
    if (isLane)
      copy->setOperands(body.getArguments());
    copy->setDiscardableAttrs(DictionaryAttr::get(module.getContext()));
    // All kernels compute the same value, such as one whose maximum another kernel stores.
    if (repeated.contains(op) && computesWide(op))
      map.map(op->getResult(0), roundToType(builder, copy->getResult(0)));
    if (!isa<loom::ConstantOp>(op))
      locs.push_back(op->getLoc());
  }
  loom::YieldOp::create(builder, unknown, llvm::map_to_vector(results, [&](Value result) {
                          return map.lookup(result);
                        }));

  (*kernel)->setLoc(builder.getFusedLoc(locs));
  std::string name = getReadableName(order.getArrayRef());
  plan::KernelOp symbol = getOrCreate(std::move(kernel), name);
  builder.setInsertionPoint(group.root);
  auto call = plan::CallOp::create(builder, builder.getFusedLoc(locs), TypeRange(results),
                                   symbol.getSymName(), inputs);
  // Groups that repeat a root are already outlined, or keep reading the original.
  for (auto [result, output] : llvm::zip_equal(results, call.getOutputs()))
    result.replaceAllUsesWith(output);
}

} // namespace gridloom
