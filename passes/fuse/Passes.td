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
    is another name for the same bytes.

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

def ExpandContractions : Pass<"plan-expand-contractions", "::mlir::ModuleOp"> {
  let summary = "Turns contractions that the library has not into ones it has, or into sums of products";
  let description = [{
    Contractions of f16 and bf16 are computed in f32 and rounded. Contractions of f64 and integers, and all in
    the prologue, become a product and a reduction, and so one kernel.

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
  let summary = "Turns f32 contractions into library matrix multiplications with strides";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    Transposes, reshapes and broadcasts of the operands, and a transpose of the result, become strides
    where the library can walk them; scalar factors become `alpha`; dimensions that lie one after
    another merge, so that a batch of rows is one multiplication. A bias joins the call unless the sum
    goes on into a kernel, which adds it for nothing. Contractions that the library cannot walk become kernels.

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
}

def FormKernels : Pass<"plan-form-kernels", "::mlir::ModuleOp"> {
  let summary = "Groups all other operations into kernels";
  let dependentDialects = ["::gridloom::plan::PlanDialect"];
  let description = [{
    Elementwise producers join their only consumer; operations along rows (softmax, layer_norm,
    reductions over the last dimension) join with elementwise neighbours on the same rows; broadcasts,
    splats and index arithmetic are repeated inside every kernel that reads them. A kernel stands where
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
    `plan.matmul`, `loom.get_weight`, `loom.constant`, `loom.reshape`, `dist.axis_index`, `dist.start`
    and `dist.done`; kernels hold only loom operations that compute; padded weights feed matrix
    multiplications only; every matmul's descriptor stays inside its tensors.

    Input and output are the same.

    ```mlir
    %0 = plan.call @k_gelu_0(%x) : (tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
}

#endif
