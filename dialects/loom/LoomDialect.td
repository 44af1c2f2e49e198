//===- LoomDialect.td - the loom dialect --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_DIALECT
#define GRIDLOOM_LOOM_DIALECT

include "mlir/IR/OpBase.td"

def LoomDialect : Dialect {
  let name = "loom";
  let cppNamespace = "::gridloom::loom";
  let summary = "The tensor program";
  let description = [{
    Tensor operations with value semantics and static shapes, named as the field names them. An
    operation's location is the name of the ONNX node it came from.

    Attribute names on functions and modules:

    | name | on | meaning |
    |---|---|---|
    | `loom.entry` | function | name of the entry it specialises, e.g. `main` |
    | `loom.dims` | function | dictionary of symbolic dimensions bound in it |
    | `loom.name` | function argument, function result | the ONNX name of the input or output |
    | `loom.dim_names` | same | symbolic name per dimension, empty where the model gave a number |
    | `loom.global_type` | same, after partitioning | the type of the whole |
    | `loom.body` | function | it is the body of a loop or branch, not of an entry |
    | `loom.state` | function argument, function result | the state it is before, or after, a call |
    | `loom.model` | module | path, size and digest of the model file |
    | `loom.precision` | module | tf32, bf16 or f16 where the user allowed it |
    | `loom.folded` | module | initializers whose values were folded into the program |
    | `loom.grad_of` | any op | the operation it is a derivative of (training) |
    | `loom.recompute` | any op | recomputed rather than kept (training) |
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
  let useDefaultAttributePrinterParser = 1;
}

#endif
