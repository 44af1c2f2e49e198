//===- Interpreter.h - the reference interpreter ----------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Runs the program of any phase from import to fuse in one process, simply rather than fast. A
// partitioned program runs on as many virtual ranks as its mesh has devices, each taking its
// operations in order, so that a wrong order of communication shows as it would on real devices.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_INTERPRETER_H
#define GRIDLOOM_COMPILER_INTERPRETER_INTERPRETER_H

#include "compiler/interpreter/DeviceMesh.h"
#include "compiler/interpreter/Evaluator.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <functional>
#include <map>

namespace gridloom {

/// Global tensors by the name of the input or output.
using NamedTensors = llvm::StringMap<loom::HostTensor>;

/// The functions of one specialisation of an entry: one function, or one per pipeline stage.
struct Specialisation {
  std::string entry;
  mlir::DictionaryAttr dims;
  /// True after partitioning: types are local, and there is one function per stage.
  bool partitioned = false;
  llvm::SmallVector<mlir::func::FuncOp> stages;
};

/// The specialisations of a module, in order.
llvm::SmallVector<Specialisation> getSpecialisations(mlir::ModuleOp module);

/// The states of a session, whole, by stage and name.
using StateStore = std::map<std::pair<int64_t, std::string>, loom::HostTensor>;

struct InterpreterOptions {
  /// Floats are elements of a finite field, so that splitting a program changes no bit
  /// (ExactField.h).
  bool exact = false;
  /// Called with the results of every operation of the functions, transfers and kernels' insides
  /// excepted.
  std::function<void(mlir::Operation *, Place, llvm::ArrayRef<loom::HostTensor>)> observer;
  /// States that the run reads and updates; a missing one is the weight that it begins with, or
  /// zeros. Null: the run takes states from `inputs`, if given.
  StateStore *states = nullptr;
};

class Interpreter {
public:
  /// `weights` must outlive the interpreter.
  Interpreter(mlir::ModuleOp module, WeightProvider &weights, InterpreterOptions options = {});

  /// The specialisation's outputs. Inputs are global tensors of all micro-batches together. Fails
  /// with a diagnostic on the operation at fault: inputs that are missing or of another shape, a
  /// deadlock, ranks that disagree on a collective, replicas of an output that differ.
  llvm::FailureOr<NamedTensors> run(const Specialisation &specialisation,
                                    const NamedTensors &inputs);

  const DeviceMesh &getMesh() const { return mesh; }

private:
  mlir::ModuleOp module;
  WeightProvider &weights;
  InterpreterOptions options;
  DeviceMesh mesh;
};

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_INTERPRETER_H
