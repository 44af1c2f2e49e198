//===- Registration.cpp - dialects and passes of the tools ----------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/Registration.h"

#include "compiler/codegen/Codegen.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/Passes.h"

#if __has_include("passes/simplify/Simplify.h")
#include "passes/simplify/Simplify.h"
#endif
#if __has_include("passes/shard/Shard.h")
#include "passes/shard/Shard.h"
#endif
#if __has_include("passes/partition/Partition.h")
#include "passes/partition/Partition.h"
#endif
#if __has_include("passes/communicate/Communicate.h")
#include "passes/communicate/Communicate.h"
#endif
#if __has_include("passes/layout/Layout.h")
#include "passes/layout/Layout.h"
#endif
#if __has_include("passes/fuse/Fuse.h")
#include "passes/fuse/Fuse.h"
#endif
#if __has_include("passes/schedule/Schedule.h")
#include "passes/schedule/Schedule.h"
#endif
#if __has_include("passes/allocate/Allocate.h")
#include "passes/allocate/Allocate.h"
#endif

void gridloom::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
}

void gridloom::registerPasses() {
  mlir::registerTransformsPasses();
  codegen::registerCodegenPasses();
#if __has_include("passes/simplify/Simplify.h")
  registerSimplifyPasses();
#endif
#if __has_include("passes/shard/Shard.h")
  registerShardPasses();
#endif
#if __has_include("passes/partition/Partition.h")
  registerPartitionPasses();
#endif
#if __has_include("passes/communicate/Communicate.h")
  registerCommunicatePasses();
#endif
#if __has_include("passes/layout/Layout.h")
  registerLayoutPasses();
#endif
#if __has_include("passes/fuse/Fuse.h")
  registerFusePasses();
#endif
#if __has_include("passes/schedule/Schedule.h")
  registerSchedulePasses();
#endif
#if __has_include("passes/allocate/Allocate.h")
  registerAllocatePasses();
#endif
}
