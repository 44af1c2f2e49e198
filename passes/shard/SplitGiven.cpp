//===- SplitGiven.cpp - given shardings, as a search keeps them -----------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/SplitGiven.h"

#include "dialects/dist/Splits.h"
#include "dialects/loom/Loom.h"

using namespace mlir;
using namespace gridloom;
using namespace gridloom::dist;

/// The sharding over devices, without micro-batches.
static Sharding dropMicrobatches(ShardingAttr attr) {
  Sharding sharding(attr);
  for (Sharding::Dim &dim : sharding.dims)
    llvm::erase_if(dim.axes, isMicroAxis);
  return sharding;
}

bool gridloom::admits(ShardingAttr pin, ShardingAttr sharding) {
  Sharding given = dropMicrobatches(pin), wanted = dropMicrobatches(sharding);
  for (auto [have, want] : llvm::zip_equal(given.dims, wanted.dims)) {
    if (have.open ? !isPrefix(have.axes, want.axes) : have.axes != want.axes)
      return false;
    if (!have.axes.empty() && have.granule != want.granule)
      return false;
  }
  return true;
}

bool gridloom::isClosed(ShardingAttr sharding) {
  return llvm::none_of(sharding.getDims(), [](DimShardingAttr dim) { return dim.getOpen(); });
}

ShardingAttr gridloom::getClosed(ShardingAttr sharding, const Mesh &mesh) {
  Sharding closed(sharding);
  for (Sharding::Dim &dim : closed.dims)
    dim.open = false;
  return closed.getAttr(mesh);
}

bool gridloom::isPinned(ShardingAttr given) {
  return given && llvm::any_of(given.getDims(), [](DimShardingAttr dim) {
           return !dim.getOpen() || !llvm::all_of(dim.getAxes(), isMicroAxis);
         });
}

ShardingAttr gridloom::getGivenPlace(Value value) {
  if (!isa<BlockArgument>(value) && !value.getDefiningOp<loom::GetWeightOp>())
    return {};
  ShardingAttr given = getGivenSharding(value);
  return isPinned(given) ? given : ShardingAttr();
}
