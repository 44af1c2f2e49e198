//===- Replicas.cpp - copies of programs for several threads --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/Replicas.h"

#include "mlir/Bytecode/BytecodeWriter.h"
#include "mlir/Parser/Parser.h"

#include <atomic>
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

void Replicas::run(size_t count, ArrayRef<ModuleOp> programs,
                   llvm::function_ref<void(size_t, GetProgram)> task) {
  std::atomic<size_t> next = 0;
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
      for (size_t index = next++; index < count; index = next++)
        task(index, [&](ModuleOp program) { return worker->get(program, texts); });
    });
  }
  for (size_t index = next++; index < count; index = next++)
    task(index, [](ModuleOp program) { return program; });
  for (std::thread &thread : threads)
    thread.join();
}
