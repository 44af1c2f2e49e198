//===- Placement.h - strides of mesh axes in ranks --------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_DIST_PLACEMENT_H
#define GRIDLOOM_DIALECTS_DIST_PLACEMENT_H

#include "dialects/dist/Sharding.h"

namespace gridloom::dist {

/// The axes of the list with their sizes and strides in ranks, innermost first. Devices are
/// numbered row-major over the mesh; the axis of micro-batches has none.
llvm::SmallVector<cluster::PlacedAxis, 4> placeAxes(const Mesh &mesh,
                                                    llvm::ArrayRef<mlir::StringAttr> along);

} // namespace gridloom::dist

#endif // GRIDLOOM_DIALECTS_DIST_PLACEMENT_H
