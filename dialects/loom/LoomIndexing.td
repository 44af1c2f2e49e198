//===- LoomIndexing.td - order, running values, elements by index -*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_INDEXING
#define GRIDLOOM_LOOM_INDEXING

include "dialects/dist/DistEnums.td"
include "dialects/loom/LoomBase.td"

def Loom_I64Tensor : StaticShapeTensorOf<[I64]>;

class Loom_IndexingOp<string mnemonic, list<Trait> traits = [], list<string> rule = ["partition"]>
    : Loom_Op<mnemonic, traits, rule, ["getFlops"]> {
  let hasVerifier = 1;
}

def Loom_ReverseOp : Loom_IndexingOp<"reverse", [SameOperandsAndResultType], ["isLinear", "partition"]> {
  let summary = "The elements along `dims` in the opposite order";
  let description = [{
    **Constraints:**
    - L-RV1: `dims` are dimensions of the input, increasing strictly.
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `dims` `=` $dims attr-dict `:` type($output)";
}

def Loom_GatherElementsOp : Loom_IndexingOp<"gather_elements"> {
  let summary = "For each index, the element of `input` there along `dim` and at the index's own place in the others";
  let description = [{
    output[i][j] = input[indices[i][j]][j] for dim = 0. Indices are in [0, input dim).

    **Constraints:**
    - L-GE1: input and indices are of equal shape but for `dim`.
    - L-GE2: the output has the indices' shape and the input's element type.
  }];
  let arguments = (ins Loom_Tensor:$input, Loom_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `,` $indices `dim` `=` $dim attr-dict `:` functional-type(operands, results)";
}

def Loom_ScatterOp : Loom_IndexingOp<"scatter", [AllTypesMatch<["input", "output"]>]> {
  let summary = "A copy of `input` with updates written, or reduced, into it along `dim`";
  let description = [{
    Indices either have the updates' shape, one per element, or are one-dimensional, one per slice of
    `dim`. Updates apply in row-major order; those whose index is not in [0, input dim) do not apply.

    ```mlir
    %y = loom.scatter %x, %indices, %updates dim = 0 reduce = sum
        : (tensor<10x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<10x4xf32>
    ```

    **Constraints:**
    - L-SC1: updates and input are of one element type, and of equal shape but for `dim`.
    - L-SC2: indices have the updates' shape or as many elements, in one dimension, as `dim` of the updates.
  }];
  let arguments = (ins Loom_Tensor:$input, Loom_IntTensor:$indices, Loom_Tensor:$updates, I64Attr:$dim,
      OptionalAttr<ReductionKindAttr>:$reduction);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$input `,` $indices `,` $updates `dim` `=` $dim (`reduce` `=` $reduction^)? attr-dict
      `:` functional-type(operands, results)}];
  let extraClassDeclaration = [{
    /// One index for each slice of the updates, rather than one for each element.
    bool takesSlices() { return getIndices().getType().getShape() != getUpdates().getType().getShape(); }
  }];
}

def Loom_CumulativeOp : Loom_IndexingOp<"cumulative", [Loom_AmplifiesError, SameOperandsAndResultType]> {
  let summary = "Running sum, product, maximum or minimum along `dim`";
  let description = [{
    `exclusive` leaves the element itself out, so that the first result is the neutral element;
    `reverse` runs from the end.
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, I64Attr:$dim, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$kind $input `dim` `=` $dim (`exclusive` $exclusive^)? (`reverse` $reverse^)? attr-dict
      `:` type($output)}];
}

def Loom_ArgReduceOp : Loom_IndexingOp<"arg_reduce", [Loom_AmplifiesError, DeclareOpInterfaceMethods<DecomposeInterface>]> {
  let summary = "Where along `dim`, which disappears, the largest or smallest element is";
  let description = [{
    The first of several, or with `last` the last. NaN counts as both the largest and the smallest.

    **Constraints:**
    - L-AR1: `kind` is max or min.
    - L-AR2: the output's shape is the input's without `dim`, which is not empty.
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, I64Attr:$dim, UnitAttr:$last);
  let results = (outs Loom_I64Tensor:$output);
  let assemblyFormat = "$kind $input `dim` `=` $dim (`last` $last^)? attr-dict `:` functional-type(operands, results)";
}

def Loom_ArgsortOp : Loom_IndexingOp<"argsort", [Loom_AmplifiesError]> {
  let summary = "The first elements' places along `dim` when it is sorted";
  let description = [{
    The output has as many as its size of `dim` says: with all of them it sorts, with few of them it
    selects. Equal elements keep their order. NaN is greater than every number, and equal to NaN.
    The elements themselves are a `gather_elements` away.

    **Constraints:**
    - L-AS1: the output is of the input's shape but for `dim`, which is at most the input's.
  }];
  let arguments = (ins Loom_Tensor:$input, I64Attr:$dim, UnitAttr:$descending);
  let results = (outs Loom_I64Tensor:$output);
  let assemblyFormat = [{$input `dim` `=` $dim (`descending` $descending^)? attr-dict
      `:` functional-type(operands, results)}];
}

#endif
