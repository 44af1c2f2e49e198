//===- Plan.h - the plan dialect --------------------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_DIALECTS_PLAN_PLAN_H
#define GRIDLOOM_DIALECTS_PLAN_PLAN_H

#include "dialects/loom/Loom.h"

#include "dialects/plan/PlanDialect.h.inc"
#include "dialects/plan/PlanEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.h.inc"

#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.h.inc"

namespace gridloom::plan {

/// The dimension sizes of a program, as "batch=8,sequence=32", or "".
std::string formatDims(mlir::DictionaryAttr dims);

} // namespace gridloom::plan

#endif // GRIDLOOM_DIALECTS_PLAN_PLAN_H
