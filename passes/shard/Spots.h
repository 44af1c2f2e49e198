//===- Spots.h - the values of a program that can be split, by name -*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_SHARD_SPOTS_H
#define GRIDLOOM_PASSES_SHARD_SPOTS_H

#include "dialects/dist/Sharding.h"
#include "passes/shard/StrategyFile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace gridloom {

/// The owner of a sharding: a value, or a result of a function.
struct Spot {
  mlir::Value value;
  mlir::func::FuncOp func = nullptr;
  unsigned result = 0;

  mlir::RankedTensorType getType() const;
  dist::ShardingAttr get() const; ///< null if there is none
  std::string getOrigin() const;  ///< of the sharding; "" if there is none
  void set(dist::ShardingAttr sharding, llvm::StringRef origin) const;
  /// Unique for each spot.
  std::pair<const void *, unsigned> getKey() const {
    return {value ? value.getAsOpaquePointer() : func.getAsOpaquePointer(), result};
  }
};

/// A spot with the names that a strategy file has for it.
struct NamedSpot {
  StrategySection section;
  std::string full; ///< its own
  std::string base; ///< the weight's, shared by its copies
  Spot spot;
};

/// An operation with the names that a strategy file has for it.
struct NamedOp {
  std::string full; ///< "NODE", "NODE:broadcast#2"
  std::string base; ///< "NODE"
  mlir::Operation *op;
};

/// Names what a strategy file can address in a specialisation, in program order: inputs, outputs,
/// and in it and the bodies that it runs weights and results of operations.
///
/// An operation made of several nodes is named after the first. The last operation of a node has
/// the node's name; earlier ones are `NODE:broadcast`, `NODE:broadcast#2`. Results after the first
/// are `NODE:1`. Names in the body of a loop or branch NODE begin with `NODE/body/`, `NODE/then/`
/// or `NODE/else/`. Further copies of a weight are `NAME#2`; a derived weight has the program's
/// name, or the model's if it is only another form of one of the model's weights.
llvm::SmallVector<NamedSpot, 0> nameSpots(mlir::func::FuncOp func);

/// The operations of a specialisation that have a stage of their own (StageCuts.h), named by the
/// same rules as if there were no others.
llvm::SmallVector<NamedOp, 0> nameStagedOps(mlir::func::FuncOp func);

/// The first of the nodes an operation is made of; the operation's name if it has no node.
std::string getFirstNode(mlir::Operation *op);

/// "main", "main batch=8,sequence=32"
std::string nameSpecialisation(mlir::func::FuncOp func);

/// The specialisations of a program's entries.
llvm::SmallVector<mlir::func::FuncOp> listSpecialisations(mlir::ModuleOp module);

/// A state with different shardings in two places.
struct StateConflict {
  llvm::StringRef state;
  Spot first, second;
  std::string firstName, secondName; ///< "input 'past'", "output 'present'"
};

/// The first state whose given shardings differ between inputs or outputs of the specialisations.
std::optional<StateConflict> findStateConflict(mlir::ModuleOp module);

/// Copies the given sharding of a state's output to its input.
void joinStates(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPOTS_H
