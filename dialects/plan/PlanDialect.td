//===- PlanDialect.td - the plan dialect --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PLAN_DIALECT
#define GRIDLOOM_PLAN_DIALECT

include "mlir/IR/OpBase.td"

def PlanDialect : Dialect {
  let name = "plan";
  let cppNamespace = "::gridloom::plan";
  let summary = "What a pipeline stage executes";
  let description = [{
    The fuse phase groups the tensor program into kernels (`plan.kernel`, `plan.call`) and library calls
    (`plan.matmul`, `plan.convolution`, `plan.attention`). The schedule phase turns them into a `plan.program`:
    steps on buffers, with streams and events. The plan file stores these operations one to one.
  }];
  let dependentDialects = ["::gridloom::loom::LoomDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

#endif
