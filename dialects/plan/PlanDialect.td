//===- PlanDialect.td - the plan dialect --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_DIALECT
#define GRIDLOOM_PLAN_DIALECT

include "mlir/IR/OpBase.td"

def PlanDialect : Dialect {
  let name = "plan";
  let cppNamespace = "::gridloom::plan";
  let summary = "What a pipeline stage executes";
  let description = [{
    First `plan.kernel`, `plan.call` and `plan.matmul` group the tensor program into kernels and
    library calls; then `plan.program` holds the same work on buffers, with streams and events. The
    plan file's programs are these operations, one to one.
  }];
  let dependentDialects = ["::gridloom::loom::LoomDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

#endif
