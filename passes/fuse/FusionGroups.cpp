//===- FusionGroups.cpp - operations that share a kernel ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/fuse/FusionGroups.h"

#include "dialects/loom/Kernels.h"
#include "dialects/loom/Training.h"
#include "passes/fuse/StridedView.h"

using namespace mlir;

namespace gridloom {

/// Row reductions per kernel; while a row is read, each keeps its result in registers.
constexpr size_t kMaxReductions = 8;

/// With fewer results, a reduction of other dimensions than the last does not compute its operand,
/// which would leave all of that to one thread.
constexpr int64_t kMinReduced = 32;

static RankedTensorType getTensorType(Value value) {
  return cast<RankedTensorType>(value.getType());
}

/// True for windows, and elementwise functions of windows, with one reader.
static bool isWindowed(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !op->hasOneUse())
    return false;
  return isa<loom::WindowOp>(op) ||
         (isa<loom::KernelBodyInterface>(op) && llvm::any_of(op->getOperands(), isWindowed));
}

static FusionKind getMoveKind(Operation *op) {
  if (isa<loom::PadOp, loom::WindowOp>(op))
    return FusionKind::IndexMap;
  if (auto transpose = dyn_cast<loom::TransposeOp>(op)) {
    // The columns of a convolution, which keep runs of the window's input.
    if (isWindowed(transpose.getInput()) && transpose.getInput().getDefiningOp<loom::WindowOp>())
      return FusionKind::IndexMap;
    int64_t last = transpose.getPermutation().size() - 1;
    return transpose.getPermutation()[last] == last ? FusionKind::IndexMap : FusionKind::Opaque;
  }
  if (isa<loom::SliceOp>(op))
    return FusionKind::IndexMap;
  if (auto concatenate = dyn_cast<loom::ConcatenateOp>(op))
    return concatenate.getInputs().size() <= loom::kMostPieces ? FusionKind::Join
                                                               : FusionKind::Opaque;
  if (auto reverse = dyn_cast<loom::ReverseOp>(op))
    return llvm::is_contained(reverse.getDims(), reverse.getType().getRank() - 1)
               ? FusionKind::Opaque
               : FusionKind::IndexMap;
  return loom::looksUpRows(op) ? FusionKind::Gather : FusionKind::Opaque;
}

FusionKind getFusionKind(Operation *op) {
  if (!op->getDialect() || !isa<loom::LoomDialect>(op->getDialect()) || op->getNumResults() != 1 ||
      isa<loom::GetWeightOp, loom::ReshapeOp, loom::WhileOp, loom::IfOp>(op))
    return FusionKind::Boundary;
  if (auto constant = dyn_cast<loom::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue()) ? FusionKind::Generator
                                                       : FusionKind::Boundary;
  if (isa<loom::BroadcastOp, loom::IotaOp>(op) || loom::isIndexArithmetic(op->getResult(0)))
    return FusionKind::Generator;
  if (isa<loom::KernelBodyInterface>(op))
    return FusionKind::Elementwise;
  int64_t rank = op->getNumOperands() == 0 ? 0 : getTensorType(op->getOperand(0)).getRank();
  if (loom::isRowWise(op))
    return FusionKind::RowWise;
  if (isa<loom::SoftmaxOp>(op))
    return FusionKind::Opaque;
  if (auto reduce = dyn_cast<loom::ReduceOp>(op); reduce && isWindowed(reduce.getInput()))
    return FusionKind::Stencil;
  if (isa<loom::DotGeneralOp>(op))
    return FusionKind::Product;
  if (auto reduce = dyn_cast<loom::ReduceOp>(op))
    return reduce.getDims() == ArrayRef<int64_t>{rank - 1}    ? FusionKind::RowReduce
           : reduce.getType().getNumElements() >= kMinReduced ? FusionKind::Reduce
                                                              : FusionKind::Opaque;
  if (auto peak = dyn_cast<loom::ArgReduceOp>(op))
    return static_cast<int64_t>(peak.getDim()) + 1 == rank ? FusionKind::RowReduce
                                                           : FusionKind::Opaque;
  return getMoveKind(op);
}

namespace {

/// How a kernel uses an operation's values, which follows from their readers in the kernel.
enum class Role {
  None,      // cannot be in the kernel
  Full,      // one value per element of the kernel's loops
  RowScalar, // one value per row
  Shifted,   // elements at the kernel's own indices plus constants
  Mapped,    // elements at indices other than the kernel's own
  Windowed,  // the elements of a window per element
  Index,     // an index into a table
  Scalar,    // one value
};

/// A group being built.
struct Candidate {
  FusionGroup group;
  llvm::SmallDenseSet<Value> inputs; // that the group reads, generated ones included
  SmallVector<int64_t> domain;       // the shape of the kernel's loops
  bool isOpaque = false;
  bool isRow = false;
  bool isReduce = false; // of other dimensions than the last; the rest is elementwise
  bool computesMapped = false;
  bool gathers = false;
  bool hasStencil = false;
  bool hasProduct = false;
  bool readsUneven = false; // vectors of the domain are not vectors of everything it reads
  size_t pieces = 1;        // upper bound; what is computed depends on the piece
  size_t reductions = 0;    // of rows
  llvm::SmallDenseMap<Operation *, Role> roles;
};

/// True for operations that only move elements of values in memory, so that each reader can read
/// these instead. Other values would be computed again for each reader.
bool isMove(Operation *op) {
  if (auto transpose = dyn_cast<loom::TransposeOp>(op))
    return getFusionKind(op) == FusionKind::IndexMap && isInMemory(transpose.getInput());
  if (isa<loom::SliceOp>(op))
    return isReadWhole(op->getOperand(0)) && isInMemory(op->getOperand(0));
  return getFusionKind(op) == FusionKind::Join && llvm::all_of(op->getOperands(), isInMemory);
}

class GroupFormer {
public:
  explicit GroupFormer(bool hasProducts) : hasProducts(hasProducts) {}
  std::vector<FusionGroup> run(Block &block);

private:
  void visit(Operation *op);
  void visitGenerator(Operation *op);
  void visitMove(Operation *op, FusionKind kind);
  /// Adds an operation to all kernels that read it, if each of them can compute it.
  bool repeat(Operation *op);
  void startGroup(Operation *op, FusionKind kind);
  /// Adds the operation to the group if a kernel can compute it there.
  bool join(Operation *op, FusionKind kind, Candidate &candidate);
  bool canMove(Operation *op, FusionKind kind, Role role, const Candidate &candidate) const;
  bool joinReduce(Operation *op, Role role, Candidate &candidate);
  Role getRole(Operation *op, Candidate &candidate);
  Role getRoleAt(OpOperand &use, Candidate &candidate);
  void add(Operation *op, Role role, Candidate &candidate);
  bool accepts(const Candidate &candidate, Operation *generator) const;

  bool hasProducts, isTraining = false;
  std::vector<std::unique_ptr<Candidate>> candidates;
  llvm::DenseMap<Operation *, SmallVector<Candidate *, 2>> memberships;
};

void GroupFormer::add(Operation *op, Role role, Candidate &candidate) {
  candidate.group.ops.insert(op);
  for (Value result : op->getResults())
    candidate.inputs.erase(result);
  for (Value operand : op->getOperands())
    if (!candidate.group.ops.contains(operand.getDefiningOp()))
      candidate.inputs.insert(operand);
  candidate.roles[op] = role;
  memberships[op].push_back(&candidate);
}

/// The most operations of a kernel. To write and read a value between two kernels of so many costs
/// next to nothing; compiling one of thousands takes minutes.
constexpr size_t kMostOps = 1000;

/// Whether the kernel can also compute `op`, and read what it reads.
bool hasRoom(Operation *op, const Candidate &candidate) {
  return candidate.group.ops.size() < kMostOps &&
         candidate.inputs.size() + op->getNumOperands() <= kMostInputs;
}

/// The number of parts of the index space that the operation computes in different ways.
size_t countPieces(Operation *op) {
  if (isa<loom::ConcatenateOp>(op))
    return op->getNumOperands();
  constexpr size_t perPad = 2;
  return isa<loom::PadOp>(op) ? perPad : 1;
}

/// True for operations whose elements are their operands' at indices shifted by constants.
bool isShift(Operation *op) {
  auto slice = dyn_cast<loom::SliceOp>(op);
  return isa<loom::ConcatenateOp>(op) ||
         (slice && llvm::all_of(slice.getStrides(), [](int64_t stride) { return stride == 1; }));
}

/// True for moves that read vectors to make vectors: they keep the last dimension, or a part of it
/// that starts at a multiple of the widest vector.
bool keepsVectors(Operation *op) {
  constexpr int64_t widest = 16; // elements
  if (isa<loom::PadOp, loom::WindowOp>(op))
    return false;
  auto slice = dyn_cast<loom::SliceOp>(op);
  if (!slice || slice.getType().getRank() == 0)
    return true;
  RankedTensorType input = getTensorType(slice.getInput());
  int64_t row = input.getShape().back();
  if (slice.getType().getShape().back() == row)
    return true;
  return slice.getStrides().back() == 1 && slice.getStarts().back() % widest == 0 &&
         (row % widest == 0 || input.getNumElements() == row);
}

void GroupFormer::startGroup(Operation *op, FusionKind kind) {
  Candidate &candidate = *candidates.emplace_back(std::make_unique<Candidate>());
  candidate.group.root = op;
  candidate.isOpaque = kind == FusionKind::Opaque;
  candidate.isReduce = kind == FusionKind::Reduce;
  candidate.isRow = kind == FusionKind::RowWise || kind == FusionKind::RowReduce;
  candidate.gathers = kind == FusionKind::Gather;
  candidate.hasStencil = kind == FusionKind::Stencil;
  candidate.hasProduct = kind == FusionKind::Product;
  candidate.pieces = countPieces(op);
  candidate.reductions = kind == FusionKind::RowReduce ? 1 : 0;
  bool reduces = kind == FusionKind::RowReduce || kind == FusionKind::Reduce;
  Value walked = reduces ? op->getOperand(0) : op->getResult(0);
  candidate.domain.assign(getTensorType(walked).getShape().begin(),
                          getTensorType(walked).getShape().end());
  add(op, kind == FusionKind::RowReduce ? Role::RowScalar : Role::Full, candidate);
}

bool GroupFormer::accepts(const Candidate &candidate, Operation *generator) const {
  if (loom::isLaneOp(candidate.group.root))
    return false;
  return !candidate.isOpaque || isa<loom::ConstantOp, loom::IotaOp>(generator);
}

/// Generators are repeated in all kernels that read them, and written to memory for other readers.
void GroupFormer::visitGenerator(Operation *op) {
  llvm::SmallSetVector<Candidate *, 4> readers;
  bool materialise = false;
  for (Operation *user : op->getUsers()) {
    auto it = memberships.find(user);
    materialise |= it == memberships.end();
    if (it == memberships.end())
      continue;
    for (Candidate *candidate : it->second) {
      if (accepts(*candidate, op))
        readers.insert(candidate);
      else
        materialise = true;
    }
  }
  for (Candidate *candidate : readers)
    add(op, Role::None, *candidate);
  // A literal that no kernel computes with stays a literal.
  if (materialise && !isa<loom::ConstantOp>(op))
    startGroup(op, FusionKind::Generator);
}

Role GroupFormer::getRoleAt(OpOperand &use, Candidate &candidate) {
  Operation *user = use.getOwner();
  Operation *op = use.get().getDefiningOp();
  ArrayRef<int64_t> shape = getTensorType(use.get()).getShape();
  ArrayRef<int64_t> domain(candidate.domain);
  switch (getFusionKind(user)) {
  case FusionKind::Elementwise:
    return candidate.roles.lookup(user);
  case FusionKind::RowWise:
  case FusionKind::RowReduce:
  case FusionKind::Reduce:
    return use.getOperandNumber() == 0 ? Role::Full : Role::None;
  case FusionKind::Stencil:
    return Role::Windowed;
  case FusionKind::IndexMap:
  case FusionKind::Join: {
    // A window reads elements repeatedly, so its operand is computed once, outside.
    if (isa<loom::WindowOp>(user))
      return Role::None;
    Role role = candidate.roles.lookup(user);
    return isShift(user) && (role == Role::Full || role == Role::Shifted) ? Role::Shifted
                                                                          : Role::Mapped;
  }
  case FusionKind::Gather:
    return use.getOperandNumber() == 1 ? Role::Index : Role::None;
  case FusionKind::Generator: {
    auto broadcast = dyn_cast<loom::BroadcastOp>(user);
    if (!broadcast)
      return Role::None;
    if (!domain.empty() && broadcast.getType().getShape() == domain &&
        shape == domain.drop_back() &&
        llvm::equal(broadcast.getDims(), llvm::seq<int64_t>(0, shape.size())))
      return Role::RowScalar;
    if (getTensorType(use.get()).getNumElements() == 1 && loom::isCheap(op))
      return Role::Scalar;
    return isMove(op) && !candidate.isRow ? Role::Mapped : Role::None;
  }
  default:
    return Role::None;
  }
}

/// The role on which all uses in the group agree. Values in memory can also be read at several
/// places, and an index into a split table also says whether a device has the row.
Role GroupFormer::getRole(Operation *op, Candidate &candidate) {
  auto isRead = [](Role role) {
    return role == Role::Full || role == Role::Shifted || role == Role::Mapped;
  };
  auto isRowIndex = [](Role role) { return role == Role::Index || role == Role::RowScalar; };
  std::optional<Role> role;
  for (OpOperand &use : op->getUses()) {
    if (!candidate.group.ops.contains(use.getOwner()))
      continue;
    Role here = getRoleAt(use, candidate);
    if (!role || *role == here)
      role = here;
    else if (isMove(op) && isRead(*role) && isRead(here))
      role = Role::Mapped;
    else if (isRowIndex(*role) && isRowIndex(here))
      role = Role::Index;
    else
      return Role::None;
  }
  return role.value_or(Role::None);
}

/// Whether a kernel can read the source of `op` directly instead of its result.
bool GroupFormer::canMove(Operation *op, FusionKind kind, Role role,
                          const Candidate &candidate) const {
  if (candidate.isOpaque || candidate.isReduce)
    return false;
  if (kind == FusionKind::Join)
    return (role == Role::Full || role == Role::Shifted) && !candidate.isRow &&
           !candidate.hasStencil && !candidate.hasProduct &&
           candidate.pieces * countPieces(op) <= loom::kMostPieces;
  // A product reads its matrix in vectors as wide as all accesses to its columns allow.
  if (candidate.hasProduct && !keepsVectors(op))
    return false;
  if (role == Role::Windowed && isa<loom::WindowOp>(op))
    return true;
  if (candidate.isRow)
    return role == Role::Full && !isa<loom::PadOp>(op);
  return role == Role::Full || role == Role::Shifted || role == Role::Mapped;
}

bool GroupFormer::joinReduce(Operation *op, Role role, Candidate &candidate) {
  if (candidate.reductions == kMaxReductions)
    return false;
  ArrayRef<int64_t> shape = getTensorType(op->getOperand(0)).getShape();
  if (role == Role::Full && !candidate.isRow && !candidate.gathers && !candidate.hasStencil &&
      !candidate.hasProduct) {
    // Elementwise values become one value per row.
    candidate.domain.assign(shape.begin(), shape.end());
    for (auto &entry : candidate.roles)
      if (entry.second == Role::Full)
        entry.second = Role::RowScalar;
  } else if (candidate.hasProduct || role != Role::RowScalar ||
             shape != ArrayRef<int64_t>(candidate.domain)) {
    return false;
  }
  candidate.isRow = true;
  ++candidate.reductions;
  add(op, Role::RowScalar, candidate);
  return true;
}

/// True for sums with a reduction of rows as an operand.
static bool isSumOfReductions(Operation *op) {
  return isa<loom::AddOp>(op) && llvm::any_of(op->getOperands(), [](Value operand) {
           Operation *from = operand.getDefiningOp();
           return from && getFusionKind(from) == FusionKind::RowReduce;
         });
}

bool GroupFormer::join(Operation *op, FusionKind kind, Candidate &candidate) {
  if (candidate.isOpaque || kind == FusionKind::Opaque)
    return false;
  Role role = getRole(op, candidate);
  if (role == Role::None ||
      (candidate.isReduce && (kind != FusionKind::Elementwise || role != Role::Full)))
    return false;
  switch (kind) {
  case FusionKind::Elementwise: {
    bool isElsewhere = role == Role::Mapped || role == Role::Shifted;
    // The rest of a long sum of row reductions goes to another kernel, with its reductions.
    if (role == Role::RowScalar && candidate.reductions == kMaxReductions && isSumOfReductions(op))
      return false;
    if ((isElsewhere && candidate.isRow) ||
        ((role == Role::Scalar || role == Role::Index) && !loom::isCheap(op)))
      return false;
    candidate.computesMapped |= isElsewhere;
    break;
  }
  case FusionKind::RowWise:
    if (role != Role::Full || candidate.computesMapped || candidate.hasStencil ||
        candidate.hasProduct || candidate.pieces > 1)
      return false;
    candidate.isRow = true;
    break;
  case FusionKind::RowReduce:
    return !candidate.computesMapped && candidate.pieces == 1 && joinReduce(op, role, candidate);
  case FusionKind::Stencil:
    if (role != Role::Full || candidate.isRow || candidate.gathers || candidate.hasProduct)
      return false;
    candidate.hasStencil = true;
    break;
  case FusionKind::Product:
    if (role != Role::Full || candidate.isRow || candidate.gathers || candidate.hasStencil ||
        candidate.hasProduct || candidate.readsUneven || candidate.pieces > 1)
      return false;
    candidate.hasProduct = true;
    break;
  case FusionKind::IndexMap:
  case FusionKind::Join:
    if (!canMove(op, kind, role, candidate))
      return false;
    candidate.readsUneven |= kind == FusionKind::IndexMap && !keepsVectors(op);
    candidate.pieces *= countPieces(op);
    break;
  case FusionKind::Gather:
    if (role != Role::Full)
      return false;
    candidate.gathers = true;
    break;
  default:
    return false;
  }
  add(op, role, candidate);
  return true;
}

/// A move of a value in memory becomes part of all kernels that read it, if each can read the
/// source instead. Otherwise it is an address, if possible, or a copy.
void GroupFormer::visitMove(Operation *op, FusionKind kind) {
  auto keep = [&] {
    auto slice = dyn_cast<loom::SliceOp>(op);
    if (!slice || !isMemoryView(slice))
      startGroup(op, kind);
  };
  llvm::SmallSetVector<Candidate *, 4> readers;
  for (Operation *user : op->getUsers()) {
    auto it = memberships.find(user);
    if (it == memberships.end())
      return keep();
    readers.insert(it->second.begin(), it->second.end());
  }
  for (Candidate *candidate : readers)
    if (!canMove(op, kind, getRole(op, *candidate), *candidate) || !hasRoom(op, *candidate))
      return keep();
  for (Candidate *candidate : readers)
    join(op, kind, *candidate);
}

/// The only tensor that an operation reads, apart from generated ones: null if there is none,
/// nullopt if there are several.
static std::optional<Value> findOnlyTensor(Operation *op) {
  Value only;
  for (Value operand : op->getOperands()) {
    Operation *from = operand.getDefiningOp();
    if (from && getFusionKind(from) == FusionKind::Generator)
      continue;
    if (only && only != operand)
      return std::nullopt;
    only = operand;
  }
  return only;
}

static bool isInMemory(Operation *from) {
  return !from || isa<plan::MatmulOp, plan::ConvolutionOp, plan::AttentionOp, dist::DoneOp>(from) ||
         llvm::is_contained({FusionKind::Opaque, FusionKind::Reduce}, getFusionKind(from));
}

/// True for elementwise operations on one tensor in memory that is no larger than their result:
/// computing them again costs a kernel no more than reading their result.
static bool isFreeToRepeat(Operation *op, int depth = 2) {
  if (getFusionKind(op) != FusionKind::Elementwise || !loom::isCheap(op) || depth == 0)
    return false;
  std::optional<Value> only = findOnlyTensor(op);
  if (!only || !*only ||
      loom::getByteSize(only->getType()) > loom::getByteSize(op->getResult(0).getType()))
    return false;
  Operation *from = only->getDefiningOp();
  return isInMemory(from) || isFreeToRepeat(from, depth - 1);
}

static bool staysInMemory(Value value, Operation *reader);

/// The same for a training step, whose backward part reads what the forward part has computed: also
/// true without a tensor, such as for masks of labels, and for values that several kernels read.
/// Results larger than caches are worth recomputing at a moderate cost.
static bool isFreeInTraining(Operation *op) {
  constexpr int64_t kUncached = 64 << 20, kModerateCycles = 12;
  if (getFusionKind(op) != FusionKind::Elementwise)
    return false;
  int64_t bytes = loom::getByteSize(op->getResult(0).getType());
  int64_t cycles = cast<loom::KernelBodyInterface>(op).getScalarCycles();
  std::optional<Value> only = findOnlyTensor(op);
  if (cycles > (bytes >= kUncached ? kModerateCycles : loom::kCheapCycles) || !only)
    return false;
  return !*only || (loom::getByteSize(only->getType()) <= bytes && staysInMemory(*only, op));
}

/// True for values that are in memory whatever becomes of `reader`, one of their readers.
static bool staysInMemory(Value value, Operation *reader) {
  Operation *from = value.getDefiningOp();
  if (isInMemory(from))
    return true;
  // A value that several kernels read is in memory or repeated in them.
  if (getFusionKind(from) != FusionKind::Elementwise)
    return false;
  return llvm::any_of(from->getUsers(), [&](Operation *user) { return user != reader; }) ||
         isFreeInTraining(from);
}

bool GroupFormer::repeat(Operation *op) {
  llvm::SmallSetVector<Candidate *, 4> readers;
  for (Operation *user : op->getUsers()) {
    auto it = memberships.find(user);
    if (it == memberships.end())
      return false;
    readers.insert(it->second.begin(), it->second.end());
  }
  for (Candidate *candidate : readers) {
    Role role = getRole(op, *candidate);
    if (candidate->isOpaque || candidate->hasProduct || candidate->hasStencil ||
        (role != Role::Full && role != Role::RowScalar) || !hasRoom(op, *candidate))
      return false;
  }
  for (Candidate *candidate : readers)
    join(op, FusionKind::Elementwise, *candidate);
  return true;
}

void GroupFormer::visit(Operation *op) {
  FusionKind kind = getFusionKind(op);
  if (kind == FusionKind::Boundary || op->use_empty())
    return;
  if (kind == FusionKind::Product && !hasProducts)
    kind = FusionKind::Opaque;
  if (kind == FusionKind::Generator)
    return visitGenerator(op);
  // A sum over parts of a batch overwrites its operand; in the kernel that reads it, all parts
  // would have to stay in memory until then.
  if (op->hasAttr(loom::kAccumulates))
    return startGroup(op, kind);
  if (isMove(op))
    return visitMove(op, kind);
  bool isFree = isTraining ? isFreeInTraining(op) : isFreeToRepeat(op);
  if (!op->hasOneUse() && isFree && repeat(op))
    return;
  Candidate *only = nullptr;
  for (Operation *user : op->getUsers()) {
    auto it = memberships.find(user);
    if (it == memberships.end() || it->second.size() != 1 || (only && only != it->second.front()))
      return startGroup(op, kind);
    only = it->second.front();
  }
  if (!hasRoom(op, *only) || !join(op, kind, *only))
    startGroup(op, kind);
}

std::vector<FusionGroup> GroupFormer::run(Block &block) {
  auto function = dyn_cast<func::FuncOp>(block.getParentOp());
  isTraining = function && loom::isTrainStep(function);
  for (Operation &op : llvm::reverse(block))
    visit(&op);
  std::vector<FusionGroup> groups;
  for (auto &candidate : llvm::reverse(candidates))
    groups.push_back(std::move(candidate->group));
  return groups;
}

} // namespace

void cutConcatenations(Block &block) {
  for (auto whole : llvm::make_early_inc_range(block.getOps<loom::ConcatenateOp>())) {
    OpBuilder builder(whole);
    while (whole.getInputs().size() > kMostInputs) {
      SmallVector<Value> inputs(whole.getInputs()), parts;
      for (ArrayRef<Value> rest = inputs; !rest.empty();) {
        ArrayRef<Value> some = rest.take_front(kMostInputs);
        rest = rest.drop_front(some.size());
        SmallVector<int64_t> shape(whole.getType().getShape());
        int64_t &size = shape[whole.getDim()] = 0;
        for (Value value : some)
          size += getTensorType(value).getDimSize(whole.getDim());
        auto part = loom::ConcatenateOp::create(builder, whole.getLoc(),
                                                whole.getType().clone(shape), some, whole.getDim());
        part->setDiscardableAttrs(whole->getDiscardableAttrDictionary());
        parts.push_back(part.getOutput());
      }
      whole.getInputsMutable().assign(parts);
    }
  }
}

std::vector<FusionGroup> formFusionGroups(Block &block, bool hasProducts) {
  return GroupFormer(hasProducts).run(block);
}

} // namespace gridloom
