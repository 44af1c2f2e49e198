//===- SplitStates.cpp - states of training over the axes of the batch ------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Sharding.h"
#include "dialects/loom/Training.h"
#include "passes/shard/Shard.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

namespace gridloom {
#define GEN_PASS_DEF_SPLITSTATES
#include "passes/shard/Passes.h.inc"
} // namespace gridloom

namespace {
struct SplitStatesPass : public gridloom::impl::SplitStatesBase<SplitStatesPass> {
  using SplitStatesBase::SplitStatesBase;

  void runOnOperation() override;

private:
  void split(func::FuncOp func, const Mesh &mesh);
  void addAxes(Sharding &sharding, ArrayRef<int64_t> shape, const Mesh &mesh);
  std::string getOrigin() const { return "--zero " + std::to_string(level); }
};
} // namespace

static StringRef getRole(func::FuncOp func, BlockArgument argument) {
  auto role = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kRole);
  return role ? role.getValue() : "";
}

static StringRef getState(func::FuncOp func, BlockArgument argument) {
  auto state = func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), loom::kState);
  return state ? state.getValue() : "";
}

/// The dimension to split over the axis: one that divides evenly if possible, and of these the one
/// with the largest parts; nullopt if none has enough elements.
static std::optional<size_t> chooseDim(const Sharding &sharding, ArrayRef<int64_t> shape,
                                       StringAttr axis, const Mesh &mesh) {
  std::optional<size_t> best;
  std::pair<bool, int64_t> most;
  for (auto [d, dim] : llvm::enumerate(sharding.dims)) {
    int64_t parts = mesh.getSize(dim.axes) * mesh.getSize(axis) * dim.granule;
    std::pair<bool, int64_t> score = {shape[d] % parts == 0, shape[d] / parts};
    if (shape[d] >= parts && (!best || score > most)) {
      best = d;
      most = score;
    }
  }
  return best;
}

static bool isOpen(const Sharding &sharding) {
  return llvm::all_of(sharding.dims, [](const Sharding::Dim &dim) { return dim.open; });
}

static Sharding close(Sharding sharding) {
  for (Sharding::Dim &dim : sharding.dims)
    dim.open = false;
  return sharding;
}

/// Splits dimensions over those of the axes that do not split any yet.
void SplitStatesPass::addAxes(Sharding &sharding, ArrayRef<int64_t> shape, const Mesh &mesh) {
  for (const std::string &name : axes) {
    auto axis = StringAttr::get(&getContext(), name);
    if (sharding.usesAxis(axis))
      continue;
    if (std::optional<size_t> dim = chooseDim(sharding, shape, axis, mesh))
      sharding.dims[*dim].axes.push_back(axis);
  }
}

void SplitStatesPass::split(func::FuncOp func, const Mesh &mesh) {
  llvm::StringMap<Type> parameters;
  llvm::StringMap<Sharding> sums; // of gradients, by parameter
  for (BlockArgument argument : func.getArguments())
    if (getRole(func, argument) == loom::kParameter)
      parameters[getState(func, argument)] = argument.getType();
  for (BlockArgument argument : func.getArguments()) {
    StringRef role = getRole(func, argument);
    bool isParameter = role == loom::kParameter;
    ArrayRef<int64_t> shape = cast<RankedTensorType>(argument.getType()).getShape();
    ShardingAttr given = getSharding(argument);
    Sharding sharding =
        given ? Sharding(given) : Sharding::replicated(static_cast<int64_t>(shape.size()), true);
    // At level 1 every device adds up its own gradients, which are then sent once.
    if (level < 2 && isParameter)
      sums[getState(func, argument)] = close(sharding);
    if ((!isParameter && role != loom::kMoment) || shape.empty() || !isOpen(sharding))
      continue;
    // What an optimizer keeps per row or column is small.
    StringRef parameter =
        isParameter ? getState(func, argument) : getState(func, argument).rsplit('/').first;
    bool isMoment = !isParameter && parameters.lookup(parameter) == argument.getType();
    Sharding whole = close(sharding);
    addAxes(sharding, shape, mesh);
    sharding = close(sharding);
    // From level 2 on gradients are added up where they are needed: in the sharding of the moment,
    // or if there is none, of the parameter.
    if (level >= 2 && isMoment)
      sums.insert_or_assign(parameter, sharding);
    else if (level >= 2 && isParameter)
      sums.try_emplace(parameter, sharding);
    bool isSplit = isParameter ? level >= 3 : isMoment;
    setSharding(argument, (isSplit ? sharding : whole).getAttr(mesh), getOrigin());
  }
  for (auto sum : func.getOps<loom::AddOp>()) {
    auto parameter = sum->getAttrOfType<StringAttr>(loom::kAccumulates);
    auto it = parameter ? sums.find(parameter.getValue()) : sums.end();
    ShardingAttr given = getSharding(sum.getResult());
    if (it != sums.end() && (!given || isOpen(Sharding(given))))
      setSharding(sum.getResult(), it->second.getAttr(mesh), getOrigin());
  }
}

void SplitStatesPass::runOnOperation() {
  MeshOp meshOp = getMesh(getOperation());
  if (!meshOp)
    return;
  for (auto func : getOperation().getOps<func::FuncOp>())
    split(func, Mesh(meshOp));
}
