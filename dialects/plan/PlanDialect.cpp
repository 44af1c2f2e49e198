//===- PlanDialect.cpp - attributes, types, registration ------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "dialects/plan/Plan.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace gridloom::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#include "dialects/plan/PlanEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.cpp.inc"

void PlanDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/plan/PlanAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/plan/PlanTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

LogicalResult MatmulAttr::verify(llvm::function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<int64_t> sizes, ArrayRef<int64_t> lhs,
                                 ArrayRef<int64_t> rhs, ArrayRef<int64_t> out, FloatAttr,
                                 Epilogue) {
  if (sizes.size() < 3)
    return emitError() << "a matmul has at least M, N and K, not " << sizes.size() << " sizes";
  for (ArrayRef<int64_t> strides : {lhs, rhs, out}) {
    if (strides.size() + 1 != sizes.size()) // P-MM1
      return emitError() << strides.size() << " strides for " << sizes.size() << " sizes; expected "
                         << sizes.size() - 1;
    if (strides.back() != 1 && strides.drop_back().back() != 1) // P-MM2
      return emitError() << "neither of the strides " << strides.drop_back().back() << " and "
                         << strides.back() << " is 1";
  }
  return success();
}
