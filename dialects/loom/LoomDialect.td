//===- LoomDialect.td - the loom dialect --------------------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_DIALECT
#define GRIDLOOM_LOOM_DIALECT

include "mlir/IR/OpBase.td"

def LoomDialect : Dialect {
  let name = "loom";
  let cppNamespace = "::gridloom::loom";
  let summary = "The tensor program";
  let description = [{
    Tensor operations with value semantics and static shapes, under the names XLA and StableHLO use. An
    operation's location is the name of the ONNX node it came from.

    Attribute names on functions and modules:

    | name | on | meaning |
    |---|---|---|
    | `loom.entry` | function | the entry that the function specialises, e.g. `main` |
    | `loom.dims` | function | symbolic dimensions and the sizes they are bound to |
    | `loom.name` | function argument, function result | the ONNX name of the input or output |
    | `loom.dim_names` | same | symbolic name of each dimension, empty where the model gives a number |
    | `loom.global_type` | same, after partitioning | the type of the global tensor, of which this is a shard |
    | `loom.body` | function | marks the body of a loop or branch; other functions are entries |
    | `loom.state` | function argument, function result | the state whose value before (argument) or after (result) a call this is |
    | `loom.init` | function argument that is a state | the weight that the state begins with; zeros without it |
    | `loom.role` | function argument | what it is to training: a state that is a `parameter`, `moment`, `statistic` or `counter`, or an input that is a `setting` |
    | `loom.trains` | module | imported to be trained, as entries `train_step` and `main` |
    | `loom.batch` | function of entry `train_step` | {name, parts}: it computes one of so many parts of the batch |
    | `loom.frozen` | `loom.get_weight` | why training leaves the weight alone |
    | `loom.flat` | any operation | derivatives take its result as a constant |
    | `loom.updates` | function result | the weight whose value after a training step this is, as running statistics have it |
    | `loom.training` | module | of a training step: the usual `learning_rate`, the texts of `losses` and `optimizer` |
    | `loom.model` | module | path, size and digest of the model file |
    | `loom.precision` | module | the `--precision` in use: tf32, bf16 or f16; absent for f32 |
    | `loom.phase` | module | the phase that ran last; `--start-from` refuses to leave one out |
    | `loom.folded` | module | initializers whose values were folded into the program |
  }];
  let dependentDialects = ["::gridloom::dist::DistDialect"];
  let useDefaultAttributePrinterParser = 1;
}

#endif
