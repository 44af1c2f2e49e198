//===- Sharding.h - arithmetic on meshes and shardings ----------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_SHARDING_H
#define GRIDLOOM_DIALECTS_DIST_SHARDING_H

#include "cluster/Costs.h"
#include "dialects/dist/Dist.h"

#include <memory>

namespace gridloom::dist {

/// The largest number of devices of a mesh.
inline constexpr int64_t kMaxDevices = cluster::kMaxDevices;

/// A mesh as plain data, with the costs of work and communication on it.
class Mesh {
public:
  struct Axis {
    mlir::StringAttr name;
    int64_t size;
  };

  explicit Mesh(MeshOp op);
  /// The module's mesh; one device if it declares none.
  static Mesh get(mlir::ModuleOp module);

  llvm::ArrayRef<Axis> getAxes() const { return axes; }
  /// Size of the axis; 1 if there is none of that name.
  int64_t getSize(mlir::StringAttr axis) const;
  /// Product of the axes' sizes.
  int64_t getSize(llvm::ArrayRef<mlir::StringAttr> list) const;
  /// The seconds that a collective or transfer along the axes takes; `bytes` is the larger of a
  /// rank's operand and result. Devices are numbered row-major over the axes.
  double getSeconds(cluster::Collective kind, double bytes,
                    llvm::ArrayRef<mlir::StringAttr> along) const;
  const cluster::Machine &getMachine() const { return *machine; }
  mlir::FlatSymbolRefAttr getSymbol() const { return symbol; }
  mlir::MLIRContext *getContext() const { return symbol.getContext(); }

private:
  Mesh() = default;

  llvm::SmallVector<Axis> axes;
  mlir::FlatSymbolRefAttr symbol;
  std::shared_ptr<const cluster::Machine> machine;
};

/// The axis of pipeline stages, along which they transfer values, as a list; empty without stages.
llvm::SmallVector<mlir::StringAttr, 1> getStageAxes(mlir::ModuleOp module);

/// A sharding that algorithms can change; ShardingAttr is its form in IR.
struct Sharding {
  struct Dim {
    AxisList axes;
    bool open = false;
    int64_t granule = 1;
    bool operator==(const Dim &other) const {
      return axes == other.axes && granule == other.granule;
    }
  };

  llvm::SmallVector<Dim> dims;
  AxisList unreduced;
  ReductionKind reduction = ReductionKind::Sum;

  Sharding() = default;
  explicit Sharding(ShardingAttr attr);
  /// All dimensions whole, and open or closed.
  static Sharding replicated(int64_t rank, bool open = false);

  ShardingAttr getAttr(const Mesh &mesh) const;
  bool usesAxis(mlir::StringAttr axis) const;
  /// The dimension that is cut over the micro-batch axis; -1 if none is.
  int64_t getMicroDim() const;
  /// Same placement; ignores openness.
  bool operator==(const Sharding &other) const;
  bool operator!=(const Sharding &other) const { return !(*this == other); }
};

/// True for the axis that counts micro-batches.
bool isMicroAxis(mlir::StringAttr axis);

/// True if each micro-batch of a device holds the same elements in both shardings, apart from
/// device axes that cut other dimensions. Otherwise no reshard leads from one to the other, since
/// micro-batches do not communicate. Both shardings are of one tensor.
bool areCutAlikeInTime(const Sharding &a, const Sharding &b);

/// Local size of a dimension of `size` over `parts` devices: ceil(size / (granule * parts)) *
/// granule.
int64_t getLocalSize(int64_t size, int64_t parts, int64_t granule = 1);

/// The shard's type.
mlir::RankedTensorType getLocalType(mlir::RankedTensorType global, const Sharding &sharding,
                                    const Mesh &mesh);

/// True if `longer` begins with the axes of `shorter`.
bool isPrefix(llvm::ArrayRef<mlir::StringAttr> shorter, llvm::ArrayRef<mlir::StringAttr> longer);

/// The sharding of a value before partitioning, from the attribute of its operation or of the
/// function that it is an argument of; null if there is none.
ShardingAttr getSharding(mlir::Value value);
void setSharding(mlir::Value value, ShardingAttr sharding, OriginAttr origin);
/// As above; `given` is the origin of the whole sharding.
void setSharding(mlir::Value value, ShardingAttr sharding, llvm::StringRef given);
/// The origin of the sharding; empty if it has none.
OriginAttr getOrigin(mlir::Value value);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_SHARDING_H
