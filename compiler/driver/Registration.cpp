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

#include "passes/allocate/Allocate.h"
#include "passes/communicate/Communicate.h"
#include "passes/differentiate/Differentiate.h"
#include "passes/fuse/Fuse.h"
#include "passes/layout/Layout.h"
#include "passes/partition/Partition.h"
#include "passes/schedule/Schedule.h"
#include "passes/shard/Shard.h"
#include "passes/simplify/Simplify.h"
#include "passes/train/Train.h"

void gridloom::registerDialects(mlir::DialectRegistry &registry) {
  registry
      .insert<mlir::func::FuncDialect, dist::DistDialect, loom::LoomDialect, plan::PlanDialect>();
}

void gridloom::registerPasses() {
  mlir::registerTransformsPasses();
  codegen::registerCodegenPasses();
  registerDifferentiatePasses();
  registerTrainPasses();
  registerSimplifyPasses();
  registerShardPasses();
  registerPartitionPasses();
  registerCommunicatePasses();
  registerLayoutPasses();
  registerFusePasses();
  registerSchedulePasses();
  registerAllocatePasses();
}
