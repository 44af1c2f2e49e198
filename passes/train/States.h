//===- States.h - states of training steps ----------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_PASSES_TRAIN_STATES_H
#define GRIDLOOM_PASSES_TRAIN_STATES_H

#include "dialects/loom/Signature.h"
#include "dialects/loom/Training.h"

#include "llvm/ADT/MapVector.h"

namespace gridloom::train {

/// Adds an input as the last argument. `dimNames` has a name, which may be empty, per dimension.
mlir::BlockArgument addInput(mlir::func::FuncOp function, llvm::StringRef name,
                             mlir::RankedTensorType type, llvm::ArrayRef<llvm::StringRef> dimNames);
/// Adds a setting of the run, such as the learning rate, as the last argument.
mlir::BlockArgument addSetting(mlir::func::FuncOp function, llvm::StringRef name,
                               mlir::RankedTensorType type);
/// Adds a state as the last argument; `init` is the weight that it begins with, null for zeros.
mlir::BlockArgument addState(mlir::func::FuncOp function, llvm::StringRef name,
                             mlir::RankedTensorType type, llvm::StringRef role,
                             mlir::StringAttr init);

/// Collects new results for a function.
class Results {
public:
  explicit Results(mlir::func::FuncOp function) : function(function) {}

  void addOutput(llvm::StringRef name, mlir::Value value);
  /// The next value of a state.
  void addState(llvm::StringRef name, mlir::Value value);
  /// Replaces the function's results, and removes inputs that are no longer read.
  void commit();

private:
  void add(llvm::StringRef name, mlir::Value value, bool isState);

  mlir::func::FuncOp function;
  llvm::SmallVector<mlir::Value> values;
  llvm::SmallVector<mlir::DictionaryAttr> attributes;
};

/// Replaces reads of the weights in `weights`, which maps names to roles, by states, and returns
/// these arguments by name.
llvm::MapVector<mlir::StringAttr, mlir::BlockArgument>
makeStates(mlir::func::FuncOp function,
           const llvm::MapVector<mlir::StringAttr, llvm::StringRef> &weights);

} // namespace gridloom::train

#endif // GRIDLOOM_PASSES_TRAIN_STATES_H
