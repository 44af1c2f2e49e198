//===- LoomIndexing.td - sorting, scans, gather and scatter -*- tablegen -*-===//
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
    Element i of a reversed dimension of size n is the input's element n - 1 - i.

    ```mlir
    %y = loom.reverse %x dims = [0, 1] : tensor<4x6xf32>
    ```

    **Constraints:**
    - L-RV1: `dims` are dimensions of the input, increasing strictly.
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `dims` `=` $dims attr-dict `:` type($output)";
}

def Loom_GatherElementsOp : Loom_IndexingOp<"gather_elements"> {
  let summary = "Picks one element of `input` along `dim` for each index";
  let description = [{
    For dim = 0, output[i][j] = input[indices[i][j]][j]. Indices are in [0, input dim).

    ```mlir
    %y = loom.gather_elements %x, %indices dim = 1 : (tensor<4x6xf32>, tensor<4x3xi64>) -> tensor<4x3xf32>
    ```

    **Constraints:**
    - L-GE1: input and indices have equal shapes except in `dim`.
    - L-GE2: the output has the indices' shape and the input's element type.
  }];
  let arguments = (ins Loom_Tensor:$input, Loom_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `,` $indices `dim` `=` $dim attr-dict `:` functional-type(operands, results)";
}

def Loom_ScatterOp : Loom_IndexingOp<"scatter", [AllTypesMatch<["input", "output"]>]> {
  let summary = "A copy of `input` with updates written, or reduced, into it along `dim`";
  let description = [{
    Indices either have the updates' shape, one index per element, or one dimension, one index per slice of `dim`.
    Updates apply in row-major order; an update whose index is not in [0, input dim) is ignored.

    ```mlir
    %y = loom.scatter %x, %indices, %updates dim = 0 reduce = sum
        : (tensor<10x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<10x4xf32>
    ```

    **Constraints:**
    - L-SC1: updates and input have one element type, and equal shapes except in `dim`.
    - L-SC2: indices have the updates' shape, or one dimension of the size that `dim` has in the updates.
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
    `exclusive` leaves out the element itself, so that the first result is the neutral element; `reverse` runs from
    the end.

    ```mlir
    %y = loom.cumulative sum %x dim = 1 exclusive reverse : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, I64Attr:$dim, UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$kind $input `dim` `=` $dim (`exclusive` $exclusive^)? (`reverse` $reverse^)? attr-dict
      `:` type($output)}];
}

def Loom_ArgReduceOp : Loom_IndexingOp<"arg_reduce", [Loom_AmplifiesError, DeclareOpInterfaceMethods<DecomposeInterface>]> {
  let summary = "Index of the largest or smallest element along `dim`, which disappears";
  let description = [{
    Of equal elements the first counts, with `last` the last. NaN is both the largest and the smallest.

    ```mlir
    %i = loom.arg_reduce max %x dim = 1 last : (tensor<4x6xf32>) -> tensor<4xi64>
    ```

    **Constraints:**
    - L-AR1: `kind` is max or min.
    - L-AR2: the output's shape is the input's without `dim`, which is not empty.
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, I64Attr:$dim, UnitAttr:$last);
  let results = (outs Loom_I64Tensor:$output);
  let assemblyFormat = "$kind $input `dim` `=` $dim (`last` $last^)? attr-dict `:` functional-type(operands, results)";
}

def Loom_ArgsortOp : Loom_IndexingOp<"argsort", [Loom_AmplifiesError]> {
  let summary = "Indices of the first elements along `dim` in sorted order";
  let description = [{
    The output's size of `dim` is the number of elements to select: the input's size sorts, fewer is a top-k. Equal
    elements keep their order. NaN is greater than every number and equal to NaN. `loom.gather_elements` turns the
    indices into the elements.

    ```mlir
    %i = loom.argsort %x dim = 0 descending : (tensor<4x6xf32>) -> tensor<2x6xi64>
    ```

    **Constraints:**
    - L-AS1: the output has the input's shape except in `dim`, where it is at most as large.
  }];
  let arguments = (ins Loom_Tensor:$input, I64Attr:$dim, UnitAttr:$descending);
  let results = (outs Loom_I64Tensor:$output);
  let assemblyFormat = [{$input `dim` `=` $dim (`descending` $descending^)? attr-dict
      `:` functional-type(operands, results)}];
}

#endif
