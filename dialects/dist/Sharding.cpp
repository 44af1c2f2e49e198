//===- Sharding.cpp - arithmetic on meshes and shardings ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/dist/Placement.h"

#include "dialects/dist/MachineAttr.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace gridloom::dist;

Mesh::Mesh(MeshOp op)
    : symbol(FlatSymbolRefAttr::get(op.getSymNameAttr())),
      machine(dist::getMachine(op->getParentOfType<ModuleOp>())) {
  for (auto axis : op.getAxes().getAsRange<AxisAttr>())
    axes.push_back({StringAttr::get(op.getContext(), axis.getName()), axis.getSize()});
}

Mesh Mesh::get(ModuleOp module) {
  if (MeshOp op = getMesh(module))
    return Mesh(op);
  Mesh mesh;
  mesh.machine = dist::getMachine(module);
  return mesh;
}

int64_t Mesh::getSize(StringAttr axis) const {
  for (const Axis &candidate : axes)
    if (candidate.name == axis)
      return candidate.size;
  return 1;
}

int64_t Mesh::getSize(ArrayRef<StringAttr> list) const {
  int64_t size = 1;
  for (StringAttr axis : list)
    size *= getSize(axis);
  return size;
}

SmallVector<StringAttr, 1> gridloom::dist::getStageAxes(ModuleOp module) {
  auto axis = module ? module->getAttrOfType<StringAttr>(kStageAxis) : StringAttr();
  return axis ? SmallVector<StringAttr, 1>{axis} : SmallVector<StringAttr, 1>();
}

SmallVector<gridloom::cluster::PlacedAxis, 4>
gridloom::dist::placeAxes(const Mesh &mesh, ArrayRef<StringAttr> along) {
  SmallVector<cluster::PlacedAxis, 4> placed;
  int64_t stride = 1;
  for (const Mesh::Axis &axis : llvm::reverse(mesh.getAxes())) {
    if (isMicroAxis(axis.name))
      continue; // no devices
    if (llvm::is_contained(along, axis.name))
      placed.push_back({axis.size, stride});
    stride *= axis.size;
  }
  return placed;
}

double Mesh::getSeconds(cluster::Collective kind, double bytes, ArrayRef<StringAttr> along) const {
  return cluster::getCollectiveSeconds(*machine, kind, bytes,
                                       placeGroup(*machine, placeAxes(*this, along)));
}

//===----------------------------------------------------------------------===//
// Sharding
//===----------------------------------------------------------------------===//

Sharding::Sharding(ShardingAttr attr)
    : unreduced(attr.getUnreduced().begin(), attr.getUnreduced().end()),
      reduction(attr.getReduction()) {
  for (DimShardingAttr dim : attr.getDims())
    dims.push_back(
        {AxisList(dim.getAxes().begin(), dim.getAxes().end()), dim.getOpen(), dim.getGranule()});
}

Sharding Sharding::replicated(int64_t rank, bool open) {
  Sharding sharding;
  sharding.dims.resize(rank);
  for (Dim &dim : sharding.dims)
    dim.open = open;
  return sharding;
}

ShardingAttr Sharding::getAttr(const Mesh &mesh) const {
  MLIRContext *context = mesh.getContext();
  SmallVector<DimShardingAttr> attrs;
  for (const Dim &dim : dims)
    attrs.push_back(DimShardingAttr::get(context, dim.axes, dim.open, dim.granule));
  return ShardingAttr::get(context, mesh.getSymbol(), attrs, unreduced, reduction);
}

bool Sharding::usesAxis(StringAttr axis) const {
  return llvm::is_contained(unreduced, axis) ||
         llvm::any_of(dims, [&](const Dim &dim) { return llvm::is_contained(dim.axes, axis); });
}

int64_t Sharding::getMicroDim() const {
  for (auto [number, dim] : llvm::enumerate(dims))
    if (llvm::any_of(dim.axes, isMicroAxis))
      return static_cast<int64_t>(number);
  return -1;
}

bool gridloom::dist::isMicroAxis(StringAttr axis) { return axis.getValue() == MeshOp::kMicroAxis; }

bool gridloom::dist::areCutAlikeInTime(const Sharding &a, const Sharding &b) {
  int64_t dim = a.getMicroDim();
  return dim == b.getMicroDim() && (dim < 0 || a.dims[dim].axes == b.dims[dim].axes);
}

bool Sharding::operator==(const Sharding &other) const {
  return dims == other.dims && unreduced == other.unreduced &&
         (unreduced.empty() || reduction == other.reduction);
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

int64_t gridloom::dist::getLocalSize(int64_t size, int64_t parts, int64_t granule) {
  return static_cast<int64_t>(llvm::divideCeil(size, granule * parts)) * granule;
}

RankedTensorType gridloom::dist::getLocalType(RankedTensorType global, const Sharding &sharding,
                                              const Mesh &mesh) {
  SmallVector<int64_t> shape(global.getShape());
  for (auto [size, dim] : llvm::zip_equal(shape, sharding.dims))
    if (int64_t parts = mesh.getSize(dim.axes); parts > 1)
      size = getLocalSize(size, parts, dim.granule);
  return RankedTensorType::get(shape, global.getElementType());
}

bool gridloom::dist::isPrefix(ArrayRef<StringAttr> shorter, ArrayRef<StringAttr> longer) {
  return shorter.size() <= longer.size() && shorter == longer.take_front(shorter.size());
}

//===----------------------------------------------------------------------===//
// Shardings on values
//===----------------------------------------------------------------------===//

ShardingAttr gridloom::dist::getSharding(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func ? func.getArgAttrOfType<ShardingAttr>(argument.getArgNumber(), kSharding)
                : ShardingAttr();
  }
  auto result = cast<OpResult>(value);
  auto shardings = result.getOwner()->getAttrOfType<ArrayAttr>(kShardings);
  if (!shardings || result.getResultNumber() >= shardings.size())
    return {};
  return dyn_cast<ShardingAttr>(shardings[result.getResultNumber()]);
}

/// `list`, extended to `size` entries by `fill`, with entry `index` replaced.
static ArrayAttr withEntry(MLIRContext *context, ArrayAttr list, size_t index, size_t size,
                           Attribute value, Attribute fill) {
  SmallVector<Attribute> entries;
  if (list)
    llvm::append_range(entries, list);
  entries.resize(size, fill);
  entries[index] = value;
  return ArrayAttr::get(context, entries);
}

void gridloom::dist::setSharding(Value value, ShardingAttr sharding, StringRef given) {
  setSharding(value, sharding, OriginAttr::get(value.getContext(), given));
}

void gridloom::dist::setSharding(Value value, ShardingAttr sharding, OriginAttr origin) {
  MLIRContext *context = value.getContext();
  if (!origin)
    origin = OriginAttr::get(context, "");
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    func.setArgAttr(argument.getArgNumber(), kSharding, sharding);
    func.setArgAttr(argument.getArgNumber(), kOrigin, origin);
    return;
  }
  auto result = cast<OpResult>(value);
  Operation *op = result.getOwner();
  auto set = [&](StringRef name, Attribute entry, Attribute fill) {
    op->setAttr(name, withEntry(context, op->getAttrOfType<ArrayAttr>(name),
                                result.getResultNumber(), op->getNumResults(), entry, fill));
  };
  set(kShardings, sharding, UnitAttr::get(context));
  set(kOrigins, origin, OriginAttr::get(context, ""));
}

OriginAttr gridloom::dist::getOrigin(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func ? func.getArgAttrOfType<OriginAttr>(argument.getArgNumber(), kOrigin)
                : OriginAttr();
  }
  auto result = cast<OpResult>(value);
  auto origins = result.getOwner()->getAttrOfType<ArrayAttr>(kOrigins);
  if (!origins || result.getResultNumber() >= origins.size())
    return {};
  return dyn_cast<OriginAttr>(origins[result.getResultNumber()]);
}
