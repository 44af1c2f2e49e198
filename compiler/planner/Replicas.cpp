//===- Replicas.cpp - copies of programs for several threads --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Replicas.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"

#include <mutex>
#include <optional>
#include <thread>

using namespace mlir;
using namespace gridloom;

struct Replicas::Worker {
  std::unique_ptr<MLIRContext> context;
  llvm::DenseMap<Operation *, OwningOpRef<ModuleOp>> copies;

  ModuleOp get(ModuleOp program, const llvm::DenseMap<Operation *, std::string> &texts) {
    OwningOpRef<ModuleOp> &copy = copies[program];
    if (!copy) {
      context->loadAllAvailableDialects();
      ParserConfig config(context.get(), /*verifyAfterParse=*/false);
      copy = parseSourceString<ModuleOp>(texts.find(program)->second, config);
    }
    return *copy;
  }
};

Replicas::Replicas(unsigned numThreads) : workers(numThreads - 1) {}

Replicas::~Replicas() = default;

namespace {
/// Tasks that threads take one by one.
class Tasks {
public:
  Tasks(size_t count, llvm::function_ref<MLIRContext *(size_t)> getHome)
      : homes(count), isTaken(count) {
    for (size_t i = 0; getHome && i < count; ++i)
      homes[i] = getHome(i);
  }
  /// The next task for the thread of a context; nullopt if all are taken.
  std::optional<size_t> take(MLIRContext *context) {
    std::lock_guard lock(mutex);
    size_t next = find([&](size_t i) { return homes[i] == context; });
    if (next == isTaken.size())
      next = find([](size_t) { return true; });
    if (next == isTaken.size())
      return std::nullopt;
    isTaken[next] = true;
    return next;
  }

private:
  /// The first task left for which this holds, or the number of tasks.
  size_t find(llvm::function_ref<bool(size_t)> holds) const {
    size_t i = 0;
    while (i < isTaken.size() && (isTaken[i] || !holds(i)))
      ++i;
    return i;
  }

  std::mutex mutex;
  std::vector<MLIRContext *> homes; ///< by task; null: any
  std::vector<bool> isTaken;
};
} // namespace

void Replicas::run(size_t count, ArrayRef<ModuleOp> programs,
                   llvm::function_ref<void(size_t, GetProgram)> task,
                   llvm::function_ref<MLIRContext *(size_t)> getHome) {
  Tasks tasks(count, getHome);
  size_t others = count == 0 ? 0 : std::min(workers.size(), count - 1);
  // Written before the threads start: they may not read another thread's context.
  for (ModuleOp program : programs)
    if (std::string &text = texts[program]; text.empty() && others > 0) {
      llvm::raw_string_ostream os(text);
      (void)writeBytecodeToFile(program, os);
    }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < others; ++i) {
    if (!workers[i]) {
      workers[i] = std::make_unique<Worker>();
      ModuleOp first = programs.front();
      workers[i]->context = std::make_unique<MLIRContext>(first.getContext()->getDialectRegistry(),
                                                          MLIRContext::Threading::DISABLED);
    }
    threads.emplace_back([&, worker = workers[i].get()] {
      while (std::optional<size_t> index = tasks.take(worker->context.get()))
        task(*index, [&](ModuleOp program) { return worker->get(program, texts); });
    });
  }
  MLIRContext *own = programs.empty() ? nullptr : ModuleOp(programs.front()).getContext();
  while (std::optional<size_t> index = tasks.take(own))
    task(*index, [](ModuleOp program) { return program; });
  for (std::thread &thread : threads)
    thread.join();
}
