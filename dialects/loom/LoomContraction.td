//===- LoomContraction.td - contractions and reductions -----*- tablegen -*-===//
#ifndef GRIDLOOM_LOOM_CONTRACTION
#define GRIDLOOM_LOOM_CONTRACTION

include "dialects/dist/DistEnums.td"
include "dialects/loom/LoomBase.td"

def Loom_DotGeneralOp : Loom_Op<"dot_general", [], [], ["getFlops"]> {
  let summary = "Batched contraction of two tensors";
  let description = [{
    The output's dimensions are the batch dimensions, then the free dimensions of lhs, then those of rhs. 16-bit
    floats are summed in f32; the output may be f32 too. With `tf32`, f32 operands may be rounded to TF32.

    ```mlir
    %y = loom.dot_general %x, %w batch = [] x [] contract = [2] x [0]
        : (tensor<2x8x16xf32>, tensor<16x32xf32>) -> tensor<2x8x32xf32>
    ```

    **Constraints:**
    - L-DG1: paired batch and contracting dimensions have equal sizes.
    - L-DG2: no dimension is named twice.
    - L-DG3: both operands have one element type; the output has it too, or is f32 for f16 or bf16 operands.
  }];
  let arguments = (ins Loom_Tensor:$lhs, Loom_Tensor:$rhs,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$lhs_batch, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$rhs_batch,
      DenseI64ArrayAttr:$lhs_contract, DenseI64ArrayAttr:$rhs_contract, UnitAttr:$tf32);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = [{$lhs `,` $rhs `batch` `=` $lhs_batch `x` $rhs_batch `contract` `=` $lhs_contract `x`
      $rhs_contract (`tf32` $tf32^)? attr-dict `:` functional-type(operands, results)}];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Dimensions of a side that are neither batch nor contracting, in order.
    ::llvm::SmallVector<int64_t> getLhsFreeDims();
    ::llvm::SmallVector<int64_t> getRhsFreeDims();
  }];
}

def Loom_ReduceOp : Loom_Op<"reduce"> {
  let summary = "Reduces over `dims`, which disappear";
  let description = [{
    The kind is sum, prod, max or min. 16-bit floats are summed in f32.

    ```mlir
    %y = loom.reduce sum %x dims = [1] : (tensor<4x6xf32>) -> tensor<4xf32>
    ```

    **Constraints:**
    - L-RD1: `dims` are dimensions of the input, increasing strictly.
    - L-RD2: the output's shape is the input's without them.
  }];
  let arguments = (ins Loom_Tensor:$input, ReductionKindAttr:$kind, DenseI64ArrayAttr:$dims);
  let results = (outs Loom_Tensor:$output);
  let assemblyFormat = "$kind $input `dims` `=` $dims attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Loom_SoftmaxOp : Loom_Op<"softmax", [Loom_Bounded, SameOperandsAndResultType, DeclareOpInterfaceMethods<DecomposeInterface>], ["partition"], ["getFlops"]> {
  let summary = "exp(x - max) / sum along `dim`";
  let description = [{
    The maximum and the sum are taken along `dim`, which need not be the last dimension.

    ```mlir
    %y = loom.softmax %x dim = 1 : tensor<4x6xf32>
    ```
  }];
  let arguments = (ins Loom_FloatTensor:$input, I64Attr:$dim);
  let results = (outs Loom_FloatTensor:$output);
  let assemblyFormat = "$input `dim` `=` $dim attr-dict `:` type($output)";
  let hasVerifier = 1;
}

class Loom_RowNormOp<string mnemonic> : Loom_Op<mnemonic, [Loom_Bounded, Loom_NormalizesRows,
    AllTypesMatch<["input", "output"]>, DeclareOpInterfaceMethods<DecomposeInterface>], ["partition"], ["getFlops"]> {
  let results = (outs Loom_FloatTensor:$output);
  let hasVerifier = 1;
}

def Loom_LayerNormOp : Loom_RowNormOp<"layer_norm"> {
  let summary = "(x - mean) / sqrt(variance + epsilon) * scale + bias over the last dimension";
  let description = [{
    Mean and variance (divided by n) are those of each row of the last dimension; `scale` and `bias` have its size.

    ```mlir
    %y = loom.layer_norm %x, %scale, %bias epsilon = 1.0e-05
        : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    ```
  }];
  let arguments = (ins Loom_FloatTensor:$input, Loom_FloatTensor:$scale, Optional<Loom_FloatTensor>:$bias, F64Attr:$epsilon);
  let assemblyFormat = "$input `,` $scale (`,` $bias^)? `epsilon` `=` $epsilon attr-dict `:` functional-type(operands, results)";
}

def Loom_RmsNormOp : Loom_RowNormOp<"rms_norm"> {
  let summary = "x / sqrt(mean of x * x + epsilon) * scale over the last dimension";
  let description = [{
    The mean is that of each row of the last dimension; `scale` has its size.

    ```mlir
    %y = loom.rms_norm %x, %scale epsilon = 1.0e-05 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    ```
  }];
  let arguments = (ins Loom_FloatTensor:$input, Loom_FloatTensor:$scale, F64Attr:$epsilon);
  let assemblyFormat = "$input `,` $scale `epsilon` `=` $epsilon attr-dict `:` functional-type(operands, results)";
}

#endif
