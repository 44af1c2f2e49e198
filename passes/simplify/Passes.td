//===- Passes.td - the import and simplify phases -----------*- tablegen -*-===//
#ifndef GRIDLOOM_PASSES_SIMPLIFY
#define GRIDLOOM_PASSES_SIMPLIFY

include "mlir/Pass/PassBase.td"

def VerifyImported : Pass<"loom-verify-imported", "::mlir::ModuleOp"> {
  let summary = "Checks the importer's output";
  let description = [{
    **Guarantees:**
    - I-G1: the module says which model it comes from; functions have one block, an entry and the
      sizes of their symbolic dimensions; arguments and results have names.
    - I-G2: functions hold loom operations and a return only.
    - I-G3: every operation's location names an ONNX node.
    - I-G4: every tensor has a static shape of an element type the compiler computes with.
  }];
}

def Canonicalize : Pass<"loom-canonicalize", "::mlir::ModuleOp"> {
  let summary = "Brings equal computations into one form";
  let description = [{
    Removes what does nothing, merges moves with moves and transposes with contractions, computes
    before repeating, spells small powers as products, and shares common subexpressions, but gives every
    user its own broadcast.

    ```mlir
    %0 = loom.transpose %w array<i64: 1, 0> : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %1 = loom.dot_general %x, %0 batch = array<i64> x array<i64> contract = array<i64: 1> x array<i64: 0> ...
    ```
    becomes
    ```mlir
    %1 = loom.dot_general %x, %w batch = array<i64> x array<i64> contract = array<i64: 1> x array<i64: 1> ...
    ```
  }];
}

def SeparateDims : Pass<"loom-separate-dims", "::mlir::ModuleOp"> {
  let summary = "Keeps apart dimensions that the model merges and splits again";
  let description = [{
    Exporters merge batch and heads for a transpose or a product, and rows for a Gemm, and split the
    result. A merged dimension can be cut over devices along its major part only. Where everything
    between the two reshapes can be computed with the parts as dimensions of their own, it is.

    ```mlir
    %0 = loom.reshape %k : (tensor<2x4x8x16xf32>) -> tensor<8x8x16xf32>
    %1 = loom.transpose %0 [0, 2, 1] : (tensor<8x8x16xf32>) -> tensor<8x16x8xf32>
    %2 = loom.reshape %1 : (tensor<8x16x8xf32>) -> tensor<2x4x16x8xf32>
    ```
    becomes
    ```mlir
    %2 = loom.transpose %k [0, 1, 3, 2] : (tensor<2x4x8x16xf32>) -> tensor<2x4x16x8xf32>
    ```
  }];
}

def FoldConstants : Pass<"loom-fold-constants", "::mlir::ModuleOp"> {
  let summary = "Computes operations whose operands are constants";
  let description = [{
    Results above 64 KiB are left alone unless all their elements are equal.
    A counter counts as a constant beside a table of numbers; counters alone stay, as kernels compute
    them.

    ```mlir
    %0 = loom.constant dense<2.0> : tensor<f32>
    %1 = loom.sqrt %0 : tensor<f32>
    ```
    becomes
    ```mlir
    %1 = loom.constant dense<1.41421354> : tensor<f32>
    ```
  }];
  let statistics = [Statistic<"numFolded", "num-folded", "Number of operations computed">];
}

def RaiseComposites : Pass<"loom-raise-composites", "::mlir::ModuleOp"> {
  let summary = "Recognises composites that an exporter wrote in parts";
  let description = [{
    Layer normalisation, softmax, and GELU in both forms. Constants may be off by a relative 1e-6:
    exporters round them. Divisions by a power of two become multiplications, which are exact.

    ```mlir
    %0 = loom.divide %x, %sqrt2 : tensor<4xf32>
    %1 = loom.erf %0 : tensor<4xf32>
    %2 = loom.add %1, %one : tensor<4xf32>
    %3 = loom.multiply %x, %2 : tensor<4xf32>
    %4 = loom.multiply %3, %half : tensor<4xf32>
    ```
    becomes
    ```mlir
    %4 = loom.gelu erf %x : tensor<4xf32>
    ```
  }];
}

def FoldScales : Pass<"loom-fold-scales", "::mlir::ModuleOp"> {
  let summary = "Folds per-channel scales into the weights of convolutions";
  let description = [{
    What follows a convolution by fixed weights, as inference-time batch normalisation does, and
    multiplies each channel by a fixed number, goes into the weights; numbers added one after another
    become one sum. All of it depends on weights alone and is computed once, at load.

    ```mlir
    %0 = loom.convolution %x, %w ... -> tensor<1x16x8x8xf32>
    %1 = loom.broadcast %scale dims = [1] : (tensor<16xf32>) -> tensor<1x16x8x8xf32>
    %2 = loom.multiply %0, %1 : tensor<1x16x8x8xf32>
    ```
    becomes
    ```mlir
    %0 = loom.broadcast %scale dims = [0] : (tensor<16xf32>) -> tensor<16x3x3x3xf32>
    %1 = loom.multiply %w, %0 : tensor<16x3x3x3xf32>
    %2 = loom.convolution %x, %1 ... -> tensor<1x16x8x8xf32>
    ```
  }];
}

def SetPrecision : Pass<"loom-set-precision", "::mlir::ModuleOp"> {
  let summary = "Stores f32 values in 16 bits, or lets contractions round their operands to tf32";
  let description = [{
    With bf16 and f16 weights, activations and what devices send each other are of that type;
    contractions sum in f32, kernels compute in f32. What stays f32, and has a remark:

    - inputs, outputs and states, which the caller binds; what a loop carries;
    - integers of more than 8 bits and what is computed from them alone, as positions are;
    - sums of 16 elements or more into one, and what is computed from them alone;
    - what may be beyond 16 bits: of f16 exponentials and powers, of both what is computed with numbers
      they lack (masks of -3.4e38), up to the next softmax, norm, tanh or the like;
    - what is only read by outputs or by what magnifies errors: rounding, order, exponentials, angles.

    Literals beyond the range become the largest number there is. With tf32 values stay f32;
    contractions and convolutions that may round their operands are marked. f64 and integers are left
    alone.

    ```mlir
    %w = loom.get_weight @w : tensor<16x32xf32>
    %y = loom.dot_general %x, %w ... -> tensor<8x32xf32>
    %z = loom.gelu erf %y : tensor<8x32xf32>
    ```
    becomes, with bf16,
    ```mlir
    %w = loom.get_weight @w : tensor<16x32xf32>
    %v = loom.convert %w : (tensor<16x32xf32>) -> tensor<16x32xbf16>
    %y = loom.dot_general %x, %v ... -> tensor<8x32xbf16>
    %z = loom.gelu erf %y : tensor<8x32xbf16>
    ```
  }];
  let options = [Option<"precision", "precision", "std::string", "\"f32\"", "f32, tf32, bf16 or f16">];
}

def HoistPrologue : Pass<"loom-hoist-prologue", "::mlir::ModuleOp"> {
  let summary = "Moves work on weights alone into the prologue, which runs once at load";
  let description = [{
    What only repeats or reshapes a weight stays where it is. Specialisations share equal tensors.
    Bodies of loops and branches that were folded away go, and with them the weights that they read.

    ```mlir
    %w = loom.get_weight @table : tensor<512x8xf32>
    %0 = loom.slice %w ... to tensor<16x8xf32>
    ```
    becomes
    ```mlir
    loom.derived @"/embeddings/Slice" : tensor<16x8xf32> {
      %w = loom.get_weight @table : tensor<512x8xf32>
      %0 = loom.slice %w ...
      loom.yield %0 : tensor<16x8xf32>
    }
    ...
    %0 = loom.get_weight @"/embeddings/Slice" : tensor<16x8xf32>
    ```
  }];
}

def VerifySimplified : Pass<"loom-verify-simplified", "::mlir::ModuleOp"> {
  let summary = "Checks that nothing is left that can be computed at compile time";
  let description = [{
    **Guarantees,** besides those of loom-verify-imported:
    - F-G1: no operation with a result of at most 64 KiB has constant operands only.
    - F-G2: no operation but repeating or reshaping depends on weights alone.
    - F-G3: every weight and derived tensor is used.
    - F-G4: every body is that of a loop or branch which an entry runs.
  }];
}

#endif
