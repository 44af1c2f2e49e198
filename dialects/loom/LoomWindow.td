//===- LoomWindow.td - padding, windows, convolutions -------*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_WINDOW
#define GRIDLOOM_LOOM_WINDOW

include "mlir/IR/BuiltinAttributeInterfaces.td"
include "dialects/dist/DistEnums.td"
include "dialects/loom/LoomBase.td"

def Loom_PadOp : Loom_Op<"pad", [], ["isLinear", "partition"], ["getFlops"]> {
  let summary = "Puts `value` around and between the elements of each dimension";
  let description = [{
    `low[d]` elements before dimension d, `high[d]` after it, `interior[d]` between neighbours.

    ```mlir
    %y = loom.pad %x value = 0.0 : f32 low = [0, 1] high = [0, 2] interior = [0, 0]
        : (tensor<2x3xf32>) -> tensor<2x6xf32>
    ```

    **Constraints:**
    - L-PD1: `low`, `high` and `interior` have the input's rank and are not negative.
    - L-PD2: `value` has the element type.
    - L-PD3: output dimension d is low + n + (n - 1) * interior + high for an input dimension of
      n > 0, low + high for n = 0.
  }];
  let arguments = (ins Loom_Tensor:$input, TypedAttrInterface:$value, DenseI64ArrayAttr:$low,
      DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$interior);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$input `value` `=` $value `low` `=` $low `high` `=` $high `interior` `=`
      $interior attr-dict `:` functional-type(operands, results)}];
  let hasVerifier = 1;
}

def Loom_WindowOp : Loom_Op<"window", [], ["isLinear", "partition"], ["getFlops"]> {
  let summary = "All windows over some dimensions, as extra dimensions at the end";
  let description = [{
    Dimension dims[i] becomes the positions of a window of sizes[i] elements, dilations[i] apart, that
    advances by strides[i]; the windows' dimensions follow all others in the order of `dims`. Element
    (o, k) is the input's o * stride + k * dilation. Reductions read windows in place: no copy is made.

    ```mlir
    %y = loom.window %x dims = [2] sizes = [3] strides = [2] dilations = [1]
        : (tensor<1x4x9xf32>) -> tensor<1x4x4x3xf32>
    ```

    **Constraints:**
    - L-WN1: `dims` are dimensions of the input, increasing strictly; the other lists have as many entries,
      all positive.
    - L-WN2: a window fits: (size - 1) * dilation + 1 <= n.
    - L-WN3: positions are (n - (size - 1) * dilation - 1) / stride + 1.
  }];
  let arguments = (ins Loom_Tensor:$input, DenseI64ArrayAttr:$dims, DenseI64ArrayAttr:$sizes,
      DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$input `dims` `=` $dims `sizes` `=` $sizes `strides` `=` $strides `dilations`
      `=` $dilations attr-dict `:` functional-type(operands, results)}];
  let hasVerifier = 1;
}

def Loom_ConvolutionOp : Loom_Op<"convolution", [DeclareOpInterfaceMethods<DecomposeInterface>],
    ["partition"], ["getFlops"]> {
  let summary = "Convolution of [N, C, spatial...] with weights [O, C / groups, window...]";
  let description = [{
    The input gets input_dilations[i] - 1 zeros between elements of spatial dimension i (in a transposed
    convolution), then low[i] and high[i] zeros around it. Output position o is the sum over k of
    input[o * stride + k * dilation] * weight[k]: the window is not mirrored. Each output channel reads the
    input channels of its group. With `tf32`, f32 operands may be rounded to TF32.

    ```mlir
    %y = loom.convolution %x, %w strides = [2, 2] low = [1, 1] high = [1, 1] input_dilations = [1, 1]
        dilations = [1, 1] groups = 1
        : (tensor<1x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<1x16x4x4xf32>
    ```

    **Constraints:**
    - L-CV1: input, weight and output have the same element type and the same rank, at least 3.
    - L-CV2: lists have one entry per spatial dimension; strides and dilations are positive, padding
      is not negative.
    - L-CV3: `groups` divides both numbers of channels, and the weight's dimension 1 is C / groups.
    - L-CV4: a window fits into the padded input; the output's shape is that of its positions.
  }];
  let arguments = (ins Loom_Tensor:$input, Loom_Tensor:$weight, DenseI64ArrayAttr:$strides,
      DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$input_dilations,
      DenseI64ArrayAttr:$dilations, I64Attr:$groups, UnitAttr:$tf32);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$input `,` $weight `strides` `=` $strides `low` `=` $low `high` `=` $high
      `input_dilations` `=` $input_dilations `dilations` `=` $dilations `groups` `=` $groups (`tf32` $tf32^)? attr-dict
      `:` functional-type(operands, results)}];
  let hasVerifier = 1;
}

def Loom_ReduceWindowOp : Loom_Op<"reduce_window", [DeclareOpInterfaceMethods<DecomposeInterface>],
    ["isLinear", "partition"], ["getFlops"]> {
  let summary = "Reduces every window of some dimensions";
  let description = [{
    Equals a `loom.pad` with the reduction's neutral element, a `loom.window`, and a `loom.reduce` over the
    windows' dimensions. `low` and `high` pad the dimensions in `dims`.

    ```mlir
    %y = loom.reduce_window max %x dims = [2, 3] sizes = [3, 3] strides = [2, 2] low = [1, 1]
        high = [1, 1] dilations = [1, 1] : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
    ```

    **Constraints:**
    - L-RW1: `dims` are dimensions of the input, increasing strictly; the other lists have as many
      entries; sizes, strides and dilations are positive, padding is not negative.
    - L-RW2: a window fits into the padded input; the output's shape is that of its positions.
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, DenseI64ArrayAttr:$dims,
      DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$low,
      DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$dilations);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$kind $input `dims` `=` $dims `sizes` `=` $sizes `strides` `=` $strides `low`
      `=` $low `high` `=` $high `dilations` `=` $dilations attr-dict `:`
      functional-type(operands, results)}];
  let hasVerifier = 1;
}

#endif
