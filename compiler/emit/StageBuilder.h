//===- StageBuilder.h - one stage's program as protobuf ---------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_EMIT_STAGEBUILDER_H
#define GRIDLOOM_COMPILER_EMIT_STAGEBUILDER_H

#include "compiler/codegen/Codegen.h"
#include "dialects/plan/Plan.h"
#include "runtime/core/plan.pb.h"

#include "llvm/ADT/MapVector.h"

#include <set>

namespace gridloom {

/// Translates plan.program operations to a schema::Stage, one to one. Kernels, weights and origins
/// are numbered in order of first use.
class StageBuilder {
public:
  StageBuilder(mlir::ModuleOp module, const llvm::StringMap<schema::Kernel> &kernels);

  mlir::LogicalResult add(plan::ProgramOp program);
  schema::Stage take() { return std::move(stage); }
  /// Names of the model's weights that the stage needs, prologue included.
  const std::set<std::string> &getSources() const { return sources; }

private:
  /// State of the translation of one program or one prologue.
  struct Scope {
    schema::Specialisation *specialisation = nullptr;
    google::protobuf::RepeatedPtrField<schema::Buffer> *buffers = nullptr;
    llvm::DenseMap<mlir::Value, uint32_t> indices;
    llvm::DenseMap<plan::StreamAttr, uint32_t> streams;
    uint32_t numEvents = 0;
  };

  mlir::LogicalResult addBuffer(plan::BufferOp op, Scope &scope);
  mlir::FailureOr<uint32_t> addWeight(plan::BufferOp op);
  mlir::FailureOr<uint32_t> addState(plan::BufferOp op, const schema::Buffer &buffer);
  void addAlias(plan::AliasOp op, Scope &scope);
  mlir::LogicalResult addDerived(loom::DerivedOp op);
  mlir::LogicalResult addDerivedStep(mlir::Operation &op, Scope &scope, schema::Derived &derived);
  uint32_t addDerivedBuffer(mlir::Value value, Scope &scope, schema::Derived &derived);
  mlir::LogicalResult addControl(mlir::Block &block, Scope &scope,
                                 google::protobuf::RepeatedPtrField<schema::Control> &body);
  mlir::LogicalResult addStep(mlir::Operation &op, Scope &scope, schema::Block &block);
  void fillGroup(plan::GroupOp op, Scope &scope, schema::Group &group);
  mlir::FailureOr<uint32_t> getKernel(mlir::Operation *op, llvm::StringRef name);
  uint32_t getStream(plan::StreamAttr stream, Scope &scope);
  uint32_t getOrigin(mlir::Location loc);

  mlir::ModuleOp module;
  const llvm::StringMap<schema::Kernel> &kernels;
  schema::Stage stage;
  std::map<std::string, uint32_t> kernelIndex, originIndex, causeIndex;
  llvm::DenseMap<mlir::Attribute, uint32_t> weightIndex;
  std::set<std::string> derivedNames, sources;
};

/// The schema's element type; unspecified if plans have none for it.
schema::DataType toSchemaType(mlir::Type element);
/// The type's name in manifests: f32, i64, bool, ...
llvm::StringRef toManifestType(mlir::Type element);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_EMIT_STAGEBUILDER_H
