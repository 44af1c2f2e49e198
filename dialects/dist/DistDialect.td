//===- DistDialect.td - the dist dialect --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_DIST_DIALECT
#define GRIDLOOM_DIST_DIALECT

include "mlir/IR/OpBase.td"

def DistDialect : Dialect {
  let name = "dist";
  let cppNamespace = "::gridloom::dist";
  let summary = "Meshes, shardings, collectives and pipeline transfers";
  let description = [{
    `dist` describes how tensors are split over a mesh of devices, and how the devices communicate.
    Before partitioning, values are global and carry `#dist.sharding`; afterwards every value is one
    device's local shard and all communication is an operation of this dialect.

    Attribute names used on operations of other dialects:

    | name | on | meaning |
    |---|---|---|
    | `dist.shardings` | any op of the program | one `#dist.sharding` per result |
    | `dist.origins` | same | one `#dist.origin` per result: where the sharding comes from |
    | `dist.sharding`, `dist.origin` | function argument, function result | the same for an entry's inputs and outputs |
    | `dist.splits` | any op with a sharding rule, between the shard phase and partitioning | `#dist.splits`: how its factors are split; partitioning does what it says |
    | `dist.storage` | an op that reads a weight, an argument that is a state, until partitioning | `#dist.sharding`: how it lies in memory, whatever it is used as |
    | `dist.stage` | any op, function, argument that is a state | pipeline stage, counted from 0; for a state, the stage that keeps it |
    | `dist.cluster` | module | the kinds of devices and levels of links that costs depend on; without it CPU ranks of one host |
    | `dist.because` | collectives and transfers | why the communication happens: a sentence that names the ONNX node |
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

#endif
