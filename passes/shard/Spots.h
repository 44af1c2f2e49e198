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
  dist::ShardingAttr get() const; ///< null where there is none
  std::string getOrigin() const;  ///< of the sharding; "" of none
  void set(dist::ShardingAttr sharding, llvm::StringRef origin) const;
  /// Differs between spots.
  std::pair<const void *, unsigned> getKey() const {
    return {value ? value.getAsOpaquePointer() : func.getAsOpaquePointer(), result};
  }
};

/// A spot with the names that a strategy file has for it.
struct NamedSpot {
  StrategySection section;
  std::string full; ///< its own
  std::string base; ///< the weight's, of which there may be several copies
  Spot spot;
};

/// An operation with the names that a strategy file has for it.
struct NamedOp {
  std::string full; ///< "NODE", "NODE:broadcast#2"
  std::string base; ///< "NODE"
  mlir::Operation *op;
};

/// What a strategy file has names for in a specialisation: inputs and outputs, and in it and in the
/// bodies that it runs weights and results of operations, in program order.
///
/// An operation made of several nodes is called after the first. The last operation of a node has
/// the node's name; those before are `NODE:broadcast`, `NODE:broadcast#2`. Results after the first
/// are `NODE:1`. What is in the body of a loop or branch NODE begins with `NODE/body/`,
/// `NODE/then/` or `NODE/else/`. Further copies of a weight are `NAME#2`; a derived weight is
/// called as the program calls it, unless it is another form of one of the model's.
llvm::SmallVector<NamedSpot, 0> nameSpots(mlir::func::FuncOp func);

/// The operations of a specialisation that have a stage of their own (StageCuts.h), by the same
/// rules but for themselves.
llvm::SmallVector<NamedOp, 0> nameStagedOps(mlir::func::FuncOp func);

/// The first of the nodes an operation is made of; its operation's name where it has no node.
std::string getFirstNode(mlir::Operation *op);

/// "main", "main batch=8,sequence=32"
std::string nameSpecialisation(mlir::func::FuncOp func);

/// The specialisations of a program's entries.
llvm::SmallVector<mlir::func::FuncOp> listSpecialisations(mlir::ModuleOp module);

/// A state whose spots are split differently.
struct StateConflict {
  llvm::StringRef state;
  Spot first, second;
  std::string firstName, secondName; ///< "input 'past'", "output 'present'"
};

/// The first state of which a sharding is asked in one place and another in another place, be it an
/// input or an output of a specialisation.
std::optional<StateConflict> findStateConflict(mlir::ModuleOp module);

/// Gives a state's input the sharding that its output has been given.
void joinStates(mlir::ModuleOp module);

} // namespace gridloom

#endif // GRIDLOOM_PASSES_SHARD_SPOTS_H
