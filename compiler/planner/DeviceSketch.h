//===- DeviceSketch.h - what a device will compute, roughly -----*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_PLANNER_DEVICESKETCH_H
#define GRIDLOOM_COMPILER_PLANNER_DEVICESKETCH_H

#include "dialects/dist/Factors.h"
#include "passes/fuse/Fuse.h"
#include "passes/fuse/FusionGroups.h"
#include "passes/layout/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"

namespace gridloom {

/// What estimates need to know of a target.
struct MemoryOptions {
  LayoutOptions layout;
  FuseOptions fuse;
};

/// A copy of a sharded function that shows what its devices will do, on global shapes: marks stand
/// for communication and library calls, and kernels are groups of operations. Beside each value
/// stand the bytes that a device has of it.
class DeviceSketch {
public:
  enum class Mark { Collective, Receive, Slice, Call };

  DeviceSketch(mlir::func::FuncOp func, const dist::Mesh &mesh, const MemoryOptions &options);

  mlir::func::FuncOp getFunction() const { return func; }
  /// What an operation that stands for something else is.
  std::optional<Mark> getMark(mlir::Operation *op) const;
  /// Of a device of the operation's stage.
  int64_t getStage(mlir::Operation *op) const;
  int64_t getBytes(mlir::Value value) const { return bytes.lookup(value); }
  /// The time of communication, and the stream that it is on.
  double getSeconds(mlir::Operation *op) const { return communications.lookup(op).first; }
  mlir::Attribute getStream(mlir::Operation *op) const { return communications.lookup(op).second; }
  /// As a device reads a weight.
  mlir::Attribute getSharding(mlir::Value value) const { return shardings.lookup(value); }
  mlir::RankedTensorType getLocalType(mlir::Value value) const { return types.lookup(value); }
  /// True for what peers read.
  bool isCommunicated(mlir::Value value) const { return communicated.contains(value); }
  /// True for a matrix that is only the right operand of products.
  bool isRightOperand(mlir::Value weight) const { return rightOperands.contains(weight); }
  /// The operation of the given function.
  mlir::Operation *getSource(mlir::Operation *op) const { return sources.lookup(op); }
  /// The kernels, by the operation that gives their result.
  const llvm::DenseMap<mlir::Operation *, FusionGroup> &getKernels() const { return kernels; }

private:
  /// A value as devices have it; one value may be there in several shardings.
  struct Version {
    dist::Sharding sharding;
    mlir::Value value;
    int64_t stage;
  };

  void decompose();
  void shardParts(mlir::Operation *first, mlir::Operation *end);
  void reshard();
  void visit(mlir::Operation *op);
  mlir::Value request(mlir::Value global, const dist::Sharding &sharding, mlir::Operation *user);
  mlir::Value emit(mlir::OpBuilder &builder, const Version &from, const struct ReshardStep &step,
                   mlir::Value value, mlir::RankedTensorType after, int64_t stage);
  mlir::Value move(mlir::OpBuilder &builder, mlir::Value value, int64_t dim, int64_t parts,
                   bool toFront);
  mlir::Value addMark(mlir::OpBuilder &builder, Mark mark, mlir::ValueRange operands,
                      mlir::Type type, mlir::RankedTensorType local, int64_t stage);
  void addTransfers();
  void findRightOperands();
  bool isConvolved(mlir::Value value) const;
  void transposeChannels();
  void formCall(loom::DotGeneralOp dot, mlir::ValueRange operands);
  void formAttention(loom::SoftmaxOp softmax);
  void mergeProducts();
  void mergeParts(llvm::ArrayRef<loom::DotGeneralOp> parts);
  void formCalls();
  void eraseDead();
  void findCommunicated();
  void setLocal(mlir::Value value, mlir::RankedTensorType local);

  const dist::Mesh &mesh;
  const MemoryOptions &options;
  llvm::SmallVector<mlir::StringAttr, 1> stageAxes;
  mlir::OwningOpRef<mlir::ModuleOp> holder;
  mlir::func::FuncOp func;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> sources;
  llvm::DenseMap<mlir::Operation *, Mark> marks;
  llvm::DenseMap<mlir::Operation *, int64_t> stages;
  llvm::DenseMap<mlir::Operation *, std::pair<double, mlir::Attribute>> communications;
  llvm::DenseMap<mlir::Value, int64_t> bytes;
  llvm::DenseMap<mlir::Value, mlir::RankedTensorType> types;
  llvm::DenseMap<mlir::Value, mlir::Attribute> shardings;
  llvm::DenseSet<mlir::Value> communicated, rightOperands;
  llvm::DenseSet<mlir::Value> convolved; ///< results of calls of convolutions
  /// Operands in the shardings that operations need; until all operations are visited.
  std::vector<std::pair<mlir::Operation *, llvm::SmallVector<mlir::Value>>> replacements;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Version, 2>> versions;
  llvm::DenseMap<mlir::Operation *, FusionGroup> kernels;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_PLANNER_DEVICESKETCH_H
