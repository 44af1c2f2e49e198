//===- Passes.td - the fuse phase's passes ------------------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_FUSE
#define GRIDLOOM_PASSES_FUSE

include "mlir/Pass/PassBase.td"

def NormalizeViews : Pass<"plan-normalize-views", "::mlir::ModuleOp"> {
  let summary = "Moves reshapes, transposes and broadcasts out of the way of fusion";
  let description = [{
    A broadcast of a reshape that only adds or removes unit dimensions reads the reshape's input; a
    broadcast or reshape of a splat is a splat; a transpose that only moves unit dimensions is a
    reshape; a reshape between elementwise operations moves above them, to values in memory, where it
    is another name for the same bytes, and above a slice that cuts a dimension into whole parts.
    Conversions to wider numbers go below slices and broadcasts that kernels read.

    Input:

    ```mlir
    %0 = loom.reshape %mask : (tensor<2x8xf32>) -> tensor<2x1x1x8xf32>
    %1 = loom.broadcast %0 dims = [0, 1, 2, 3] : (tensor<2x1x1x8xf32>) -> tensor<2x4x8x8xf32>
    ```

    Output:

    ```mlir
    %1 = loom.broadcast %mask dims = [0, 3] : (tensor<2x8xf32>) -> tensor<2x4x8x8xf32>
    ```
  }];
}

def FormConvolutions : Pass<"plan-form-convolutions", "::mlir::ModuleOp"> {
  let summary = "Turns convolutions and their epilogues into library calls";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    A bias per channel, the sum with a tensor that lies in memory anyway (a residual connection) and a
    relu join the call where nothing else reads what lies between; cuDNN has the latter two with a bias
    only. A sum that goes on into a kernel stays with that kernel, which adds it for nothing. Without
    `epilogues`, as for oneDNN, whose relu makes NaN zero, only a bias joins.

    Input:

    ```mlir
    %0 = loom.convolution %x, %w strides = [1] low = [1] high = [1] input_dilations = [1]
        dilations = [1] groups = 1 : (tensor<1x4x8xf32>, tensor<4x4x3xf32>) -> tensor<1x4x8xf32>
    %1 = loom.broadcast %b dims = [1] : (tensor<4xf32>) -> tensor<1x4x8xf32>
    %2 = loom.add %0, %1 : tensor<1x4x8xf32>
    %3 = loom.maximum %2, %zero : tensor<1x4x8xf32>
    ```

    Output:

    ```mlir
    %3 = plan.convolution %x, %w bias %b <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1],
        output = [1, 4, 8] by [32, 8, 1], strides = [1], low = [1], high = [1], dilations = [1], groups = 1
        bias = true relu = true> : (tensor<1x4x8xf32>, tensor<4x4x3xf32>, tensor<4xf32>) -> tensor<1x4x8xf32>
    ```
  }];
  let options = [Option<"epilogues", "epilogues", "bool", "true", "let calls add residuals and do relu">];
}

def ChannelsLast : Pass<"plan-channels-last", "::mlir::ModuleOp"> {
  let summary = "Gives convolutions on tensor cores and CPUs a channels-last layout";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    Convolutions of f16, bf16 and TF32 read and write [N, spatial..., C]; their weights are transposed by the
    prologue. With `f32` so do all others, whose weights oneDNN packs. Transposes between two convolutions
    cancel, also across elementwise operations, concatenations, slices, padding, a device's part of a value, exchanged
    halos, sums over devices, and reductions of windows or of all spatial dimensions; what is left stands before the
    first and after the last. Where a convolution's channels become windows of a larger picture, as at the end of a
    transposed convolution, its weight has the windows before the channels, so that these stay together.

    Input:

    ```mlir
    %y = plan.convolution %x, %w <input = [1, 4, 8] by [32, 8, 1], weight = [4, 4, 3] by [12, 3, 1],
        output = [1, 4, 8] by [32, 8, 1], strides = [1], low = [1], high = [1], dilations = [1], groups = 1>
        : (tensor<1x4x8xf16>, tensor<4x4x3xf16>) -> tensor<1x4x8xf16>
    ```

    Output:

    ```mlir
    %0 = loom.transpose %x [0, 2, 1] : (tensor<1x4x8xf16>) -> tensor<1x8x4xf16>
    %1 = plan.convolution %0, %w1 <input = [1, 4, 8] by [32, 1, 4], weight = [4, 4, 3] by [12, 1, 4],
        output = [1, 4, 8] by [32, 1, 4], strides = [1], low = [1], high = [1], dilations = [1], groups = 1>
        : (tensor<1x8x4xf16>, tensor<4x3x4xf16>) -> tensor<1x8x4xf16>
    %y = loom.transpose %1 [0, 2, 1] : (tensor<1x8x4xf16>) -> tensor<1x4x8xf16>
    ```
  }];
  let options = [Option<"f32", "f32", "bool", "false", "also convolutions of f32">];
}

def FormAttention : Pass<"plan-form-attention", "::mlir::ModuleOp"> {
  let summary = "Turns two products with a softmax between them into one library call";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    softmax(scale * query * key^T + mask) * value of f16 or bf16, where nothing else reads what lies
    between; the scores are never in memory. Query, key, value and result may be transposed, the mask
    repeated. Scores may be hidden by a choice instead: one that leaves each query the keys up to its own
    becomes `causal`, which computes half, others a mask. What cuDNN has no engine for stays: f32, a depth that is no multiple of 8 or above 128.

    Input:

    ```mlir
    %0 = loom.dot_general %q, %k batch = [0, 1] x [0, 1] contract = [3] x [3]
        : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x8xf16>
    %1 = loom.multiply %0, %scale : tensor<2x4x8x8xf16>
    %2 = loom.softmax %1 dim = 3 : tensor<2x4x8x8xf16>
    %3 = loom.dot_general %2, %v batch = [0, 1] x [0, 1] contract = [3] x [2]
        : (tensor<2x4x8x8xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
    ```

    Output:

    ```mlir
    %3 = plan.attention %q, %k, %v <sizes = [2, 4, 8, 8, 16, 16], query = [512, 128, 16, 1],
        key = [512, 128, 16, 1], value = [512, 128, 16, 1], out = [512, 128, 16, 1], scale = 0.25 : f64>
        : (tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>, tensor<2x4x8x16xf16>) -> tensor<2x4x8x16xf16>
    ```
  }];
}

def ExpandContractions : Pass<"plan-expand-contractions", "::mlir::ModuleOp"> {
  let summary = "Rewrites contractions that the BLAS library cannot run";
  let description = [{
    Contractions of operands that differ in type are computed in f32 and rounded. Contractions of f64 and
    integers, and all in the prologue, become a product and a reduction, and so one kernel.

    Input:

    ```mlir
    %0 = loom.dot_general %a, %b batch = [] x [] contract = [1] x [0]
        : (tensor<2x3xf64>, tensor<3x4xf64>) -> tensor<2x4xf64>
    ```

    Output:

    ```mlir
    %0 = loom.broadcast %a dims = [0, 2] : (tensor<2x3xf64>) -> tensor<2x4x3xf64>
    %1 = loom.transpose %b [1, 0] : (tensor<3x4xf64>) -> tensor<4x3xf64>
    %2 = loom.broadcast %1 dims = [1, 2] : (tensor<4x3xf64>) -> tensor<2x4x3xf64>
    %3 = loom.multiply %0, %2 : tensor<2x4x3xf64>
    %4 = loom.reduce sum %3 dims = [2] : (tensor<2x4x3xf64>) -> tensor<2x4xf64>
    ```
  }];
}

def FormMatmuls : Pass<"plan-form-matmuls", "::mlir::ModuleOp"> {
  let summary = "Turns contractions of f32, f16 and bf16 into library matrix multiplications with strides";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    Transposes, reshapes, broadcasts and slices of the operands, and a transpose of the result, become
    strides, and an offset, where the library can walk them; scalar factors become `alpha`; dimensions that lie one after
    another merge, so that a batch of rows is one multiplication. A bias joins the call unless the sum
    goes on into a kernel that exists anyway, which adds it for nothing; so does, with `residuals`, the
    sum with a tensor that lies in memory, and, with `activations`, relu and gelu in the tanh form, with
    a kernel to fall back to where the library has no algorithm for it. Contractions that the library cannot walk become kernels.
    With `keep-row-products`, so do products of at most four rows, whose cost is reading the matrix.

    Input:

    ```mlir
    %0 = loom.transpose %k [0, 2, 3, 1] : (tensor<2x8x4x16xf32>) -> tensor<2x4x16x8xf32>
    %1 = loom.dot_general %q, %0 batch = [0, 1] x [0, 1] contract = [3] x [2]
        : (tensor<2x4x8x16xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x8x8xf32>
    ```

    Output:

    ```mlir
    %1 = plan.matmul %q, %k <sizes = [2, 4, 8, 8, 16], lhs = [512, 128, 16, 1], rhs = [512, 16, 1, 64],
        out = [256, 64, 8, 1]> : (tensor<2x4x8x16xf32>, tensor<2x8x4x16xf32>) -> tensor<2x4x8x8xf32>
    ```
  }];
  let options = [Option<"activations", "activations", "bool", "false",
                        "let calls do relu, and gelu in the tanh form">,
                 Option<"residuals", "residuals", "bool", "false", "let calls add residuals">,
                 Option<"keepRowProducts", "keep-row-products", "bool", "false",
                        "leave products of at most four rows to kernels">];
}

def FormKernels : Pass<"plan-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups all other operations into kernels";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    Elementwise producers join their only consumer; operations along rows (softmax, layer_norm,
    reductions over the last dimension) join with elementwise neighbours on the same rows; broadcasts,
    splats and index arithmetic are repeated inside every kernel that reads them, and so are slices,
    concatenations and transposes of rows of what lies in memory anyway; a slice that no kernel can read
    elsewhere is an address where its elements lie one after another. Concatenations join elementwise
    operations, cheap indices the lookups that they are for. What follows a
    contraction element by element joins it; its operands are in memory. A kernel stands where
    its last operation stood, so nothing that starts communication waits for more than it did. Kernels
    that compute the same are one symbol, whatever layer, stage or specialisation calls them.

    Input:

    ```mlir
    %0 = loom.broadcast %bias dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
    %1 = loom.add %x, %0 : tensor<8x16xf32>
    %2 = loom.gelu erf %1 : tensor<8x16xf32>
    ```

    Output:

    ```mlir
    %2 = plan.call @k_bias_gelu_0(%x, %bias) : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
    ```
  }];
}

def VerifyFused : Pass<"plan-verify-fused", "::mlir::ModuleOp"> {
  let summary = "Checks that every operation is in exactly one kernel, library call or group";
  let description = [{
    Guarantees after the phase: stage functions and derived tensors hold only `plan.call`,
    `plan.matmul`, `plan.convolution`, `plan.attention`, `loom.get_weight`, `loom.constant`, `loom.reshape`, `dist.axis_index`, `dist.start`
    and `dist.done`, and `loom.slice` where it is an address; kernels hold only loom operations that compute; padded weights feed matrix
    multiplications only; every library call's descriptor stays inside its tensors.

    Input and output are the same.

    ```mlir
    %0 = plan.call @k_gelu_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
}

#endif
