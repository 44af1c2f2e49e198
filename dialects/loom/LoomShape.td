//===- LoomShape.td - operations that move elements ---------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_SHAPE
#define GRIDLOOM_LOOM_SHAPE

include "dialects/loom/LoomBase.td"

class Loom_MoveOp<string mnemonic, list<string> rule = []> : Loom_Op<mnemonic, [], rule, ["getFlops"]> {
  let hasVerifier = 1;
}

def Loom_ConstantOp : Loom_Op<"constant", [ConstantLike, DeclareOpInterfaceMethods<InferTypeOpInterface>], ["partition"], ["getFlops"]> {
  let summary = "A small literal";
  let description = [{
    Holds values that the model or the compiler gives in full. Large tensors are weights, which stay in their file.

    ```mlir
    %c = loom.constant dense<[1, 2]> : tensor<2xi64>
    ```
  }];
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
}

def Loom_IotaOp : Loom_Op<"iota", [], ["partition"], ["getFlops"]> {
  let summary = "The index along `dim`";
  let description = [{
    Each element of the output is its own index in dimension `dim`.

    ```mlir
    %i = loom.iota dim = 1 : tensor<2x3xi64>
    ```
  }];
  let arguments = (ins I64Attr:$dim);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "`dim` `=` $dim attr-dict `:` type($output)";
  let hasVerifier = 1;
}

def Loom_BroadcastOp : Loom_MoveOp<"broadcast", ["isLinear"]> {
  let summary = "Repeats a tensor along new or unit dimensions";
  let description = [{
    Input dimension i becomes output dimension `dims[i]`.

    ```mlir
    %y = loom.broadcast %x dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    ```

    **Constraints:**
    - L-BC1: `dims` has the input's rank and increases strictly.
    - L-BC2: input dimension i is 1 or equals output dimension dims[i].
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `dims` `=` $dims attr-dict `:` functional-type(operands, results)";
}

def Loom_ReshapeOp : Loom_MoveOp<"reshape", ["isLinear"]> {
  let summary = "The same elements in row-major order, another shape";
  let description = [{
    The number of elements stays the same.

    ```mlir
    %y = loom.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasFolder = 1;
}

def Loom_TransposeOp : Loom_MoveOp<"transpose", ["isLinear"]> {
  let summary = "Output dimension i is input dimension permutation[i]";
  let description = [{
    The permutation names every dimension once.

    ```mlir
    %y = loom.transpose %x [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input $permutation attr-dict `:` functional-type(operands, results)";
  let hasFolder = 1;
}

def Loom_SliceOp : Loom_MoveOp<"slice", ["isLinear", "partition"]> {
  let summary = "Elements starts, starts + strides, ... below limits";
  let description = [{
    One start, limit and stride per dimension; strides are positive and limits at most the dimension's size.

    ```mlir
    %y = loom.slice %x [0, 1] to [4, 6] by [1, 2] : (tensor<4x6xf32>) -> tensor<4x3xf32>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$limits, DenseI64ArrayAttr:$strides);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input $starts `to` $limits `by` $strides attr-dict `:` functional-type(operands, results)";
}

def Loom_ConcatenateOp : Loom_MoveOp<"concatenate", ["isLinear", "partition"]> {
  let summary = "Tensors one after another along `dim`";
  let description = [{
    The inputs agree in all other dimensions and in the element type.

    ```mlir
    %z = loom.concatenate %x, %y dim = 1 : (tensor<2x3xf32>, tensor<2x1xf32>) -> tensor<2x4xf32>
    ```
  }];
  let arguments = (ins Variadic<Loom_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$inputs `dim` `=` $dim attr-dict `:` functional-type(operands, results)";
}

def Loom_GatherOp : Loom_MoveOp<"gather", ["partition"]> {
  let summary = "Slices of `input` along `dim` at the given indices";
  let description = [{
    The output's shape is input[:dim] + indices + input[dim+1:]. Indices are in [0, input dim): the importer makes
    negative ones positive.

    ```mlir
    %y = loom.gather %table, %tokens dim = 0 : (tensor<100x8xf32>, tensor<2x5xi64>) -> tensor<2x5x8xf32>
    ```
  }];
  let arguments = (ins Loom_Tensor:$input, Loom_IntTensor:$indices, I64Attr:$dim);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$input `,` $indices `dim` `=` $dim attr-dict `:` functional-type(operands, results)";
  let hasCanonicalizer = 1;
}

#endif
