//===- Passes.td - the layout phase's passes ----------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_LAYOUT
#define GRIDLOOM_PASSES_LAYOUT

include "mlir/Pass/PassBase.td"

def DecomposeConvolutions : Pass<"loom-decompose-convolutions", "::mlir::ModuleOp"> {
  let summary = "Rewrites convolutions and window reductions as simpler operations";
  let description = [{
    A convolution becomes a padded input, its windows as the columns of a matrix, and a multiplication
    by the weights; one with a filter per channel the products and sums of its windows, which need no
    memory. A window of one element has no columns: the input is the matrix. `loom.reduce_window`
    becomes a padded input and a reduction of its windows. Where there are zeros between the input's
    elements, as in transposed convolutions and the gradients of strided ones, s of them for each element,
    every s-th position of the result is computed by a convolution with every s-th element of the window,
    but not with `keep-library`: on GPUs more launches take longer than zeros.
    With `keep-library`, convolutions that cuDNN has stay as they are: of f32, f16 or bf16 over one to
    three dimensions, and not in the prologue, which has kernels only. With `keep-forward` it is those that
    oneDNN has: of f32, with a window no larger than the result, and not in training steps, whose gradients
    are products of the same columns.

    Input:

    ```mlir
    %0 = loom.reduce_window max %x dims = [2] sizes = [3] strides = [2] low = [1] high = [0]
        dilations = [1] : (tensor<1x4x8xf32>) -> tensor<1x4x4xf32>
    ```

    Output:

    ```mlir
    %0 = loom.pad %x value = 0xFF800000 : f32 low = [0, 0, 1] high = [0, 0, 0] interior = [0, 0, 0]
        : (tensor<1x4x8xf32>) -> tensor<1x4x9xf32>
    %1 = loom.window %0 dims = [2] sizes = [3] strides = [2] dilations = [1]
        : (tensor<1x4x9xf32>) -> tensor<1x4x4x3xf32>
    %2 = loom.reduce max %1 dims = [3] : (tensor<1x4x4x3xf32>) -> tensor<1x4x4xf32>
    ```
  }];
  let options = [Option<"keepLibrary", "keep-library", "bool", "false",
                        "leave convolutions that cuDNN has">,
                 Option<"keepForward", "keep-forward", "bool", "false",
                        "leave convolutions that oneDNN has, but for those of training steps">];
}

def SliceWeights : Pass<"loom-slice-weights", "::mlir::ModuleOp"> {
  let summary = "Cuts slices of weights at load";
  let description = [{
    A weight of which only slices are read, as by the convolutions that a transposed one becomes, is cut
    by the prologue: each slice is a derived tensor, which no run computes again, and which the library
    packs once. The model's own slices are in the prologue before; these are made after it. A weight stays
    whole where something else reads it or slices overlap, since memory would hold it twice, and where a
    slice cuts a dimension that is split over devices.

    Input:

    ```mlir
    %w = loom.get_weight @w : tensor<8x4x4xf32>
    %0 = loom.slice %w [0, 0, 0] to [8, 4, 4] by [1, 1, 2] : (tensor<8x4x4xf32>) -> tensor<8x4x2xf32>
    %1 = loom.slice %w [0, 0, 1] to [8, 4, 4] by [1, 1, 2] : (tensor<8x4x4xf32>) -> tensor<8x4x2xf32>
    ```

    Output:

    ```mlir
    loom.derived @"w[:,:,::2]" : tensor<8x4x2xf32> { ... }
    loom.derived @"w[:,:,1::2]" : tensor<8x4x2xf32> { ... }
    %0 = loom.get_weight @"w[:,:,::2]" : tensor<8x4x2xf32>
    %1 = loom.get_weight @"w[:,:,1::2]" : tensor<8x4x2xf32>
    ```
  }];
}

def MergeMatmuls : Pass<"loom-merge-matmuls", "::mlir::ModuleOp"> {
  let summary = "Merges matmuls that share their left operand";
  let description = [{
    Query, key and value, or gate and up: the prologue joins the columns of their weights and biases,
    each device's own, and their readers read slices of the one product, which products and kernels
    do where it lies. That is one call instead of several, which reads the left operand once and fills
    the machine better. Products stay apart where a reader would need a copy, where something else
    reads a weight, which would be in memory twice, and where one is needed much later than the other,
    whose result would take memory until then.

    Input:

    ```mlir
    %q = loom.dot_general %x, %wq batch = [] x [] contract = [1] x [0] : ... -> tensor<8x16xf32>
    %k = loom.dot_general %x, %wk batch = [] x [] contract = [1] x [0] : ... -> tensor<8x16xf32>
    ```

    Output:

    ```mlir
    loom.derived @"{q,k}" : tensor<16x32xf32> { ... }
    %w = loom.get_weight @"{q,k}" : tensor<16x32xf32>
    %0 = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : ... -> tensor<8x32xf32>
    %q = loom.slice %0 [0, 0] to [8, 16] by [1, 1] : (tensor<8x32xf32>) -> tensor<8x16xf32>
    %k = loom.slice %0 [0, 16] to [8, 32] by [1, 1] : (tensor<8x32xf32>) -> tensor<8x16xf32>
    ```
  }];
}

def TurnWeights : Pass<"loom-turn-weights", "::mlir::ModuleOp"> {
  let summary = "Stores weights [N, K] of products along K as [K, N]";
  let description = [{
    A weight [N, K], or [1, .., 1, N, K] reshaped to that, which only f32 matrix multiplications read,
    as their right-hand side along K, one of them with three rows or more on the left, becomes a
    derived tensor [K, N], made at load: with up to 32 rows sgemm is then up to twice as fast, with
    more a tenth. A weight that something else reads as well, as an embedding, stays as it is: memory
    would hold it twice.

    Input:

    ```mlir
    %w = loom.get_weight @w : tensor<2048x512xf32>
    %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [1] : (tensor<4x512xf32>, tensor<2048x512xf32>) -> tensor<4x2048xf32>
    ```

    Output:

    ```mlir
    loom.derived @w.turned : tensor<512x2048xf32> { ... }
    %w = loom.get_weight @w.turned : tensor<512x2048xf32>
    %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : (tensor<4x512xf32>, tensor<512x2048xf32>) -> tensor<4x2048xf32>
    ```
  }];
}

def AssignLayouts : Pass<"loom-assign-layouts", "::mlir::ModuleOp"> {
  let summary = "Gives every weight a physical layout";
  let description = [{
    A weight that is read only as the row-major right-hand side of f32 matrix multiplications gets
    `pad-elements` elements after each row when its rows are a multiple of `pad-multiple` long: rows
    a power of two apart share cache sets, and sgemm runs at half speed for few rows of the left-hand
    side. Every other weight is dense and row-major. A plan has one layout per weight and sharding,
    so all specialisations and stages decide together.

    Input:

    ```mlir
    %w = loom.get_weight @w : tensor<768x3072xf32>
    %y = loom.dot_general %x, %w batch = [] x [] contract = [1] x [0] : ...
    ```

    Output:

    ```mlir
    %w = loom.get_weight @w {layout = #loom.layout<[0, 1], pad = 16>} : tensor<768x3072xf32>
    ```
  }];
  let options = [
    Option<"padMultiple", "pad-multiple", "int64_t", "256", "pad rows whose length is a multiple of this; 0 pads none">,
    Option<"padElements", "pad-elements", "int64_t", "16", "elements after each padded row">];
}

def VerifyLayouts : Pass<"loom-verify-layouts", "::mlir::ModuleOp"> {
  let summary = "Checks that every weight has one layout, and that all else is dense";
  let description = [{
    Guarantees after the phase: every `loom.get_weight` has a layout whose order is a permutation of
    its dimensions; one weight and sharding has one layout; a padded weight feeds matrix
    multiplications only. All other values are dense and row-major: no other operation has a layout,
    and no result's type an encoding.

    Input and output are the same.

    ```mlir
    %w = loom.get_weight @w {layout = #loom.layout<[0, 1]>} : tensor<8x16xf32>
    ```
  }];
}

#endif
