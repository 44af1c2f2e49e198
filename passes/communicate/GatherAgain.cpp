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

/// Moves what makes a value, of arguments and literals alone, before an operation.
void hoist(Value value, Operation *before) {
  Operation *op = value.getDefiningOp();
  if (!op || isBefore(op, before))
    return;
  for (Value operand : op->getOperands())
    hoist(operand, before);
  op->moveBefore(before);
}

/// A parameter from its all_gather to its last use.
struct Stretch {
  AllGatherOp gather;
  Operation *first, *last; ///< uses
  int64_t bytes;           ///< as of Gathered
};

/// What may travel in one message, and be there at a time.
struct Room {
  int64_t bucket; ///< bytes after which a message has enough; 0: each parameter by itself
  int64_t window; ///< bytes of all that is gathered
  int64_t unit;   ///< bytes of a message with copies, of which the window holds one and those ahead
};

/// Takes parameters in the order of their first uses, as long as there is room for one more when
/// the first one is used. Then their all_gathers, which get one number, stand side by side: they
/// travel in one message. Each is still dropped after its own last use.
class Unit {
public:
  Unit(ArrayRef<Stretch> all, Room room) : all(all), room(room) {}

  void add(size_t index) {
    if (!takes(index))
      send();
    if (begin == index) // what was used before may stay for later uses
      llvm::erase_if(there,
                     [&](const Stretch *each) { return isBefore(each->last, all[index].first); });
    there.push_back(&all[index]);
    end = index + 1;
    own += all[index].bytes;
    sent += getSent(index);
  }

  void send() {
    if (begin == end)
      return;
    ArrayRef<Stretch> members = all.slice(begin, end - begin);
    Operation *earliest = members.front().gather;
    for (const Stretch &member : members)
      if (isBefore(member.gather, earliest))
        earliest = member.gather;
    for (const Stretch &member : members)
      hoist(member.gather->getOperand(0), earliest);
    if (members.front().gather != earliest)
      members.front().gather->moveBefore(earliest);
    for (auto [member, before] : llvm::zip(members.drop_front(), members))
      member.gather->moveAfter(before.gather);
    auto number = Builder(earliest->getContext()).getI64IntegerAttr(count++);
    for (const Stretch &member : members)
      member.gather->setAttr(kGathered, number);
    begin = end;
    own = sent = 0;
  }

private:
  int64_t getSent(size_t index) const {
    return loom::getByteSize(all[index].gather->getResult(0).getType());
  }
  bool takes(size_t index) const {
    if (begin == end)
      return true;
    AllGatherOp first = all[begin].gather, next = all[index].gather;
    int64_t bytes = all[index].bytes;
    for (const Stretch *each : there)
      bytes += each->bytes;
    return std::max(sent, getSent(index)) < room.bucket && own + all[index].bytes <= room.unit &&
           bytes <= room.window && first.getAxes() == next.getAxes();
  }

  ArrayRef<Stretch> all;
  Room room;
  size_t begin = 0, end = 0;            ///< of those in it
  SmallVector<const Stretch *> there;   ///< those and all others that are there when it is used
  int64_t own = 0, sent = 0, count = 0; ///< bytes of its own and of its message; number of the next
};

/// Splits the uses of gathered parameters into stretches, in each of which a parameter is kept.
class Gatherer {
public:
  Gatherer(Block &block, int64_t ahead, int64_t bucketSize) {
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
    int64_t window = (1 + ahead) * largest + largest / kSmallShare;
    room = {bucketSize, window, window / (1 + ahead)};
  }

  /// Gathers again what was dropped; returns the bytes of the window, 0 where nothing is gathered.
  int64_t run() {
    findStretches();
    Unit unit(stretches, room);
    for (size_t i = 0; i < stretches.size(); ++i)
      unit.add(i);
    unit.send();
    return room.window;
  }

private:
  /// Biases and the like lie beside the large ones that the window is for: an eighth of one.
  static constexpr int64_t kSmallShare = 8;
  /// The gathered value and its forms, by those of the first time.
  struct Copy {
    Operation *before = nullptr; ///< its first use
    IRMapping mapping;
  };

  void findStretches() {
    SmallVector<std::pair<Operation *, size_t>> accesses;
    for (auto [i, each] : llvm::enumerate(all))
      for (Operation *use : each.uses)
        accesses.push_back({use, i});
    llvm::stable_sort(accesses,
                      [](const auto &a, const auto &b) { return isBefore(a.first, b.first); });
    SmallVector<size_t> recent; // the last one used last
    std::vector<std::unique_ptr<Copy>> copies(all.size());
    std::vector<size_t> current(all.size()); // stretches
    for (auto [use, index] : accesses) {
      bool isFirst = !isUsed(recent, index), isNew = isFirst || !isKept(recent, index);
      if (isNew && !isFirst)
        copies[index] = std::make_unique<Copy>(use);
      if (isNew) {
        current[index] = stretches.size();
        AllGatherOp gather = isFirst ? all[index].gather : gatherAgain(all[index], *copies[index]);
        stretches.push_back({gather, use, use, all[index].bytes});
      }
      stretches[current[index]].last = use;
      if (copies[index])
        redirect(all[index], *copies[index], use);
      llvm::erase(recent, index);
      recent.push_back(index);
    }
  }

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
    return bytes <= room.window;
  }
  AllGatherOp gatherAgain(const Gathered &from, Copy &copy) {
    OpBuilder builder(copy.before);
    auto again = cast<AllGatherOp>(builder.clone(*from.gather, copy.mapping));
    addCause(again, "again, since it was dropped after its last use");
    return again;
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
  SmallVector<Stretch, 0> stretches; ///< in the order of their first uses
  int64_t largest = 0;
  Room room;
};

struct GatherAgainPass : public gridloom::impl::GatherAgainBase<GatherAgainPass> {
  using GatherAgainBase::GatherAgainBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isDeclaration() || !function.getBody().hasOneBlock())
      return;
    if (int64_t window = Gatherer(function.front(), ahead, bucketSize).run())
      function->setAttr(kGatherWindow, Builder(&getContext()).getI64IntegerAttr(window));
  }
};
} // namespace
