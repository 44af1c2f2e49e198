//===- GatherAgain.cpp - gathered weights that are dropped between uses -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/communicate/Communicate.h"

#include "dialects/dist/Gathered.h"
#include "dialects/loom/Padding.h"
#include "dialects/loom/Signature.h"
#include "dialects/loom/Training.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_GATHERAGAIN
#include "passes/communicate/Passes.h.inc"
} // namespace gridloom

namespace {
/// The one value, but for literals, that an operation gives in another order, type or size.
Value getForwarded(Operation *op) {
  if (isa<loom::ReshapeOp, loom::TransposeOp, loom::SliceOp, loom::ConvertOp, loom::BroadcastOp>(
          op))
    return op->getOperand(0);
  auto join = dyn_cast<loom::ConcatenateOp>(op);
  return join ? loom::getPadded(join) : Value();
}

/// Whether the value is a parameter of training, or made of nothing else.
bool isOfParameter(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    Value from = getForwarded(op);
    if (!from)
      return false;
    value = from;
  }
  auto role = loom::getArgumentAttr(value, loom::kRole);
  return isa_and_nonnull<StringAttr>(role) && cast<StringAttr>(role) == loom::kParameter;
}

/// A parameter that is gathered.
struct Gathered {
  AllGatherOp gather;
  /// What gives the gathered value in another order or type, in program order.
  llvm::SetVector<Operation *> forms;
  SmallVector<Operation *> uses; ///< others that read it or its forms, in program order, each once
  int64_t bytes = 0;             ///< of it and those of its forms that are copies

  void collect(Value value) {
    for (Operation *user : value.getUsers())
      if (getForwarded(user)) {
        if (!forms.insert(user))
          continue;
        if (isa<loom::TransposeOp, loom::ConvertOp, loom::ConcatenateOp>(user))
          bytes += loom::getByteSize(user->getResult(0).getType());
        collect(user->getResult(0));
      } else if (!llvm::is_contained(uses, user)) {
        uses.push_back(user);
      }
  }
};

bool isBefore(Operation *a, Operation *b) { return a->isBeforeInBlock(b); }

/// Splits the uses of gathered parameters into stretches, in each of which a parameter is kept.
class Gatherer {
public:
  Gatherer(Block &block, int64_t ahead) {
    for (auto op : block.getOps<AllGatherOp>()) {
      if (op->hasAttr(kChunk) || !isOfParameter(op.getInput()))
        continue;
      Gathered each;
      each.gather = op;
      each.bytes = loom::getByteSize(op.getOutput().getType());
      each.collect(op.getOutput());
      if (each.uses.empty())
        continue;
      llvm::sort(each.uses, isBefore);
      largest = std::max(largest, each.bytes);
      all.push_back(std::move(each));
    }
    window = (1 + ahead) * largest + largest / kSmallShare;
  }

  /// Gathers again what was dropped; returns the bytes of the window, 0 where nothing is gathered.
  int64_t run() {
    SmallVector<std::pair<Operation *, size_t>> accesses;
    for (auto [i, each] : llvm::enumerate(all))
      for (Operation *use : each.uses)
        accesses.push_back({use, i});
    llvm::stable_sort(accesses,
                      [](const auto &a, const auto &b) { return isBefore(a.first, b.first); });
    SmallVector<size_t> recent; // the last one used last
    std::vector<std::unique_ptr<Copy>> copies(all.size());
    for (auto [use, index] : accesses) {
      if (!isUsed(recent, index))
        number(all[index].gather);
      else if (!isKept(recent, index))
        copies[index] = gatherAgain(all[index], use);
      if (copies[index])
        redirect(all[index], *copies[index], use);
      llvm::erase(recent, index);
      recent.push_back(index);
    }
    return window;
  }

private:
  /// Biases and the like lie beside the large ones that the window is for: an eighth of one.
  static constexpr int64_t kSmallShare = 8;
  /// The gathered value and its forms, by those of the first time.
  struct Copy {
    Operation *before = nullptr; ///< its first use
    IRMapping mapping;
  };

  static bool isUsed(ArrayRef<size_t> recent, size_t index) {
    return llvm::is_contained(recent, index);
  }
  /// Whether the window holds the parameter and all that were used after it.
  bool isKept(ArrayRef<size_t> recent, size_t index) const {
    int64_t bytes = 0;
    for (size_t other : llvm::reverse(recent)) {
      bytes += all[other].bytes;
      if (other == index)
        break;
    }
    return bytes <= window;
  }
  void number(AllGatherOp gather) {
    gather->setAttr(kGathered, Builder(gather.getContext()).getI64IntegerAttr(count++));
  }
  std::unique_ptr<Copy> gatherAgain(const Gathered &from, Operation *use) {
    OpBuilder builder(use);
    auto copy = std::make_unique<Copy>();
    copy->before = use;
    auto again = cast<AllGatherOp>(builder.clone(*from.gather, copy->mapping));
    number(again);
    addCause(again, "again, since it was dropped after its last use");
    return copy;
  }
  /// Lets a use read a copy, with the forms that it needs.
  void redirect(const Gathered &from, Copy &copy, Operation *use) {
    for (OpOperand &operand : use->getOpOperands())
      if (Value there = find(from, copy, operand.get()))
        operand.set(there);
  }
  Value find(const Gathered &from, Copy &copy, Value value) {
    Operation *op = value.getDefiningOp();
    if (!op || (op != from.gather && !from.forms.contains(op)))
      return {};
    if (Value known = copy.mapping.lookupOrNull(value))
      return known;
    find(from, copy, getForwarded(op));
    OpBuilder builder(copy.before);
    return builder.clone(*op, copy.mapping)->getResult(0);
  }

  SmallVector<Gathered, 0> all;
  int64_t largest = 0, window = 0, count = 0;
};

struct GatherAgainPass : public gridloom::impl::GatherAgainBase<GatherAgainPass> {
  using GatherAgainBase::GatherAgainBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration() || !function.getBody().hasOneBlock())
      return;
    if (int64_t window = Gatherer(function.front(), ahead).run())
      function->setAttr(kGatherWindow, Builder(&getContext()).getI64IntegerAttr(window));
  }
};
} // namespace
