//===- Machine.h - virtual ranks --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_COMPILER_INTERPRETER_MACHINE_H
#define GRIDLOOM_COMPILER_INTERPRETER_MACHINE_H

#include "compiler/interpreter/Interpreter.h"

#include <deque>
#include <map>

namespace gridloom {

/// Binds arguments and takes results of a function at one place.
using BindArguments = llvm::function_ref<llvm::FailureOr<TensorList>(mlir::func::FuncOp, Place)>;
using TakeResults = llvm::function_ref<mlir::LogicalResult(mlir::func::FuncOp, Place, TensorList)>;

/// Runs stage functions on virtual ranks. Each rank takes its operations in order until it must
/// wait for others; ranks take turns. Communication is matched as transports do: the n-th
/// collective of each member of a group with the n-th of the others, transfers by channel.
class Machine {
public:
  Machine(const DeviceMesh &mesh, Evaluator &evaluator, const InterpreterOptions &options)
      : mesh(mesh), evaluator(evaluator), options(options) {}

  /// `stages[s]` runs on the ranks of stage s, once per micro-batch. A function that is not
  /// partitioned runs on one rank.
  mlir::LogicalResult run(llvm::ArrayRef<mlir::func::FuncOp> stages, bool partitioned,
                          BindArguments bind, TakeResults take);

private:
  /// Values in flight.
  struct Completion {
    bool ready = false;
    TensorList values;
  };
  using CompletionRef = std::shared_ptr<Completion>;

  /// The results of a dist.start: the communication that each comes from, and its index there.
  struct Future {
    llvm::SmallVector<CompletionRef> all;
    llvm::SmallVector<std::pair<CompletionRef, size_t>> results;
  };

  /// A loop or branch whose body a rank is in.
  struct Frame {
    mlir::Operation *op;
    mlir::func::FuncOp body;
    TensorList captures;
  };

  struct Rank {
    Place place;
    mlir::func::FuncOp function;
    mlir::Block::iterator next;
    llvm::SmallVector<Frame> frames;
    bool finished = false;
    llvm::DenseMap<mlir::Value, loom::HostTensor> values;
    llvm::DenseMap<mlir::Value, Future> futures;
    /// Communication that `next` has posted and waits for.
    std::optional<Future> waiting;
  };

  struct Posting {
    mlir::Operation *op;
    int64_t rank;
    TensorList inputs;
    CompletionRef completion;
  };
  struct Channel {
    std::deque<Posting> sends, receives;
  };

  enum class Step { Advanced, Blocked };

  mlir::LogicalResult beginFunction(Rank &rank, BindArguments bind);
  llvm::FailureOr<Step> step(Rank &rank, BindArguments bind, TakeResults take);
  mlir::LogicalResult enterControl(Rank &rank, mlir::Operation *op);
  void enterBody(Rank &rank, Frame &frame, TensorList arguments);
  mlir::LogicalResult leaveBody(Rank &rank, TensorList results);
  llvm::FailureOr<Step> stepCommunication(Rank &rank, mlir::Operation *op);
  llvm::FailureOr<Step> stepDone(Rank &rank, dist::DoneOp op);
  mlir::LogicalResult stepStart(Rank &rank, dist::StartOp op);
  mlir::LogicalResult finish(Rank &rank, mlir::Operation *op,
                             llvm::ArrayRef<loom::HostTensor> results);
  llvm::FailureOr<TensorList> evaluateLocal(Rank &rank, mlir::Operation *op,
                                            llvm::ArrayRef<loom::HostTensor> operands);
  TensorList getOperands(Rank &rank, mlir::Operation *op);
  void dropDeadValues(Rank &rank, mlir::Operation *op);

  llvm::FailureOr<CompletionRef> post(Rank &rank, mlir::Operation *op);
  llvm::FailureOr<CompletionRef> postTransfer(Rank &rank, mlir::Operation *op);
  llvm::FailureOr<CompletionRef> postCollective(Rank &rank, mlir::Operation *op);
  mlir::LogicalResult match(Channel &channel);
  mlir::LogicalResult match(llvm::ArrayRef<int64_t> members,
                            std::map<int64_t, std::deque<Posting>> &queues);
  mlir::LogicalResult reportDeadlock(llvm::ArrayRef<Rank> ranks);

  const DeviceMesh &mesh;
  Evaluator &evaluator;
  const InterpreterOptions &options;
  /// Per group (its axes and its members) and member, the collectives not matched yet.
  std::map<std::pair<std::string, int64_t>, std::map<int64_t, std::deque<Posting>>> collectives;
  /// Per sender, receiver and channel number.
  std::map<std::tuple<int64_t, int64_t, int64_t>, Channel> channels;
  /// Values whose last use is the operation.
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Value>> dying;
};

/// The outputs of a collective for each member, from their inputs in the group's order.
/// `op` is any member's operation.
llvm::FailureOr<llvm::SmallVector<TensorList>>
evaluateCollective(mlir::Operation *op, llvm::ArrayRef<TensorList> inputs);

} // namespace gridloom

#endif // GRIDLOOM_COMPILER_INTERPRETER_MACHINE_H
