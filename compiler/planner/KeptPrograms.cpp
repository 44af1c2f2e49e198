//===- KeptPrograms.cpp - programs kept from weighing to trying out -------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/planner/KeptPrograms.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace gridloom;

/// Programs kept per context. Two are tried out together, and both may have been weighed in one.
static constexpr size_t kMostKept = 2;

void KeptPrograms::keep(size_t candidate, double seconds, OwningOpRef<ModuleOp> program) {
  OwningOpRef<ModuleOp> unused; // destroyed after the lock
  std::lock_guard lock(mutex);
  auto &list = lists[program->getContext()];
  if (list.size() < kMostKept) {
    list.push_back({candidate, seconds, std::move(program)});
    return;
  }
  auto worst =
      llvm::max_element(list, [](const Kept &a, const Kept &b) { return a.seconds < b.seconds; });
  if (worst->seconds <= seconds)
    return;
  unused = std::move(worst->program);
  *worst = {candidate, seconds, std::move(program)};
}

OwningOpRef<ModuleOp> KeptPrograms::take(size_t candidate, MLIRContext *context) {
  std::lock_guard lock(mutex);
  auto &list = lists[context];
  auto found = llvm::find_if(list, [&](const Kept &kept) { return kept.candidate == candidate; });
  if (found == list.end())
    return nullptr;
  OwningOpRef<ModuleOp> program = std::move(found->program);
  list.erase(found);
  return program;
}

void KeptPrograms::drop(size_t candidate) {
  std::lock_guard lock(mutex);
  for (auto &[context, list] : lists)
    llvm::erase_if(list, [&](const Kept &kept) { return kept.candidate == candidate; });
}

MLIRContext *KeptPrograms::findContext(size_t candidate) {
  std::lock_guard lock(mutex);
  for (auto &[context, list] : lists)
    if (llvm::any_of(list, [&](const Kept &kept) { return kept.candidate == candidate; }))
      return context;
  return nullptr;
}
