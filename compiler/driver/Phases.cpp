//===- Phases.cpp - the phase table -----------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Phases.h"

#include "compiler/driver/Options.h"
#include "passes/allocate/Allocate.h"
#include "passes/communicate/Communicate.h"
#include "passes/partition/Partition.h"
#include "passes/schedule/Schedule.h"

#include "llvm/Support/Format.h"

using namespace mlir;
using namespace gridloom;

static const Phase phases[] = {
    {"import", "ONNX to loom; weights stay in their files",
     "only loom operations; shapes static; every operation is located at its ONNX node",
     [](OpPassManager &pm, const PhaseContext &) { addImportVerify(pm); }},
    {"simplify",
     "fold shapes and constants, recognise composites, set the precision, move weight-only work to "
     "the prologue",
     "nothing is left that can be computed at compile time",
     [](OpPassManager &pm, const PhaseContext &context) {
       addSimplifyPasses(pm, context.simplify);
     }},
    {"shard", "a sharding for every value and a stage for every operation",
     "every value has a sharding with an origin",
     [](OpPassManager &pm, const PhaseContext &context) { addShardPasses(pm, context.shard); }},
    {"partition", "global to local shapes; reshards become collectives, stages become functions",
     "only local shapes; no implicit communication",
     [](OpPassManager &pm, const PhaseContext &) { addPartitionPasses(pm); }},
    {"communicate",
     "form reduce-scatters, combine small collectives, make data contiguous, form groups",
     "all communication is in groups on contiguous data",
     [](OpPassManager &pm, const PhaseContext &context) {
       addCommunicatePasses(pm, context.communicate);
     }},
    {"layout", "choose the weights' physical layouts",
     "a weight has one layout wherever it is read; all else is dense and row-major",
     [](OpPassManager &pm, const PhaseContext &context) { addLayoutPasses(pm, context.layout); }},
    {"fuse", "group operations into kernels and library calls",
     "every operation is in exactly one kernel, library call or group",
     [](OpPassManager &pm, const PhaseContext &context) { addFusePasses(pm, context.fuse); }},
    {"schedule", "order work to hide communication; streams and events",
     "cross-stream uses are covered by events; communication cannot deadlock",
     [](OpPassManager &pm, const PhaseContext &) { addSchedulePasses(pm); }},
    {"allocate", "lifetimes to offsets", "buffers live at once do not overlap",
     [](OpPassManager &pm, const PhaseContext &) { addAllocatePasses(pm); }},
    {"emit", "kernels to object code; write the plan", "the plan loads and its checksums hold",
     nullptr},
};

ArrayRef<Phase> gridloom::getPhases() { return phases; }

std::optional<size_t> gridloom::findPhase(StringRef name) {
  for (auto [i, phase] : llvm::enumerate(getPhases()))
    if (phase.name == name)
      return i;
  return std::nullopt;
}

std::string gridloom::listPhases() {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const Phase &phase : getPhases())
    os << llvm::format("%-12s", phase.name.data()) << phase.summary
       << "; after it: " << phase.guarantee << "\n";
  return text;
}
